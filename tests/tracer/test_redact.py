"""Secrets do not reach the manifest; what is none is kept as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.tracer import redact
from rankscope.tracer.redact import HIDDEN


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--api-key", "abc"], ["--api-key", HIDDEN]),
        (["--api_key=abc", "--lr=0.1"], [f"--api_key={HIDDEN}", "--lr=0.1"]),
        (["--wandb-token", "abc", "--steps", "3"], ["--wandb-token", HIDDEN, "--steps", "3"]),
        (["--token", "--fast"], ["--token", "--fast"]),
        (["--password=", "x"], ["--password=", "x"]),
        (["HF_TOKEN=abc", "python"], [f"HF_TOKEN={HIDDEN}", "python"]),
        (["+trainer.logger.api_key=abc"], [f"+trainer.logger.api_key={HIDDEN}"]),
        (["--data", "https://u:p@host/x?sig=1#f"], ["--data", "https://host/x"]),
        (["--data=s3://key:secret@bucket/path"], ["--data=s3://bucket/path"]),
        (["--redis=redis://:pw@cache:6379/0"], ["--redis=redis://cache:6379/0"]),
        (["git@github.com:team/repo.git"], ["github.com:team/repo.git"]),
        (["Authorization: Bearer abc"], [f"Authorization: {HIDDEN}"]),
        (["hf_abcdefghijklmnopqrstuvwx"], [HIDDEN]),
        (["--note=AKIAIOSFODNN7EXAMPLE"], [f"--note={HIDDEN}"]),
        (["wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"], [HIDDEN]),
        (["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"], [HIDDEN]),
    ],
)
def test_secrets_are_taken_out_of_command_lines(given, kept):
    assert redact.command_line(given) == kept


@pytest.mark.parametrize(
    "word",
    [
        "--num-tokens=4096", "--max-tokens", "--tokens-per-batch=8", "--tokenizer=gpt2", "--seq-tokens", "train.py",
        "/data/imagenet/train-00000-of-01024.parquet", "--config=configs/llama3_8b_instruct.yaml", "--lr", "1e-3",
        "/home/someone/checkpoints/step_000010000", "--author=me", "--monkey=1", "--keyframes=2",
        "model.layers.0=frozen",
        "2026-11-30T14:00:00", "--seed=123456789012345678901234", "0123456789abcdef", "rdzv:29500", "localhost:29500",
        "GPU-5f2d9a4e-1c1b-4a1e-9a60-0b8e2f6f1c11", "NCCL_DEBUG=INFO", "--tokenizer-name", "--pad-token-id=0",
    ],
)  # fmt: skip
def test_ordinary_words_stay(word):
    assert redact.command_line([word, "next"]) == [word, "next"]


@pytest.mark.parametrize(
    "name",
    [
        "WANDB_API_KEY",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "EVAL_API_TOKEN",
        "API_TOKENS",
        "NCCL_AUTH",
        "MY_KEY",
    ],
)
def test_variables_with_secret_names_lose_their_value(name):
    assert redact.variable(name, "anything") == HIDDEN


def test_lists_are_redacted_part_by_part():
    assert redact.text("http://u:p@proxy:80,http://proxy2:80") == "http://proxy:80,http://proxy2:80"


def test_an_address_keeps_its_place_only():
    assert redact.address("https://user:pw@git.example.com:8443/a/b.git?x=1") == "https://git.example.com:8443/a/b.git"
    assert redact.address("ssh://git@host/x") == "ssh://host/x"


@given(
    user=st.text("abcxyz0189._-", min_size=1, max_size=20), password=st.text("abcXYZ0189!$", min_size=6, max_size=20)
)
def test_no_password_in_an_address_survives(user, password):
    kept = redact.command_line(["--url", f"https://{user}:{password}@h/p", f"--u=ftp://{user}:{password}@h/p"])
    assert kept == ["--url", "https://h/p", "--u=ftp://h/p"]


@given(st.text(max_size=60))
def test_any_text_can_be_redacted_and_twice_is_once(text):
    once = redact.text(text)
    assert redact.text(once) == once


def test_a_document_is_redacted_in_depth_and_keeps_its_digests():
    row = {
        "source": "s3://k:hunter2@b/x",
        "digest": "0a1b2c3d4e5f" * 5,
        "more": ["--x", {"api_key": "hunter2"}],
        "n": 3,
    }
    assert redact.document({"table": "artifact", "row": row}) == {
        "table": "artifact",
        "row": {"source": "s3://b/x", "digest": "0a1b2c3d4e5f" * 5, "more": ["--x", {"api_key": HIDDEN}], "n": 3},
    }
    assert redact.document({"digest": "hf_abcdefghijklmnopqrstuvwx"}) == {"digest": HIDDEN}
