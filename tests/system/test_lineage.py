"""Lineage of real jobs: what they were made from is told, and no secret that was planted around them is."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.system

SECRETS = {
    "word": "hunter2-correct-horse",
    "github": "ghp_AbCdEfGhIjKlMnOpQrStUvWx0123456789",
    "hugging": "hf_ZyXwVuTsRqPoNmLkJiHgFeDc",
    "aws": "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
    "openai": "sk-proj-abcdefghijklmnop0123",
}
"""Planted as the values of options, variables and user infos (word), and anywhere as credentials of known issuers."""

JOB = """
import rankscope
rankscope.attach(artifacts=[
    {{"kind": "dataset", "name": "c4", "source": "s3://key:{word}@bucket/c4?signature={aws}"}},
    {{"kind": "tokenizer", "name": "llama", "version": "3", "source": "/cache/{hugging}/llama"}},
], objective="perplexity")
import os, random
import torch
import torch.distributed as dist

torch.manual_seed(1234)
dist.init_process_group("gloo")
random.seed(99 + dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    with rankscope.span("https://user:{word}@host/x"):
        model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
folder = os.path.join(os.environ["SCRATCH"], "token={word}", "{hugging}")
os.makedirs(folder, exist_ok=True)
for place in (folder, os.environ["SCRATCH"]):
    path = os.path.join(place, f"model-{{dist.get_rank()}}.pt")
    torch.save(model.state_dict(), path)
    torch.load(path, weights_only=True)
rankscope.log(text="{openai}", loss=1.0)
dist.barrier()
if dist.get_rank() == 0:  # what lies on the local disk and on the tmpfs while the job runs
    import glob, shutil, time
    from rankscope.schema import paths
    journals = os.path.join(os.environ["RANKSCOPE_LOCAL_DIR"], "*", "*", "*.journal")
    while not any("imagenet" in open(path).read() for path in glob.glob(journals)):  # the watch thread describes it
        time.sleep(0.1)
    seen = os.path.join(os.environ["SCRATCH"], "seen")
    shutil.copytree(os.environ["RANKSCOPE_LOCAL_DIR"], seen)
    for launch in glob.glob(os.path.join(os.environ["RANKSCOPE_LOCAL_DIR"], "*", "*")):
        name = os.path.basename(launch)
        if (paths.tmpfs_base() / name).is_dir():
            shutil.copytree(paths.tmpfs_base() / name, os.path.join(seen, "tmpfs", name))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository whose remote holds a password, with the training script in it."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "train.py").write_text(JOB.format(**SECRETS))
    (folder / "model.yaml").write_text("layers: 1\n")
    who = ["-c", "user.name=x", "-c", "user.email=x@y"]
    for words in (
        ["init", "-q"], ["add", "train.py", "model.yaml"], [*who, "commit", "-q", "-m", "first"],
        ["remote", "add", "origin", f"https://me:{SECRETS['github']}@git.example.com/team/repo.git?token={SECRETS['word']}"],
    ):  # fmt: skip
        subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)
    return folder


def _environment(place):
    word = SECRETS["word"]
    return {
        "RANKSCOPE_AGENT": "now", "SCRATCH": str(place), "AWS_SECRET_ACCESS_KEY": SECRETS["aws"], "HF_TOKEN": word,
        "NCCL_AUTH_TOKEN": word, "TORCH_HUB_PASSWORD": word, "TRITON_CACHE_MANAGER": f"redis://u:{word}@host/0",
        "TORCHINDUCTOR_REMOTE": SECRETS["openai"], "DB_DSN": word, "NCCL_DEBUG": "WARN",
    }  # fmt: skip


def _arguments():
    word = SECRETS["word"]
    return [
        "--api-key", word, f"--wandb_api_key={word}", f"HF_TOKEN={word}", f"--hub={SECRETS['hugging']}",
        "--data-path", f"s3://key:{word}@bucket/imagenet?sig={SECRETS['aws']}", f"--redis=redis://:{word}@cache:1/0",
        "--tokenizer", f"/cache/token={word}/gpt2", SECRETS["openai"],
    ]  # fmt: skip


def _texts(path):
    """The bytes of a file, and what they say where they are packed."""
    yield path.read_bytes()
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        yield repr(file.schema_arrow.metadata).encode()
        yield repr(file.read().to_pylist()).encode()


def _leaks(folder):
    return [
        (str(path.relative_to(folder)), name)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
        for data in _texts(path)
        for name, secret in SECRETS.items()
        if secret.encode() in data
    ]


def _manifest(job):
    command = [
        sys.executable,
        "-c",
        "from rankscope.cli.main import main; main()",
        "manifest",
        str(job.run_dir),
        "--json",
    ]
    environment = {**os.environ, "RANKSCOPE_LOCAL_DIR": str(job.local_dir)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_lineage_is_told_and_no_secret_is(torchrun, repository, tmp_path):
    arguments = [*_arguments(), "--config", str(repository / "model.yaml")]
    job = torchrun(repository / "train.py", 2, env=_environment(tmp_path / "scratch"), args=arguments).check()
    journals = [path.read_text() for path in (tmp_path / "scratch" / "seen").rglob("*.journal")]
    assert len(journals) == 2 and any('"artifact"' in text and "imagenet" in text for text in journals)
    rings = [path for path in (tmp_path / "scratch" / "seen").rglob("*.ring") if not path.is_symlink()]
    assert len(rings) == 2 and all(any(path.read_bytes()) for path in rings)
    assert _leaks(tmp_path / "scratch" / "seen") == []
    job.settle()
    assert _leaks(job.run_dir) == [] and _leaks(job.local_dir) == []
    assert not any(secret in (job.stderr + job.stdout) for secret in SECRETS.values())

    document = _manifest(job)
    told = {(row["kind"], row["name"]): row for row in document["artifacts"]}
    _check_seen(told, repository, document)
    assert told["dataset", "c4"]["source"] == "s3://bucket/c4" and told["tokenizer", "llama"]["version"] == "3"
    assert told["dataset", "s3://bucket/imagenet"]["source"] == "option data-path"
    assert document["manifest"]["environment"]["NCCL_DEBUG"] == "WARN"
    assert document["manifest"]["environment"]["TRITON_CACHE_MANAGER"] == "redis://host/0"


def _check_seen(told, repository, document):
    commit = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert told["code", "train.py"]["version"] == commit[:12]
    assert told["code", "train.py"]["source"] == "https://git.example.com/team/repo.git"
    assert document["manifest"]["code"]["commit"] == commit
    assert told["dependency", "torch"]["version"] and told["dependency", "python"]["version"]
    assert told["config", "command line"]["digest"] and told["config", "model.yaml"]["digest"]
    assert told["objective", "perplexity"]
    assert told["topology", "world"]["version"].startswith("2 ranks")
    loaded = [row["name"] for row in document["artifacts"] if row["kind"] == "checkpoint"]
    assert sorted({name.rpartition("/")[2] for name in loaded}) == ["model-0.pt", "model-1.pt", "token=[redacted]"]
    seeds = {(row["name"], row["version"]) for row in document["artifacts"] if row["kind"] == "seed"}
    assert seeds >= {("torch", "1234"), ("random", "99"), ("random", "100")}


def test_the_search_for_secrets_finds_them(tmp_path):
    """The test above can fail: a secret in a packed file is found."""
    pq.write_table(pa.table({"x": [SECRETS["word"]] * 50}), tmp_path / "a.parquet", compression="zstd")
    (tmp_path / "b.journal").write_text(SECRETS["aws"])
    assert set(_leaks(tmp_path)) == {("a.parquet", "word"), ("b.journal", "aws")}
