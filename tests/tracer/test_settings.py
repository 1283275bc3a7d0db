"""Settings: what is right is understood, what is wrong is refused with a text that says the fix."""

import dataclasses
from pathlib import Path

import pytest

from rankscope.hooks.registry import HOOKS, SAMPLERS
from rankscope.schema.errors import SettingsError
from rankscope.tracer import settings as module
from rankscope.tracer.api import is_off
from rankscope.tracer.settings import Settings, from_environment, with_arguments

DEFAULT_HOOKS = {spec.name for spec in (*HOOKS, *SAMPLERS) if spec.default_on}


def test_nothing_set_gives_the_defaults():
    assert from_environment({"PATH": "/bin", "RANKSCOPE_DIR": "  "}) == Settings()
    assert Settings().hooks == DEFAULT_HOOKS


def test_every_variable_is_understood(tmp_path):
    found = from_environment({
        "RANKSCOPE": "1", "RANKSCOPE_DIR": "runs/a", "RANKSCOPE_RUN_ID": "a.b-1", "RANKSCOPE_JOB_ID": "j",
        "RANKSCOPE_OWNER": "o", "RANKSCOPE_PROJECT": "p", "RANKSCOPE_LOCAL_DIR": str(tmp_path),
        "RANKSCOPE_AGENT": "now",
        "RANKSCOPE_HOOKS": "-phases", "RANKSCOPE_SAMPLE_SECONDS": "0.5", "RANKSCOPE_DEVICE_TIMES": "0",
        "RANKSCOPE_KERNELS": "1000:2", "RANKSCOPE_INDICES": "1", "RANKSCOPE_CALIBRATE": "20",
        "RANKSCOPE_CHECKPOINT_DIGESTS": "1",
        "RANKSCOPE_COST_BUDGET": "0",
        "RANKSCOPE_BUDGET_BYTES": "2G", "RANKSCOPE_PATIENCE_SECONDS": "90", "RANKSCOPE_SYSFS": str(tmp_path),
        "RANKSCOPE_PROC": str(tmp_path),
    })  # fmt: skip
    assert found == Settings(
        run_dir=str(Path.cwd() / "runs/a"), run_id="a.b-1", job_id="j", owner="o", project="p", local_dir=str(tmp_path),
        agent="now", hooks=frozenset(DEFAULT_HOOKS - {"phases"}), sample_seconds=0.5, device_times=0, kernels=(1000, 2),
        keep_indices=True, checkpoint_digests=True, calibrate=20, cost_budget=0.0,
        budget_bytes=2 << 30, patience_seconds=90.0,
        sysfs=str(tmp_path), proc=str(tmp_path),
    )  # fmt: skip


def test_every_field_can_be_set():
    reachable = {field for field, _ in module._VARIABLES.values()} | set(module._ARGUMENTS)
    assert reachable == {field.name for field in dataclasses.fields(Settings)}


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("RANKSCOPE", "yes", "use 0 .* or 1"), ("RANKSCOPE_DIR", __file__, "use a folder"),
        ("RANKSCOPE_DIR", "http://x/y", "s3://"), ("RANKSCOPE_DIR", "s3://", "bucket"),
        ("RANKSCOPE_DIR", "s3://key:hunter2@bucket/x", "credentials"), ("RANKSCOPE_DIR", "s3://bucket/x?a=b", "query"),
        ("RANKSCOPE_RUN_ID", "../x", "letters"), ("RANKSCOPE_RUN_ID", "a" * 129, "1 to 128"),
        ("RANKSCOPE_JOB_ID", "a\nb", "printable"), ("RANKSCOPE_LOCAL_DIR", __file__, "use a folder"),
        ("RANKSCOPE_AGENT", "never", "auto, now, thread, off"), ("RANKSCOPE_HOOKS", "stepz", "there are .*steps"),
        ("RANKSCOPE_HOOKS", "-stepz", "stepz"), ("RANKSCOPE_SAMPLE_SECONDS", "0", "greater than 0"),
        ("RANKSCOPE_SAMPLE_SECONDS", "nan", "greater than 0"), ("RANKSCOPE_DEVICE_TIMES", "-1", "at least 0"),
        ("RANKSCOPE_COST_BUDGET", "1.5", "ratio of step time"), ("RANKSCOPE_COST_BUDGET", "no", "ratio"),
        ("RANKSCOPE_DEVICE_TIMES", "1.5", "whole number"), ("RANKSCOPE_KERNELS", "5", "every:steps"),
        ("RANKSCOPE_KERNELS", "5:6", "every:steps"), ("RANKSCOPE_INDICES", "true", "0 .* or 1"),
        ("RANKSCOPE_CALIBRATE", "1", "at least 2"), ("RANKSCOPE_BUDGET_BYTES", "lots", "500M"),
        ("RANKSCOPE_PATIENCE_SECONDS", "x", "greater than 0"), ("RANKSCOPE_SYSFS", "/no/such", "mount point"),
    ],
)  # fmt: skip
def test_a_wrong_variable_says_its_name_and_the_fix(name, value, fix):
    with pytest.raises(SettingsError, match=f"(?s){name} is .*{fix}"):
        from_environment({name: value})


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("layout", {"dp": 0}, "at least 1"), ("layout", {"xp": 2}, "xp"), ("layout", 4, "dict"),
        ("price_per_device_hour", -1, "greater"), ("peak_flops", "fast", "greater"), ("global_batch", 2.5, "whole"),
        ("global_batch", True, "whole"), ("sequence_length", 0, "at least 1"), ("precision", "", "printable"),
        ("artifacts", [{"kind": "dataset"}], "name"), ("artifacts", [{"kind": "x", "name": "y"}], "kind"),
        ("artifacts", [{"kind": "dataset", "name": "y", "size": 1}], "size"), ("hooks", ["nope"], "nope"),
        ("agent", "sometimes", "thread"), ("run_id", 7, "letters"), ("run_dir", 7, ""),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_a_value_error_with_the_fix(name, value, fix):
    with pytest.raises(ValueError, match=f"attach\\({name}=.*{fix}"):
        with_arguments(Settings(), {name: value})


def test_arguments_win_and_none_is_not_set():
    found = with_arguments(
        from_environment({"RANKSCOPE_JOB_ID": "env", "RANKSCOPE_OWNER": "env"}),
        {"job_id": "arg", "owner": None, "layout": {"tp": 2, "dp": 4, "sharding": "fsdp"}, "hooks": "steps"},
    )
    assert (found.job_id, found.owner, found.hooks) == ("arg", "env", frozenset({"steps"}))
    assert found.layout == (("dp", 4), ("tp", 2), ("sharding", "fsdp"))


def test_an_object_store_is_an_address_not_a_path():
    assert from_environment({"RANKSCOPE_DIR": "s3://bucket/run/"}).run_dir == "s3://bucket/run"


def test_off_is_zero_only():
    assert is_off({"RANKSCOPE": "0"}) and not is_off({"RANKSCOPE": "1"}) and not is_off({})
