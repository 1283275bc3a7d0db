"""Throughput, MFU, goodput, energy and cost by hand; what lacks an input is none with a reason."""

from pathlib import Path
from typing import Any

import pytest
from run_builder import NODE, RunBuilder

from rankscope.analyzers.data_coordinates import data_coordinates
from rankscope.analyzers.efficiency import Efficiency, Target, efficiency
from rankscope.analyzers.peaks import peak_of
from rankscope.analyzers.run import Run
from rankscope.schema.measurement import Measurement

MS = 1_000_000
NUM_STEPS = 21
"""The first is left out; each takes 100 ms."""


def built(root: Path, ranks: int = 2, samples: int | None = 8, groups: Any = (), **told: Any) -> RunBuilder:
    """Steps of 100 ms, `samples` of each rank; `told` are columns of table run."""
    builder = RunBuilder(root, "run-1", ranks)
    for rank in range(ranks):
        for step in range(NUM_STEPS):
            end = (step + 1) * 100 * MS
            builder.fact("step", rank, step=step, start_ns=end - 100 * MS, end_ns=end, boundary="explicit",
                         samples=samples, tokens=None if samples is None else 10 * samples)  # fmt: skip
            builder.fact("metric", rank, step=step, time_ns=end, name="loss", value=3.0 - 0.1 * step)
    builder.entities()
    builder.rows["run", None][-1].update(told)
    for number, (members, dimension) in enumerate(groups):
        builder.group(f"group-{number}", members, dimension)
    return builder


def answer(builder: RunBuilder, *targets: str) -> Efficiency:
    builder.seal()
    with Run.open(str(builder.root)) as run:
        return efficiency(run, 1.0, tuple(Target.parse(text) for text in targets))


def value(found: Efficiency, name: str) -> Measurement:
    return next(item for item in found.measurements if item.name == name)


def test_throughput_and_goodput_by_hand(tmp_path: Path) -> None:
    found = answer(built(tmp_path / "run"))
    assert value(found, "throughput.samples").value == pytest.approx(2 * 8 / 0.1)
    assert value(found, "throughput.tokens").value == pytest.approx(20 * 8 / 0.1)
    assert value(found, "throughput.goodput").value == pytest.approx(20 * 8 / 0.1)
    assert value(found, "throughput.samples").n == NUM_STEPS - 1


def test_ranks_of_one_tensor_group_count_once(tmp_path: Path) -> None:
    groups = (([0, 1], "tp"), ([2, 3], "tp"))
    assert value(answer(built(tmp_path / "run", 4, groups=groups)), "throughput.samples").value == pytest.approx(160)


def test_an_unknown_group_makes_throughput_none(tmp_path: Path) -> None:
    found = value(answer(built(tmp_path / "run", 4, groups=(([0, 1], None),))), "throughput.samples")
    assert found.value is None
    assert "no known mesh dimension" in found.reason


def test_a_declared_layout_decides(tmp_path: Path) -> None:
    builder = built(tmp_path / "run", 4, groups=(([0, 1], None),), dp=4)
    builder.seal()
    with Run.open(str(builder.root)) as run:
        assert data_coordinates(run).num == 4


@pytest.mark.parametrize("broken_off", [1, 6])
def test_a_run_that_breaks_off_counts_the_steps_that_all_ranks_ended(tmp_path: Path, broken_off: int) -> None:
    builder = built(tmp_path / "run")
    rows = builder.rows["step", 0]
    rows[:] = [row for row in rows if row["rank"] == 0 or row["step"] < NUM_STEPS - broken_off]
    found = answer(builder)
    samples = value(found, "throughput.samples")
    assert samples.value == pytest.approx(160)
    assert samples.n == NUM_STEPS - 1 - broken_off
    assert "not ended by all" in samples.provenance.left_out


def test_samples_that_only_the_loaders_tell(tmp_path: Path) -> None:
    builder = built(tmp_path / "run", samples=None)
    for rank in (0, 1):
        for step in range(NUM_STEPS):
            builder.fact("sample_batch", rank, step=step, time_ns=step * 100 * MS, num_samples=6)
    found = answer(builder)
    assert value(found, "throughput.samples").value == pytest.approx(120)
    assert "samples that the loaders handed over" in value(found, "throughput.samples").provenance.caveats
    assert "nobody tells the tokens" in value(found, "throughput.tokens").reason
    why = "observing every batch would cost 5.0% of ..., the budget is 0.01: one batch in 2 until the epoch ends"
    builder = built(tmp_path / "thinned", samples=None)
    for rank in (0, 1):
        builder.fact("capture", rank, time_ns=MS, hook="data_loading", is_on=True, why=why)
        for step in range(NUM_STEPS):
            builder.fact("sample_batch", rank, step=step, time_ns=step * 100 * MS, num_samples=6)
    assert "observing every batch was too dear" in value(answer(builder), "throughput.samples").reason


