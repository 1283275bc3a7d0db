"""Which samplers this node's agent runs, and for which ranks.

Chosen by the ranks themselves (RANKSCOPE_HOOKS, or `attach(hooks=...)`, which only a rank knows): a sampler runs if the
first rank that the agent meets wants it. Roots and interval are RANKSCOPE_* variables, which the agent inherits.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rankscope.hooks.registry import SAMPLERS, SamplerSpec
from rankscope.hooks.sampling import LocalProcess, Surroundings
from rankscope.schema.errors import SettingsError
from rankscope.schema.process_rows import PlacedRow
from rankscope.schema.process_state import ProcessState, RunRef

from .identity import pid_namespace
from .sampling_host import LocalRank, SamplerHost
from .settings import Settings, from_environment

DEFAULT_INTERVAL_S: Final = 1.0
"""Between two readings where RANKSCOPE_SAMPLE_SECONDS is not set."""


class NodeSamplers:
    """The samplers of one agent, made when the first living rank is known. proc: the agent's number in `capture`."""

    def __init__(self, proc: int) -> None:
        self._proc, self._is_interval_set = proc, False
        self._host: SamplerHost | None = None
        self._surroundings: Surroundings | None = None

    def look(self, living: Iterable[tuple[RunRef, ProcessState]]) -> None:
        """Take note of the processes that live now, each with the run that it belongs to."""
        found = list(living)
        if self._host is None and found:
            self._begin(found[0][1])
        if self._host is not None and self._surroundings is not None:
            self._host.update(self._surroundings, tuple(LocalRank(run, local_process(state)) for run, state in found))

    def take(self, now_ns: int, is_last: bool = False) -> dict[RunRef, list[PlacedRow]]:
        """What was sampled since the last call, by run."""
        return self._host.take(now_ns, is_last) if self._host is not None else {}

    def pace(self, step_s: float) -> None:
        """Steps of the slowest local rank take so long (seconds; 0 unknown): no more readings than that.

        Only where nobody set the interval: one reading a step, at any moment of it, cannot tell what each step moved.
        """
        if self._host is not None and not self._is_interval_set:
            self._host.step_s = step_s

    def stop(self) -> None:
        """No further readings."""
        if self._host is not None:
            self._host.stop()

    def _begin(self, first: ProcessState) -> None:
        try:
            settings = from_environment(os.environ)
        except SettingsError:  # the ranks took theirs from `attach`, or would not be here
            settings = Settings()
        self._is_interval_set = settings.sample_seconds is not None
        interval_s = settings.sample_seconds or DEFAULT_INTERVAL_S
        host = SamplerHost(chosen(first, settings), interval_s, self._proc)
        self._surroundings = Surroundings(
            first.node, Path(settings.sysfs), Path(settings.proc), host.local_processes
        )  # fmt: skip
        self._host = host


def chosen(first: ProcessState, settings: Settings) -> list[SamplerSpec]:
    """The samplers that `first` wants; those of `settings` where its journal does not say (older versions)."""
    told = first.process.get("samplers")
    names = set(told) if isinstance(told, list) else settings.hooks
    return [spec for spec in SAMPLERS if spec.name in names]


def local_process(state: ProcessState) -> LocalProcess:
    """What samplers are told of a process: by its last join, and where its pid means something here."""
    known, join = state.process, state.joins[-1] if state.joins else None
    rank = join.rank if join is not None and join.rank is not None else known.get("rank")
    is_here = known.get("pid_namespace") in (None, pid_namespace())
    return LocalProcess(
        proc=state.proc, rank=rank, incarnation=join.incarnation if join is not None else 0,
        pid=known.get("pid") if is_here else None, numa_nodes=tuple(known.get("numa_nodes") or ()),
        pci_bus_id=known.get("pci_bus_id"), local_rank=known.get("local_rank"),
        visible_devices=known.get("visible_devices"), device_order=known.get("device_order"),
        device_index=known.get("device_index"),
    )  # fmt: skip
