"""A training with rankscope behaves as one without: same numbers to the last bit, same exit codes, same exceptions.

Each script runs as a bare job (nothing imported) and with `import rankscope.auto`; one also with RANKSCOPE=0. What it
prints to standard output, and how it ends, must be the same.
"""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress

import pytest
from busy import is_asleep

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(1200)]

IMPORT = "import rankscope.auto\n"
OFF = {"RANKSCOPE": "0"}
ON = {"RANKSCOPE_AGENT": "off"}

TRAINING = """
import hashlib, os, sys
import torch
import torch.distributed as dist
from torch import nn

def show(*what):
    # One write a line: two ranks share the launcher's output.
    os.write(1, (" ".join(map(str, what)) + "\\n").encode())

def digest(tensors):
    whole = hashlib.sha256()
    for tensor in tensors:
        tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        whole.update(tensor.detach().contiguous().numpy().tobytes())
    return whole.hexdigest()[:16]

def build():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Linear(4, 16), layer, nn.Linear(16, 1))

def train(model, steps=4, rank=0):
    generator = torch.Generator().manual_seed(rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(steps):
        x = torch.randn(3, 5, 4, generator=generator)
        loss = nn.functional.mse_loss(model(x), x.sum(-1, keepdim=True))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        show(rank, step, loss.item().hex(), norm.item().hex(), digest(p.grad for p in model.parameters()))
        optimizer.step()
        optimizer.zero_grad()
    show(rank, "parameters", digest(model.parameters()), digest([torch.get_rng_state()]))
"""

JOIN = """
dist.init_process_group("gloo")
rank = dist.get_rank()

def meet():
    # Over the store: the launcher ends the other rank as soon as one has failed, so both have to be there.
    store = dist.distributed_c10d._get_default_store()
    store.set(f"met{rank}", "1")
    store.wait(["met0", "met1"])
"""
LEAVE = "dist.destroy_process_group()\n"


@pytest.fixture
def alike(torchrun):
    """`alike(source, nproc)`: the job bare and with rankscope on; asserts that they end alike; returns both results."""

    def run(source, nproc=2):
        source = textwrap.dedent(source)
        bare = torchrun(source, nproc)
        seen = torchrun(IMPORT + source, nproc, env=ON)
        assert bare.returncode == seen.returncode, seen.stderr[-4000:]
        assert sorted(bare.stdout.splitlines()) == sorted(seen.stdout.splitlines())
        assert list(seen.local_dir.rglob("*.journal")), "nothing was recorded with rankscope on"
        return bare, seen

    return run


def _run(alike, body):
    return alike(TRAINING + JOIN + textwrap.dedent(body) + LEAVE)


def test_ddp_is_bit_identical(alike):
    bare, _ = _run(alike, """
        from torch.nn.parallel import DistributedDataParallel
        train(DistributedDataParallel(build()), rank=rank)
    """)  # fmt: skip
    assert bare.returncode == 0 and len(bare.stdout.splitlines()) == 10


def test_switched_off_it_is_not_there(torchrun):
    source = (
        TRAINING
        + JOIN
        + """
from torch.nn.parallel import DistributedDataParallel
train(DistributedDataParallel(build()), rank=rank)
show(sorted(name for name in sys.modules if name.startswith("rankscope.")))
"""
        + LEAVE
    )
    bare, off = torchrun(source, 2), torchrun(IMPORT + source, 2, env=OFF)
    assert off.returncode == 0 and not off.local_dir.exists() and not off.run_dir.exists()
    loaded = "['rankscope.auto']"
    assert sorted(bare.stdout.replace("[]", loaded).splitlines()) == sorted(off.stdout.splitlines())


def test_fsdp2_is_bit_identical(alike):
    bare, _ = _run(alike, """
        from torch.distributed.fsdp import fully_shard
        model = build()
        fully_shard(model[1])
        fully_shard(model)
        train(model, rank=rank)
    """)  # fmt: skip
    assert bare.returncode == 0 and len(bare.stdout.splitlines()) == 10


def test_a_training_without_a_group_is_bit_identical(plain):
    source = TRAINING + "train(build())\nsys.exit(7)\n"
    bare, seen = plain(source), plain(IMPORT + source, env=ON)
    assert bare.stdout == seen.stdout and len(bare.stdout.splitlines()) == 5
    assert bare.returncode == seen.returncode == 7