def test_samples_that_some_ranks_tell_are_no_silence(tmp_path: Path) -> None:
    builder = built(tmp_path / "run")
    for row in builder.rows["step", 0]:
        if row["rank"] == 1 and row["step"] == 5:
            row["samples"] = None
    reason = value(answer(builder), "throughput.samples").reason
    assert reason == "not every data coordinate tells the samples of every counted step, so their sum is not known"


def test_a_lost_node_does_not_halve_the_job(tmp_path: Path) -> None:
    """Two of four ranks left rows: their samples are not those of the job, but its devices and their price are four."""
    lost = answer(built(tmp_path / "lost", world_size=4, flops_per_sample=1e9, peak_flops=1e12,
                        price_per_device_hour=2.0))  # fmt: skip
    for name in ("throughput.samples", "throughput.goodput", "efficiency.mfu"):
        assert value(lost, name).value is None
        assert "2 of 4 ranks left no row" in value(lost, name).reason
    assert value(lost, "cost.run").value == pytest.approx(4 * NUM_STEPS * 0.1 / 3600 * 2.0)
    told = answer(built(tmp_path / "told", world_size=4, global_batch=32, flops_per_sample=1e9, peak_flops=1e12))
    assert value(told, "throughput.samples").value == pytest.approx(320)
    assert value(told, "efficiency.mfu").value == pytest.approx(320 * 1e9 / (4 * 1e12))


def test_samples_are_those_of_the_declared_batch_where_nobody_tells(tmp_path: Path) -> None:
    found = answer(built(tmp_path / "run", samples=None, global_batch=32, sequence_length=100))
    assert value(found, "throughput.samples").value == pytest.approx(320)
    assert value(found, "throughput.tokens").value == pytest.approx(32_000)
    silent = value(answer(built(tmp_path / "silent", samples=None)), "throughput.samples")
    assert silent.value is None
    assert "rankscope.step(samples=...)" in silent.reason


def test_mfu_by_hand_and_refused_above_one(tmp_path: Path) -> None:
    found = answer(built(tmp_path / "run", flops_per_token=6e9, flops_source="declared", peak_flops=1e13))
    assert value(found, "efficiency.mfu").value == pytest.approx(1600 * 6e9 / (2 * 1e13))
    assert "1,600 tokens/s" in found.formula
    refused = value(answer(built(tmp_path / "much", flops_per_token=6e9, peak_flops=1e12)), "efficiency.mfu")
    assert refused.value is None
    assert "above 1" in refused.reason


def test_counted_recomputation_is_called_hfu(tmp_path: Path) -> None:
    told: dict[str, Any] = {
        "flops_per_sample": 1e9,
        "flops_source": "counted",
        "peak_flops": 1e13,
        "activation_checkpointing": "full",
    }
    assert answer(built(tmp_path / "run", **told)).utilisation_name == "HFU"


@pytest.mark.parametrize(
    ("told", "missing"),
    [
        ({"peak_flops": 1e13}, "FLOPs"),
        ({"flops_per_token": 1e9}, "peak"),
        ({"flops_per_token": 1e9, "peak_flops": 1e13, "samples": None}, "nobody tells the samples"),
    ],
)
def test_mfu_without_an_input_says_which(tmp_path: Path, told: dict[str, Any], missing: str) -> None:
    found = value(answer(built(tmp_path / "run", **told)), "efficiency.mfu")
    assert found.value is None
    assert missing in found.reason


@pytest.mark.parametrize("is_numbered", [True, False])
def test_goodput_after_a_restart(tmp_path: Path, is_numbered: bool) -> None:
    """Steps 0..20, then 11..31 again: 32 different ones, if the job numbers them."""
    builder = built(tmp_path / "run", ranks=1)
    for (table, _), rows in builder.rows.items():
        for row in rows if table == "step" else ():
            row["global_step"] = row["step"] if is_numbered else None
    for step in range(NUM_STEPS):
        end = (NUM_STEPS + step + 1) * 100 * MS
        builder.fact("step", 0, 1, step=step, start_ns=end - 100 * MS, end_ns=end, boundary="explicit", samples=8,
                     tokens=80, global_step=step + 11 if is_numbered else None)  # fmt: skip
    builder.entities(incarnation=1)
    found = value(answer(builder), "throughput.goodput")
    num = 32 if is_numbered else 2 * NUM_STEPS
    assert found.value == pytest.approx(80 * num / (2 * NUM_STEPS * 0.1))
    assert ("10 were done again" in found.provenance.caveats) == is_numbered
    assert any("at most: which steps were done again" in text for text in found.provenance.caveats) != is_numbered


