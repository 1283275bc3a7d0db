"""Where the time went, on a terminal; nothing is computed here."""

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rankscope.analyzers.timeline import CUDA_HOST, DEVICE, HOST, PARTS, NameTime, Timeline, Times

from .tables import FittingTable, new_table
from .words import NONE, bar, count, duration, share

if TYPE_CHECKING:
    from rankscope.analyzers.exposure_parts import Exposure

MAX_NAMES: Final = 4
MAX_SUSPECTS: Final = 5
NAME_COLUMNS: Final = 72
BAR_COLUMNS: Final = 24
_DRAWING: Final = "█ compute ▓ comm.\n▒ copies ░ other · idle"
_SPARE: Final = (_DRAWING, "comm./compute", "overlap", "other", "exposed\ncopies")
"""What a narrow terminal has no room for, the first first."""
_LETTERS: Final = dict(zip(PARTS, "█▓▒░·", strict=True))
_COLUMNS: Final = {
    DEVICE: ("time.span", *PARTS, "ratio.overlap", "ratio.communication_computation"),
    HOST: ("time.span", "time.compute", "time.host_wait", "time.exposed_other", "time.communication", "ratio.overlap",
           "ratio.communication_computation"),
    CUDA_HOST: ("time.span", "time.host_wait", "time.communication", "time.exposed_communication", "time.compute"),
}  # fmt: skip
_HEADERS: Final = {
    "time.span": "span", "time.compute": "compute", "time.exposed_communication": "exposed\ncomm.",
    "time.exposed_copy": "exposed\ncopies", "time.exposed_other": "other", "time.idle": "idle",
    "time.host_wait": "host-visible\nwaits", "time.communication": "communication", "ratio.overlap": "overlap",
    "ratio.communication_computation": "comm./compute",
}  # fmt: skip
_NOTES: Final = {
    DEVICE: "device timeline, from first to last activity; exposed: while the device does nothing before it here",
    HOST: "counted steps, as the host saw them: compute is forward, backward and optimizer without the waits in them",
    CUDA_HOST: "counted steps of a CUDA job: host times say when work was launched, not when it ran",
}  # fmt: skip


def time_section(found: Times, shared: "Exposure | None" = None) -> RenderableType:
    """A table of the ranks, what communication is made of, what counted as what, and the names that deserve a look."""
    if not found.timelines:
        return Text(f"{NONE}  {found.reason}")
    parts: list[RenderableType] = []
    for kind in (DEVICE, HOST, CUDA_HOST):
        chosen = [timeline for timeline in found.timelines if timeline.kind == kind]
        if chosen:
            parts += [_ranks(kind, chosen), Text(_NOTES[kind], style="dim"), *_reasons(chosen)]
    if shared is not None and shared.parts:
        parts += [Text(""), *_shared(shared)]
    if found.names:
        parts += [Text(""), _names(found.names)]
    return Group(*parts, *_suspects(found.suspects))