def test_exceptions_of_collectives_are_the_same(alike):
    """Bad arguments, and a backend that refuses: type, text and chain, on every rank; then it goes on."""
    bare, _ = _run(alike, """
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


def test_an_uncaught_exception_inside_a_collective_ends_alike(alike):
    bare, seen = _run(alike, """
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
def test_the_end_of_the_ranks_is_the_same(alike, end):
    bare, _ = _run(alike, f"dist.all_reduce(torch.ones(1))\nshow(rank)\nmeet()\n{end}\n")
    assert (bare.returncode == 0) == (end == "sys.exit(0)")


def test_operations_pending_at_exit_are_no_trouble(alike):
    bare, seen = _run(alike, """
        works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(50)]
        show(rank, len(works))
        sys.exit(0)
    """)  # fmt: skip
    assert bare.returncode == 0 and "Traceback" not in seen.stderr


def test_a_peer_that_never_comes_is_no_trouble(alike):
    bare, _ = _run(alike, """
        if rank == 0:
            work = dist.all_reduce(torch.ones(1000), async_op=True)
        show(rank)
        sys.exit(0)
    """)  # fmt: skip
    assert bare.returncode == 0


def test_a_second_group_after_the_first_is_the_same(alike):
    _run(alike, """
        from torch.nn.parallel import DistributedDataParallel
        train(DistributedDataParallel(build()), steps=2, rank=rank)
        dist.barrier()
        dist.destroy_process_group()
        # A store of its own: over torchrun's store a second joining may hang, with and without rankscope.
        dist.init_process_group("gloo", init_method="file://" + os.path.abspath("second"), rank=rank, world_size=2)
        train(DistributedDataParallel(build()), steps=2, rank=rank)
    """)  # fmt: skip


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_loader_workers_are_the_same(alike, method):
    source = TRAINING + textwrap.dedent(f"""
        class Squares(torch.utils.data.Dataset):
            def __len__(self):
                return 16

            def __getitem__(self, index):
                return nn.Linear(1, 1)(torch.ones(1)).detach() * 0 + index * index

        def main():
            dist.init_process_group("gloo")
            rank = dist.get_rank()
            loader = torch.utils.data.DataLoader(
                Squares(), batch_size=4, num_workers=2, multiprocessing_context="{method}"
            )
            for _ in range(2):
                for batch in loader:
                    mean = batch.mean()
                    dist.all_reduce(mean)
                    show(rank, batch.flatten().tolist(), mean.item().hex())
            dist.destroy_process_group()

        if __name__ == "__main__":
            main()
    """)
    bare, seen = alike(source)
    assert bare.returncode == 0 and len(bare.stdout.splitlines()) == 16
    assert len(list(seen.local_dir.rglob("*.journal"))) == 2, "a loader worker recorded something"


def test_version_counters_and_graphs_are_the_same(alike):
    """What autograd knows of tensors that were communicated: version counters, and the error of an overwritten one."""
    _run(alike, """
        def versions(name, call, *tensors):
            call()
            show(rank, name, [tensor._version for tensor in tensors])
        a, b, c, parts = torch.ones(4), torch.ones(2), torch.zeros(4), [torch.zeros(2), torch.zeros(2)]
        versions("all_reduce", lambda: dist.all_reduce(a), a)
        versions("async", lambda: dist.all_reduce(a, async_op=True).wait(), a)
        versions("broadcast", lambda: dist.broadcast(a, 0), a)
        versions("reduce", lambda: dist.reduce(a, 0), a)
        versions("all_gather", lambda: dist.all_gather(parts, b), b, *parts)
        versions("all_gather_into_tensor", lambda: dist.all_gather_into_tensor(c, b), b, c)
        versions("reduce_scatter_tensor", lambda: dist.reduce_scatter_tensor(b, c), b, c)
        versions("all_to_all_single", lambda: dist.all_to_all_single(c, a), a, c)
        versions("gather", lambda: dist.gather(b, parts if rank == 0 else None), b, *parts)
        versions("scatter", lambda: dist.scatter(b, parts if rank == 0 else None), b, *parts)
        p2p = (lambda: dist.send(b, 1)) if rank == 0 else (lambda: dist.recv(b, 0))
        versions("p2p", p2p, b)
        for name, overwrite in {
            "all_reduce": lambda t: dist.all_reduce(t),
            "all_gather_into_tensor": lambda t: dist.all_gather_into_tensor(t, torch.ones(2)),
        }.items():
            x, saved = torch.ones(4, requires_grad=True), torch.ones(4)
            product = x * saved
            overwrite(saved)
            try:
                product.sum().backward()
                show(rank, name, x.grad.tolist())
            except RuntimeError as error:
                show(rank, name, "modified" in str(error))
        import torch.distributed._functional_collectives as functional
        y = torch.ones(4, requires_grad=True)
        functional.all_gather_tensor_autograd(y * 2, 0, dist.group.WORLD).sum().backward()
        show(rank, y.grad.tolist())
    """)  # fmt: skip


def test_signal_handlers_are_untouched(alike):
    _run(alike, """
        import signal, faulthandler, threading
        handlers = {n: signal.getsignal(n) for n in range(1, signal.NSIG) if n not in (9, 19, 32, 33)}
        show(rank, {n: str(h) for n, h in handlers.items() if h not in (signal.SIG_DFL, signal.SIG_IGN)})
        show(rank, {n for n, h in handlers.items() if h == signal.SIG_IGN}, faulthandler.is_enabled())
        show(rank, signal.pthread_sigmask(signal.SIG_BLOCK, []), sys.excepthook is sys.__excepthook__)
        show(rank, threading.excepthook is threading.__excepthook__, sys.gettrace(), sys.getprofile())
    """)  # fmt: skip


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


def test_detach_gives_back_the_identical_objects(alike):
    """Also in a whole session: with groups, a loader, training, and what torch loads lazily."""
    source = (
        TRAINING
        + JOIN
        + """
from torch.nn.parallel import DistributedDataParallel
from types import ModuleType

def attributes():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch" and isinstance(module, ModuleType):
            for attribute, value in list(vars(module).items()):
                found[name, attribute] = value
                if isinstance(value, type) and value.__module__ == name:
                    found |= {(name, attribute, inner): held for inner, held in list(vars(value).items())}
                elif isinstance(value, dict) and "hook" in attribute:
                    found |= {(name, attribute, key): held for key, held in value.items()}
    return {key: value for key, value in found.items() if not isinstance(value, int)}

def work():
    train(DistributedDataParallel(build()), steps=2, rank=rank)
    dist.new_group([0, 1])
    torch.compile(build(), backend="eager")(torch.ones(1, 2, 4))

work()
if "rankscope" in sys.modules and os.environ.get("RANKSCOPE") != "0":
    import rankscope
    rankscope.detach()
    bare = attributes()
    rankscope.attach()
    watched = attributes()
    assert [key for key in bare if watched.get(key) is not bare[key]], "attach patched nothing"
else:
    bare = attributes()
work()
if "rankscope" in sys.modules and os.environ.get("RANKSCOPE") != "0":
    rankscope.detach()
after = attributes()
changed = [key for key in bare if key not in after or after[key] is not bare[key]]
show(rank, "changed", changed, sorted(key for key in after.keys() - bare.keys()))
work()
"""
        + LEAVE
    )
    bare, seen = alike(source)
    assert bare.returncode == 0 and "changed [] []" in seen.stdout


def test_a_failing_recorder_is_no_trouble(torchrun):
    """Every write into the ring raises, from the tenth on, in the middle of a training."""
    body = TRAINING + JOIN + textwrap.dedent("""
        from torch.nn.parallel import DistributedDataParallel
        train(DistributedDataParallel(build()), rank=rank)
        dist.all_reduce(torch.ones(2))
    """) + LEAVE  # fmt: skip
    bare = torchrun(body, 2).check()
    prelude = textwrap.dedent("""
        import rankscope.schema.ring as ring
        from rankscope.schema.ring import RingLayout
        num_left = [10]
        def breaking(pack):
            def broken(*values):
                num_left[0] -= 1
                if num_left[0] < 0:
                    raise OSError("the ring is broken")
                return pack(*values)
            return broken
        real = ring.layout
        class Packs:
            def __init__(self, struct): self.size, self.pack, self.format = struct.size, struct.pack, struct.format
        def layout(kind):
            found = real(kind)
            struct = Packs(found.open_struct)
            struct.pack_into = breaking(found.open_struct.pack_into)
            return found._replace(open_struct=struct)
        ring.layout = layout
        import rankscope.hooks.base as base
        base.on_swallow = lambda hook, error: open("swallowed", "a").write(f"{hook} {error}\\n")
    """)
    seen = torchrun(prelude + IMPORT + body, 2, env=ON).check()
    assert sorted(bare.stdout.splitlines()) == sorted(seen.stdout.splitlines())
    noted = (seen.run_dir.parent / "swallowed").read_text()
    assert "the ring is broken" in noted
    assert {line.split(" ", 1)[1] for line in noted.splitlines()} == {"the ring is broken"}