def test_what_is_declared_as_no_number_is_not_declared(tmp_path: Path) -> None:
    told: dict[str, Any] = {
        "flops_per_sample": float("nan"),
        "peak_flops": float("inf"),
        "price_per_device_hour": float("nan"),
    }
    found = answer(built(tmp_path / "run", **told))
    assert "nobody tells the model's FLOPs" in value(found, "efficiency.mfu").reason
    assert "nobody tells the peak" in value(found, "efficiency.mfu").reason
    assert "no price is declared" in value(found, "cost.run").reason


def test_mfu_does_not_ask_for_tokens_where_samples_are_known(tmp_path: Path) -> None:
    builder = built(tmp_path / "run", peak_flops=1e13)
    for (table, _), rows in builder.rows.items():
        for row in rows if table == "step" else ():
            row["tokens"] = None
    reason = value(answer(builder), "efficiency.mfu").reason
    assert reason.startswith("nobody tells the model's FLOPs") and "tokens of a step" not in reason


def test_the_peak_comes_from_the_name_of_the_device(tmp_path: Path) -> None:
    builder = built(tmp_path / "run", flops_per_token=6e9, precision="bf16")
    builder.add("device", device_uuid="GPU-1", node=NODE, name="NVIDIA H100 80GB HBM3")
    found = answer(builder)
    assert value(found, "efficiency.mfu").value == pytest.approx(1600 * 6e9 / (2 * 989.4e12))
    assert peak_of("NVIDIA H100 PCIe") == 756e12
    assert peak_of("NVIDIA H1000") is None


def test_cost_and_energy_by_hand(tmp_path: Path) -> None:
    builder = built(tmp_path / "run", price_per_device_hour=2.0)
    for reading in range(3):
        builder.add("device_sample", 0, node=NODE, device_uuid="GPU-1", time_ns=reading * 1000 * MS,
                    energy_joules=100.0 + 420.0 * reading)  # fmt: skip
    builder.add("device", device_uuid="GPU-1", node=NODE, name="a GPU")
    found = answer(builder)
    assert value(found, "cost.run").value == pytest.approx(2 * NUM_STEPS * 0.1 / 3600 * 2.0)
    assert value(found, "energy.step").value == pytest.approx(840 / NUM_STEPS)
    assert value(found, "energy.sample").value == pytest.approx(840 / NUM_STEPS / 16)


def test_without_price_and_devices_cost_and_energy_are_none(tmp_path: Path) -> None:
    found = answer(built(tmp_path / "run"))
    assert value(found, "cost.run").value is None
    assert "price" in value(found, "cost.run").reason
    assert value(found, "energy.sample").reason == "no device was sampled"


def test_time_to_a_target(tmp_path: Path) -> None:
    found = answer(built(tmp_path / "run"), "loss <= 2.05", "loss<=0", "accuracy>=1")
    reached, never, unknown = found.targets
    assert reached.value == 11 * 100 * MS, "step 10 has 2.0"
    assert never.value is None and "not reached" in never.reason
    assert unknown.value is None and "no metric accuracy" in unknown.reason
    for text in ("loss", "loss<=1e999", "loss<=-", "<=2", "loss<=nan"):
        with pytest.raises(ValueError, match="METRIC<=VALUE"):
            Target.parse(text)


@pytest.mark.parametrize(
    ("logged", "target", "expected"),
    [
        (float("nan"), "x<=1", None),
        (3e-10, "x<=1e-10", None),
        (3e-10, "x<=4e-10", 100 * MS),
        (2e13, "x>=1e13", 100 * MS),
    ],
)
def test_targets_of_numbers_that_are_small_or_large_or_none(
    tmp_path: Path, logged: float, target: str, expected: int | None
) -> None:
    builder = built(tmp_path / "run")
    for rank in (0, 1):
        builder.fact("metric", rank, step=0, time_ns=100 * MS, name="x", value=logged)
    (found,) = answer(builder, target).targets
    assert found.value == expected
    assert logged == logged or found.reason == "none of the 2 values of x is a number"
