"""Who is a rank under `rankscope run`: by command line, by its ancestor's claim, by what a launcher gave."""

import pytest

from rankscope.tracer.rank_or_not import CLAIM, is_launcher, is_rank, leave_claim

TRAIN = ["python", "train.py"]
SPAWNED = ["python", "-c", "from multiprocessing.spawn import spawn_main; ...", "--multiprocessing-fork"]
TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "LOCAL_RANK": "1"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["python", "/venv/bin/torchrun", "train.py"],
        ["python", "-m", "torch.distributed.run", "train.py"],
        ["python", "-um", "torch.distributed.launch"],
        ["python", "/venv/bin/accelerate", "launch", "train.py"],
        ["python", "-m", "accelerate.commands.launch", "train.py"],
        ["python", "-u", "-m", "deepspeed.launcher.launch", "train.py"],
        ["python", "-m", "pip", "install", "torch"],
        ["python", "/venv/torch/_inductor/compile_worker/__main__.py"],
        ["python", "-m", "rankscope.tracer.agent", "--folder", "x"],
    ],
)
def test_launchers_and_servants(arguments):
    assert is_launcher(arguments)
    assert not is_rank({}, arguments, 1, False)


@pytest.mark.parametrize("arguments", [TRAIN, SPAWNED, ["python", "-m", "torchrun_like"], ["python"], ["python", "-"]])
def test_what_is_no_launcher(arguments):
    assert not is_launcher(arguments)


def test_children_of_a_rank():
    environment = dict(TORCHRUN)
    assert is_rank(environment, TRAIN, 10, False)
    leave_claim(environment, 10)
    assert is_rank(environment, TRAIN, 10, False)  # after an exec
    assert not is_rank(environment, ["python", "helper.py"], 11, False)
    assert not is_rank(environment, SPAWNED, 12, True)  # a loader's worker
    assert is_rank({**environment, "RANK": "2"}, TRAIN, 13, False)  # a launcher gave it another rank


def test_children_of_a_script_that_nobody_launched():
    environment: dict[str, str] = {}
    leave_claim(environment, 10)
    assert is_rank(environment, SPAWNED, 11, True)  # mp.spawn
    assert not is_rank(environment, ["python", "helper.py"], 11, False)
    assert is_rank({**environment, **TORCHRUN}, TRAIN, 11, False)  # the script was a launcher of its own kind
    assert environment == {CLAIM: "10 "}
