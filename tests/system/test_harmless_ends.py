"""A job with rankscope ends as one without: same exit codes, same exceptions, same signals.

Each script runs as a bare job and with `import rankscope.auto`.
"""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress

import pytest
from bare_and_seen import IMPORT, JOIN, ON, TRAINING, alike_in_ranks
from busy import is_asleep

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(1200)]


def test_exceptions_of_collectives_are_the_same(torchrun):
    """Bad arguments, and a backend that refuses: type, text and chain, on every rank; then it goes on."""
    bare, _ = alike_in_ranks(torchrun, """
        def attempt(call):
            try:
                call()
                show(rank, "no error")
            except Exception as error:
                text = str(error).splitlines()[0].split("] ")[-1]  # without the time of the check that failed
                show(rank, type(error).__module__, type(error).__name__, text, error.__cause__, error.__context__)
        attempt(lambda: dist.all_reduce("text"))
        attempt(lambda: dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(2)))
        attempt(lambda: dist.all_gather([torch.zeros(2)], torch.zeros(2)))
        attempt(lambda: dist.reduce_scatter_tensor(torch.zeros(2), torch.zeros(3)))
        attempt(lambda: dist.broadcast(torch.zeros(2), src=9))
        attempt(lambda: dist.send(torch.zeros(2), rank))
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        show(rank, tensor.tolist())
    """)  # fmt: skip
    assert len(bare.stdout.splitlines()) == 14 and bare.stdout.count("no error") == 0


def test_an_uncaught_exception_inside_a_collective_ends_alike(torchrun):
    bare, seen = alike_in_ranks(torchrun, """
        if rank == 0:
            dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(2))
        dist.all_reduce(torch.ones(2))
    """)  # fmt: skip
    assert bare.returncode == 1
    assert ("invalid tensor size" in bare.stderr) == ("invalid tensor size" in seen.stderr) is True


def test_sizes_that_differ_between_ranks_end_alike(torchrun):
    """Gloo ends the rank that is sent too much; whether its peer succeeds is a race, with and without rankscope."""
    source = TRAINING + JOIN + textwrap.dedent("""
        tensor = torch.ones(2 + 2 * rank)
        dist.all_gather([torch.zeros(2 + 2 * rank) for _ in range(2)], tensor)
        show(rank, "no error")
        import time
        time.sleep(30)
    """)  # fmt: skip
    for job in (torchrun(source, 2), torchrun(IMPORT + source, 2, env=ON)):
        assert job.returncode == 1 and "0 no error" not in job.stdout
        assert "Received data size doesn't match expected size" in job.stderr
        assert "(SIGABRT)" in job.stderr and "local_rank: 0" in job.stderr


@pytest.mark.parametrize("end", ["os._exit(5)", "sys.exit(6)", "raise SystemExit", "os.kill(os.getpid(), 9)"])
def test_the_end_of_one_process_is_the_same(plain, end):
    source = TRAINING + "train(build(), steps=1)\n" + end + "\n"
    bare, seen = plain(source), plain(IMPORT + source, env=ON)
    assert bare.returncode == seen.returncode and bare.stdout == seen.stdout


@pytest.mark.parametrize("end", ["os._exit(5)", "sys.exit(6)", "sys.exit(0)"])
def test_the_end_of_the_ranks_is_the_same(torchrun, end):
    bare, _ = alike_in_ranks(torchrun, f"dist.all_reduce(torch.ones(1))\nshow(rank)\nmeet()\n{end}\n")
    assert (bare.returncode == 0) == (end == "sys.exit(0)")


def test_operations_pending_at_exit_are_no_trouble(torchrun):
    bare, seen = alike_in_ranks(torchrun, """
        works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(50)]
        show(rank, len(works))
        sys.exit(0)
    """)  # fmt: skip
    assert bare.returncode == 0 and "Traceback" not in seen.stderr


def test_a_peer_that_never_comes_is_no_trouble(torchrun):
    bare, _ = alike_in_ranks(torchrun, """
        if rank == 0:
            work = dist.all_reduce(torch.ones(1000), async_op=True)
        show(rank)
        sys.exit(0)
    """)  # fmt: skip
    assert bare.returncode == 0


def test_ctrl_c_ends_alike(jobs):
    """SIGINT to the launcher's whole group, as a terminal sends it, in the middle of a collective that cannot end."""
    body = (
        TRAINING
        + JOIN
        + textwrap.dedent("""
        with open(f"ready{rank}.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(f"ready{rank}.new", f"ready{rank}")
        try:
            if rank == 0:
                dist.all_reduce(torch.ones(2))
            import time
            time.sleep(60)
        except KeyboardInterrupt:
            open(f"interrupted{rank}", "w").close()
            raise
    """)
    )
    ends = [_interrupt(jobs, source, env) for source, env in ((body, None), (IMPORT + body, ON))]
    assert ends[0] == ends[1]
    assert ends[0][0] != 0


def _interrupt(jobs, source, env):
    place = jobs.place()
    script = jobs.script(source, place)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    with (place / "err").open("wb") as err:
        process = subprocess.Popen(
            command, env=jobs.environment(place, env), cwd=place, stdout=err, stderr=err, start_new_session=True
        )
    try:
        _until(lambda: all((place / f"ready{rank}").exists() for rank in range(2)), process)
        _until(lambda: _waits(int((place / "ready0").read_text())), process)  # in its collective
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(60)
    finally:
        _kill(process)
    return code, sorted(path.name for path in place.glob("interrupted*"))


def _waits(pid):
    """It did not ask for a CPU for half a second."""
    for _ in range(10):
        if not is_asleep(pid):
            return False
        time.sleep(0.05)
    return True


def _until(is_true, process, seconds=60):
    deadline = time.monotonic() + seconds
    while not is_true():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


def _kill(process):
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
