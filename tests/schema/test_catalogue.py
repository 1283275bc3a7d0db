"""Is every measurement made of columns that exist?"""

import re

from rankscope.schema.catalogue import CATALOGUE
from rankscope.schema.tables import TABLES

NAMES_OF_THE_PAPER = [
    "time.span",
    "time.compute",
    "time.communication",
    "time.exposed_communication",
    "time.exposed_copy",
    "time.idle",
    "ratio.communication_computation",
    "ratio.overlap",
    "ratio.exposed",
    "step.duration",
    "collective.wait",
    "collective.transfer",
    "collective.busbw",
    "collective.algbw",
    "collective.end_skew",
    "network.bytes",
    "network.amplification",
    "straggler.lateness_own",
    "straggler.lateness_inherited",
    "straggler.slowdown",
    "straggler.share_worst_workers",
    "straggler.share_last_stage",
    "straggler.replay_error",
    "pipeline.idle_fraction",
    "pipeline.bubble_fraction",
    "pipeline.ideal_bubble_fraction",
    "pipeline.stage_imbalance",
    "throughput.samples",
    "throughput.tokens",
    "throughput.goodput",
    "efficiency.mfu",
    "efficiency.time_to_target",
    "memory.allocated",
    "memory.peak_reserved",
    "memory.fragmentation",
    "memory.creep",
    "energy.run",
    "energy.step",
    "energy.sample",
    "cost.run",
    "checkpoint.blocking",
    "checkpoint.total",
    "checkpoint.bandwidth",
    "checkpoint.stall_fraction",
    "checkpoint.interval_optimum",
    "recovery.restart",
    "recovery.lost_work",
    "recovery.effective_time_ratio",
    "data.stall_fraction",
    "data.saturation",
    "data.duplicated",
    "data.missing",
    "numerics.nonfinite_steps",
    "numerics.skipped_steps",
    "numerics.spikes",
    "scaling.efficiency",
    "scaling.forecast",
    "scaling.holdout_error",
    "clock.offset",
    "clock.error",
    "capture.coverage",
    "capture.dropped",
    "capture.overhead",
]


def test_every_input_is_a_column() -> None:
    wrong = []
    for entry in CATALOGUE.values():
        assert entry.inputs, entry.name
        for name in entry.inputs:
            table, _, column = name.partition(".")
            if table not in TABLES or column not in TABLES[table].names:
                wrong.append(f"{entry.name}: {name}")
    assert not wrong


def test_the_names_of_the_definitions_are_there() -> None:
    assert [name for name in NAMES_OF_THE_PAPER if name not in CATALOGUE] == []


def test_names_are_dotted_and_definitions_are_one_sentence() -> None:
    for name, entry in CATALOGUE.items():
        assert name == entry.name
        assert re.fullmatch(r"[a-z]+\.[a-z_]+", name)
        assert entry.definition and "\n" not in entry.definition and not entry.definition.endswith(".")


def test_opentelemetry_names_are_those_of_the_conventions_or_ours() -> None:
    for entry in CATALOGUE.values():
        assert not entry.otel or re.match(r"(training|hw|system|process)\.[a-z_.]+$", entry.otel), entry.name
