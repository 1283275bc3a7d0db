"""What is told of a run's inputs, from what can be seen; no secret among it."""

import hashlib
import sys
from types import ModuleType

import pytest

from rankscope.tracer import lineage, manifest
from rankscope.tracer.redact import HIDDEN


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """`rows(*arguments, **described) -> [artifact, ...]` of a job whose script is train.py."""
    (tmp_path / "train.py").write_text("print(1)\n")
    main = ModuleType("__main__")
    main.__file__ = "train.py"
    monkeypatch.setitem(sys.modules, "__main__", main)

    def run(*arguments, container=None, objective=None, **described):
        monkeypatch.setattr(manifest, "command", lambda: ["python", "train.py", *arguments])
        return lineage.artifacts(described, tmp_path, container, 8, objective)

    return run


def _of(found, kind):
    return [{key: value for key, value in row.items() if key != "kind"} for row in found if row["kind"] == kind]


def test_code_is_the_script_at_a_commit(rows, tmp_path):
    state = {"commit": "0123456789abcdef" * 2 + "01234567", "is_dirty": True, "remote": "https://host/team/repo.git"}
    digest = hashlib.sha256(b"print(1)\n").hexdigest()
    assert _of(rows(code=state), "code") == [
        {"name": "train.py", "version": "0123456789ab+dirty", "digest": digest, "source": "https://host/team/repo.git"}
    ]
    assert _of(rows(), "code") == [{"name": "train.py", "digest": digest, "source": str(tmp_path / "train.py")}]


def test_dependencies_are_the_versions_of_the_manifest(rows):
    found = rows(python="3.11.2", versions={"torch": "2.13.0"}, torch={"cuda": "13.0", "hip": None})
    assert [(row["name"], row["version"]) for row in _of(found, "dependency")] == [
        ("python", "3.11.2"), ("torch", "2.13.0"), ("cuda", "13.0")
    ]  # fmt: skip


def test_the_command_line_and_the_files_that_it_names(rows, tmp_path):
    (tmp_path / "model.yaml").write_text("layers: 3\n")
    (tmp_path / "big.json").write_bytes(b" " * (lineage.MAX_CONFIG_BYTES + 1))
    found = _of(rows("--config", "model.yaml", "--also=model.yaml", "big.json", "gone.toml"), "config")
    assert [row["name"] for row in found] == ["command line", "model.yaml"]
    assert found[1]["digest"] == hashlib.sha256(b"layers: 3\n").hexdigest()
    same = _of(rows("--token", "one"), "config"), _of(rows("--token", "two"), "config")
    assert same[0] == same[1] != _of(rows("--lr", "two"), "config")


@pytest.mark.parametrize(
    ("arguments", "kind", "name"),
    [
        (["--data-path", "/data/c4"], "dataset", "/data/c4"),
        (["--dataset=c4"], "dataset", "c4"),
        (["--train-data", "x.bin"], "dataset", "x.bin"),
        (["training.dataset.name=c4"], "dataset", "c4"),
        (["--tokenizer", "gpt2"], "tokenizer", "gpt2"),
        (["model.tokenizer_path=/t/llama"], "tokenizer", "/t/llama"),
        (["--data", "s3://key:hunter2@bucket/c4?sig=1"], "dataset", "s3://bucket/c4"),
        (["--data_dir", "/x/token=hunter2/c4"], "dataset", "/x/token=" + HIDDEN),
    ],
)
def test_data_sets_and_tokenizers_are_what_options_call_so(rows, arguments, kind, name):
    (row,) = _of(rows(*arguments), kind)
    assert row["name"] == name and row["source"].startswith("option ")


@pytest.mark.parametrize("arguments", [["--data-workers", "3"], ["--metadata=x"], ["--data"], ["--data", "--fast"]])
def test_other_options_are_none(rows, arguments):
    found = rows(*arguments)
    assert _of(found, "dataset") == _of(found, "tokenizer") == []


def test_container_topology_and_objective(rows):
    one = rows(container="ab" * 32, objective="perplexity", topology={"num_cpus": 4, "cpu_affinity": [1]})
    assert _of(one, "container")[0]["version"] == "abababababab"
    assert _of(one, "objective") == [{"name": "perplexity", "source": "attach"}]
    (topology,) = _of(one, "topology")
    assert topology["version"] == "8 ranks, 4 CPUs a host"
    other = rows(topology={"num_cpus": 4, "cpu_affinity": [2]})
    assert _of(other, "topology")[0]["digest"] == topology["digest"]
    assert _of(rows(topology={"num_cpus": 5}), "topology")[0]["digest"] != topology["digest"]
    assert _of(other, "container") == []