def _ranks(kind: str, timelines: list[Timeline]) -> RenderableType:
    columns = _COLUMNS[kind]
    table = FittingTable(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", show_edge=False)
    table.spare = _SPARE
    starts = sorted({line.incarnation for line in timelines})
    has_devices = any("device" in line.measurements["time.span"].scope for line in timelines)
    about = ["rank", *(["start"] if len(starts) > 1 else []), *(["device"] if has_devices else [])]
    for header in (*about, *(_HEADERS[name] for name in columns)):
        table.add_column(header, justify="left" if header == "device" else "right", no_wrap=True)
    if kind == DEVICE:
        table.add_column(_DRAWING, no_wrap=True)
    for line in timelines:
        cells = [NONE if line.rank is None else str(line.rank)]
        cells += [str(starts.index(line.incarnation) + 1)] if len(starts) > 1 else []
        cells += [line.device] if has_devices else []
        cells += [_cell(line, name) for name in columns]
        table.add_row(*cells, *([_bar(line)] if kind == DEVICE else []))
    return table


def _cell(line: Timeline, name: str) -> str:
    value = line.value(name)
    if value is None or name == "time.span":
        return duration(value)
    if name == "ratio.communication_computation":
        return f"{value:.3f}"
    if name == "ratio.overlap":
        return share(value)
    span = line.value("time.span")
    return f"{duration(value)} {share(value / span)}" if span else duration(value)


def _bar(line: Timeline) -> str:
    span = line.value("time.span") or 1
    text, at, drawn = "", 0.0, 0
    for name in PARTS:
        at += (line.value(name) or 0) / span * BAR_COLUMNS
        text += _LETTERS[name] * (round(at) - drawn)
        drawn = max(drawn, round(at))
    return text


def _reasons(timelines: list[Timeline]) -> list[Text]:
    """Why numbers are missing, and what those that are there hold too much, each once."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in timelines:
        for name, item in line.measurements.items():
            if item.value is None and _HEADERS.get(name) and _one_line(name) not in found[item.reason]:
                found[item.reason].append(_one_line(name))
    notes = [f"{NONE} {', '.join(names)}: {reason}" for reason, names in found.items()]
    caveats = {text for line in timelines for text in line.measurements["time.span"].provenance.caveats}
    return [Text(note, style="dim") for note in (*notes, *sorted(caveats))]


def _one_line(name: str) -> str:
    return _HEADERS[name].replace("\n", " ")


def _shared(shared: "Exposure") -> list[RenderableType]:
    """Communication by mesh dimension and operation, over all ranks; bars are of what is exposed, or waited for."""
    from rankscope.analyzers.exposure_parts import COMMUNICATION, EXPOSED, WAIT

    talking, exposed = shared.by_kind(COMMUNICATION), shared.by_kind(EXPOSED)
    kept_up, header = (exposed, _HEADERS["time.exposed_communication"]) if exposed else (
        shared.by_kind(WAIT), _one_line("time.host_wait"))  # fmt: skip
    table = new_table("group", "operation", "communication", header, "share", "", left=("group", "operation"))
    total = sum(kept_up.values())
    for kind, op in sorted({*talking, *kept_up}, key=lambda key: (-kept_up.get(key, 0), -talking.get(key, 0), key)):
        waited = kept_up.get((kind, op), 0)
        part = waited / total if total else None
        table.add_row(Text(kind), op, duration(talking.get((kind, op))), duration(waited if total else None),
                      share(part), Text(bar(part or 0.0, BAR_COLUMNS), style="cyan"))  # fmt: skip
    return [table, Text("over all ranks; an instant of several operations belongs to the one that began first",
                        style="dim")]  # fmt: skip


def _names(names: tuple[NameTime, ...]) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", show_edge=False)
    for header, justify in (("counted as", "left"), ("times", "right"), ("sum", "right"), ("name", "left")):
        table.add_column(header, justify=justify)  # type: ignore[arg-type]
    by_class: dict[str, list[NameTime]] = defaultdict(list)
    for item in names:
        by_class[item.kernel_class].append(item)
    for kernel_class, items in by_class.items():
        for item in items[:MAX_NAMES]:
            table.add_row(kernel_class, count(item.num), duration(item.total_ns), item.name[:NAME_COLUMNS])
        rest = items[MAX_NAMES:]
        if rest:
            total = duration(sum(item.total_ns for item in rest))
            table.add_row(kernel_class, count(sum(item.num for item in rest)), total, f"{len(rest):,} more names")
    return table


def _suspects(suspects: tuple[NameTime, ...]) -> list[Text]:
    if not suspects:
        return []
    lines = [Text(f"counted as compute, but named like communication ({len(suspects)} names); "
                  "mend it with rankscope import --classes:", style="yellow")]  # fmt: skip
    lines += [Text(f"  {duration(item.total_ns):>8}  {item.name[:NAME_COLUMNS]}") for item in suspects[:MAX_SUSPECTS]]
    return lines
