"""A training with rankscope behaves as one without: same numbers to the last bit, and nothing of torch is left changed.

Each script runs as a bare job and with `import rankscope.auto`; one also with RANKSCOPE=0. How jobs end is in
`test_harmless_ends`.
"""

import textwrap

import pytest
from bare_and_seen import IMPORT, JOIN, LEAVE, OFF, ON, TRAINING, alike, alike_in_ranks

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(1200)]


def test_ddp_is_bit_identical(torchrun):
    bare, _ = alike_in_ranks(torchrun, """
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


def test_fsdp2_is_bit_identical(torchrun):
    bare, _ = alike_in_ranks(torchrun, """
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


def test_a_second_group_after_the_first_is_the_same(torchrun):
    alike_in_ranks(torchrun, """
        from torch.nn.parallel import DistributedDataParallel
        train(DistributedDataParallel(build()), steps=2, rank=rank)
        dist.barrier()
        dist.destroy_process_group()
        # A store of its own: over torchrun's store a second joining may hang, with and without rankscope.
        dist.init_process_group("gloo", init_method="file://" + os.path.abspath("second"), rank=rank, world_size=2)
        train(DistributedDataParallel(build()), steps=2, rank=rank)
    """)  # fmt: skip


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_loader_workers_are_the_same(torchrun, method):
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
    bare, seen = alike(torchrun, source)
    assert bare.returncode == 0 and len(bare.stdout.splitlines()) == 16
    assert len(list(seen.local_dir.rglob("*.journal"))) == 2, "a loader worker recorded something"


def test_version_counters_and_graphs_are_the_same(torchrun):
    """What autograd knows of tensors that were communicated: version counters, and the error of an overwritten one."""
    alike_in_ranks(torchrun, """
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


def test_signal_handlers_are_untouched(torchrun):
    alike_in_ranks(torchrun, """
        import signal, faulthandler, threading
        handlers = {n: signal.getsignal(n) for n in range(1, signal.NSIG) if n not in (9, 19, 32, 33)}
        show(rank, {n: str(h) for n, h in handlers.items() if h not in (signal.SIG_DFL, signal.SIG_IGN)})
        show(rank, {n for n, h in handlers.items() if h == signal.SIG_IGN}, faulthandler.is_enabled())
        show(rank, signal.pthread_sigmask(signal.SIG_BLOCK, []), sys.excepthook is sys.__excepthook__)
        show(rank, threading.excepthook is threading.__excepthook__, sys.gettrace(), sys.getprofile())
    """)  # fmt: skip


def test_detach_gives_back_the_identical_objects(torchrun):
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
    bare, seen = alike(torchrun, source)
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
