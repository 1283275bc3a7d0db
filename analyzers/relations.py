"""What a part computes beside its views, because the order of rows matters: a sort in SQL would cost ten times as much.

Each function offers relations to the part's statements; `Partial.relations` names those that a statement reads.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from .clock_part import COLUMNS as CLOCKS
from .part import Part
from .sampled_part import COLUMNS as SAMPLED


def _gaps(part: Part) -> None:
    from .sequence_gaps import offer_gaps

    offer_gaps(part)


def _profile(part: Part) -> None:
    from .profile_part import offer_profile

    offer_profile(part)


def _spans(part: Part) -> None:
    from .profile_part import offer_spans

    offer_spans(part)


def _stages(part: Part) -> None:
    from .profile_part import offer_stages

    offer_stages(part)


def _steps(part: Part) -> None:
    from .profile_part import offer_steps

    offer_steps(part)


def _stall(part: Part) -> None:
    from .stall_part import offer_stall

    offer_stall(part)


def _waits(part: Part) -> None:
    from .unions import offer_waits

    offer_waits(part)


def _phases(part: Part) -> None:
    from .unions import offer_phases

    offer_phases(part)


def _durations(part: Part) -> None:
    from .unions import offer_durations

    offer_durations(part)


def _live(part: Part) -> None:
    from .live_time import offer_live

    offer_live(part)


def _clock_rows(part: Part) -> None:
    from .clock_part import offer_clock_rows

    offer_clock_rows(part)


def _sampled(part: Part) -> None:
    from .sampled_part import offer_sampled

    offer_sampled(part)


COLUMNS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "part_gaps": {"collective": ("proc", "group_id", "seq", "src", "dst", "tag", "tier")},
    "part_waits": {"collective": ("proc", "step", "wait_begin_ns", "wait_end_ns")},
    "part_phases": {"span": ("proc", "rank", "step", "kind", "name", "start_ns", "end_ns")},
    "part_durations": {
        "collective": ("group_id", "op", "issued_ns", "completed_ns", "wait_begin_ns", "wait_end_ns"),
    },
    "part_profile": {
        "collective": (
            "proc", "rank", "record", "group_id", "op", "seq", "src", "dst", "tier", "state", "phase", "timing_source",
            "bytes_in", "issued_ns", "completed_ns", "wait_begin_ns", "wait_end_ns", "stage", "role",
        ),
    },
    "part_spans": {"span": ("proc", "record", "kind", "start_ns", "end_ns")},
    "part_stages": {"span": ("stage",)},
    "part_steps": {},
    "part_stall": {
        "span": ("proc", "rank", "kind", "start_ns", "end_ns"), "sample_batch": ("proc", "rank", "time_ns", "wait_ns"),
    },
    "part_sampled": {"collective": SAMPLED},
    "clock_row": {"collective": CLOCKS},
    "part_live": {
        "collective": (
            "proc", "issued_ns", "completed_ns", "wait_begin_ns", "wait_end_ns", "wait_device_start_ns",
            "wait_device_end_ns", "device_start_ns", "device_end_ns",
        ),
        "span": ("proc", "kind", "start_ns", "end_ns"),
    },
}  # fmt: skip
"""What each function reads, by table."""
RELATIONS: Final[dict[str, Callable[[Part], None]]] = {
    "part_gaps": _gaps,
    "part_waits": _waits,
    "part_phases": _phases,
    "part_live": _live,
    "part_durations": _durations,
    "part_profile": _profile,
    "part_spans": _spans,
    "part_stages": _stages,
    "part_steps": _steps,
    "part_stall": _stall,
    "part_sampled": _sampled,
    "clock_row": _clock_rows,
}
"""By the first of the relations that the function offers."""


def offer(part: Part, names: Iterable[str]) -> None:
    """Offer the relations of `names`, reading each column once."""
    chosen = list(dict.fromkeys(names))
    wanted: dict[str, dict[str, None]] = defaultdict(dict)
    for name in chosen:
        for table, columns in COLUMNS[name].items():
            wanted[table] |= dict.fromkeys(columns)
    part.expect({table: tuple(columns) for table, columns in wanted.items()})
    for name in chosen:
        RELATIONS[name](part)
