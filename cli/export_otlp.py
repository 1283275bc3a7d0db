"""A run to an OTLP endpoint: windows of steps are read, become spans, and are sent in requests of CHUNK spans.

What has arrived is kept in a small file on this machine, by run, digest and endpoint, so that the same command goes on
after the last window that arrived; it is deleted when everything has. Nothing is written to the run.
"""

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from rankscope.analyzers.run import Run
from rankscope.analyzers.step_windows import (
    LAST,
    OUTSIDE,
    StepWindow,
    WindowRows,
    clock_readings,
    num_timeless,
    run_columns,
    step_windows,
    window_rows,
)
from rankscope.schema import paths
from rankscope.schema.errors import InputError, NoEvidence
from rankscope.tracer.otlp import history, sending
from rankscope.tracer.otlp.reasons import Reasons
from rankscope.tracer.otlp.resources import described, identity
from rankscope.tracer.otlp.secrets import secrets_of, without_secrets
from rankscope.tracer.otlp.span import Span
from rankscope.tracer.otlp.wall import WallClock
from rankscope.tracer.otlp.wanted import GRPC, HTTP, endpoint, protocol_of, wanted

CHUNK: Final = 1_000
"""Spans of one request: 300 kB to 2 MB; collectors take 4 MiB over gRPC by default."""
TABLES: Final = ("step", "span", "collective", "kernel")
_FOLDER: Final = "exports"
_P2P: Final = ("send", "recv")


class Wish(NamedTuple):
    """What is asked for; "" and None as the variables say, and everything."""

    endpoint: str
    protocol: str
    first: int | None
    last: int | None
    has_kernels: bool
    is_restart: bool


@dataclass(frozen=True, slots=True)
class Exported:
    """What has arrived, by earlier commands as well. by_table: rows; num_spans: these, and a root for each trace.

    num_timeless: rows of the run that tell no time, and so could not be sent. note: which variable was not understood.
    """

    run_id: str
    endpoint: str
    num_spans: int
    num_traces: int
    by_table: dict[str, int]
    num_earlier: int
    num_timeless: int
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """The counts."""
        return {"run_id": self.run_id, "endpoint": self.endpoint, "spans": self.num_spans, "traces": self.num_traces,
                "rows": self.by_table, "spans_of_earlier_commands": self.num_earlier,
                "rows_without_time": self.num_timeless, "note": self.note}  # fmt: skip


def export_otlp(run: Run, wish: Wish, progress: Callable[[int, int], None]) -> Exported:
    """Send the run. Raises NoEvidence (nothing to send), MissingExtra, InputError (the endpoint does not take it)."""
    first = OUTSIDE if wish.first is None else wish.first
    windows = step_windows(run, first, LAST if wish.last is None else wish.last, kernels=wish.has_kernels)
    if not windows:
        where = "" if wish.first is None and wish.last is None else " in these steps"
        raise NoEvidence(f"{run.place.address}: no step, span, operation or device activity to export{where}")
    protocol = wish.protocol or protocol_of(os.environ, "traces")
    if protocol not in (HTTP, GRPC):
        raise InputError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: use {HTTP} or {GRPC}")
    where = _address(wish.endpoint, protocol)
    shown = without_secrets(where) or endpoint(os.environ, "traces", protocol)
    state = _State.of(run, shown, wish)
    reasons = Reasons(threading.current_thread().name, secrets_of(os.environ, wish.endpoint))
    try:
        send = sending.spans("otlp", protocol, endpoint=where, ready=reasons.install)
        note, reasons.last = reasons.last, ""
        _send_all(run, wish, windows, state, _Sending(send, reasons, shown, note), progress)
    finally:
        reasons.remove()
    state.forget()
    return Exported(run.run_id, shown, state.num_spans, state.num_traces, state.by_table, state.num_earlier,
                    num_timeless(run), note)  # fmt: skip


class _Sending(NamedTuple):
    send: Callable[[Any], bool]
    reasons: Reasons
    endpoint: str
    note: str

    def __call__(self, spans: list[tuple[Mapping[str, Any], Span]]) -> None:
        """Send them in requests of CHUNK. Raises InputError where one does not arrive."""
        for start in range(0, len(spans), CHUNK):
            try:
                is_fine, why = self.send(spans[start : start + CHUNK]), self.reasons.last
                if self.reasons.rejected:
                    is_fine, why, self.reasons.rejected = False, self.reasons.rejected, ""
            except (OSError, ValueError) as error:  # of an address that is none
                is_fine, why = False, self.reasons.of(error)
            if not is_fine:
                raise InputError(": ".join(filter(None, (self.endpoint, "spans do not arrive", why, self.note))))


def _send_all(
    run: Run, wish: Wish, windows: list[StepWindow], state: "_State", send: _Sending,
    progress: Callable[[int, int], None],
) -> None:  # fmt: skip
    clocks = {proc: WallClock(readings) for proc, readings in clock_readings(run).items()}
    resources = _resources(run)
    num_rows, num_done = sum(window.num_rows for window in windows), 0
    for window in windows:
        num_done += window.num_rows
        if state.is_done(window):
            continue
        rows = window_rows(run, window, kernels=wish.has_kernels)
        spans = list(history.window_spans(run.run_id, _window(rows, clocks)))
        try:
            send([(resources.get(_rank(span), resources[None]), span) for span in spans])
        except InputError as error:
            raise InputError(f"{error}; {num_done - window.num_rows:,} of {num_rows:,} rows have arrived, "
                             "the same command goes on from there") from error  # fmt: skip
        state.done(window, rows, len(spans), len({span.trace_id for span in spans}))
        progress(num_done, num_rows)


@dataclass(slots=True)
class _State:
    """What has arrived, kept in `path`."""

    path: Path
    num_spans: int
    num_traces: int
    by_table: dict[str, int]
    last: tuple[int, int] | None
    num_earlier: int

    @classmethod
    def of(cls, run: Run, shown: str, wish: Wish) -> "_State":
        """As an earlier command for the same rows and endpoint left it; else nothing."""
        name = f"{paths.hash63(run.run_id, run.digest, shown, *wish[2:5]):016x}.json"
        path = paths.local_base() / _FOLDER / name
        try:
            told = {} if wish.is_restart else json.loads(path.read_text(encoding="utf-8"))
            incarnation, step = told["last"]
            return cls(path, told["spans"], told["traces"], dict(told["rows"]), (incarnation, step), told["spans"])
        except (OSError, ValueError, KeyError, TypeError):
            return cls(path, 0, 0, dict.fromkeys(TABLES, 0), None, 0)

    def is_done(self, window: StepWindow) -> bool:
        """The window has arrived."""
        return self.last is not None and (window.incarnation, window.last) <= self.last

    def done(self, window: StepWindow, rows: WindowRows, num_spans: int, num_traces: int) -> None:
        """Take note that it has. Where nothing can be written, an export that is broken off begins anew."""
        self.last = (window.incarnation, window.last)
        self.num_spans += num_spans
        self.num_traces += num_traces
        for table in TABLES:
            self.by_table[table] += len(getattr(rows, table))
        told = {"last": self.last, "spans": self.num_spans, "traces": self.num_traces, "rows": self.by_table}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(told), encoding="utf-8")
            new.replace(self.path)
        except OSError:
            return

    def forget(self) -> None:
        """Everything has arrived."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError:
            return


def _address(base: str, protocol: str) -> str:
    """The signal's own address below a collector's."""
    if not base or protocol == GRPC:
        return base
    place, mark, query = base.partition("?")
    place = place.rstrip("/")
    return f"{place}{'' if place.endswith('/v1/traces') else '/v1/traces'}{mark}{query}"


def _resources(run: Run) -> dict[int | None, Mapping[str, Any]]:
    """By rank; None: of the run as a whole."""
    asked = wanted({**os.environ, "OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": ""})  # asked for by hand
    whole = {**identity(run.run_id, asked, "export"), **described(run_columns(run))}
    found: dict[int | None, Mapping[str, Any]] = {None: whole}
    by_host: dict[tuple[str, str], Mapping[str, Any]] = {}
    for rank, node, host in run.rows("SELECT rank, any_value(node), any_value(host) FROM process GROUP BY rank"):
        own = {**whole, **identity(run.run_id, asked, f"export/{node}"), "host.id": node}
        own |= {"host.name": host} if host else {}
        found[rank] = by_host.setdefault((node, host), own)
    return found


def _rank(span: Span) -> int | None:
    key, value = span.attributes[0]
    return value if key == "training.rank" else None


def _window(rows: WindowRows, clocks: Mapping[int, WallClock]) -> history.Window:
    phases = [history.PhaseItem(_item(row, clocks), *row[6:]) for row in rows.span]
    kernels = [history.KernelItem(_item(row, clocks), *row[6:]) for row in rows.kernel]
    operations = [_operation(row, clocks) for row in rows.collective]
    steps = [history.StepItem(_item(row, clocks), *row[6:]) for row in rows.step]
    items: Iterable[history.Item] = (thing.item for things in (phases, kernels, operations) for thing in things)
    return history.Window([*steps, *history.missing_steps(steps, items)], phases, operations, kernels)


def _item(row: tuple[Any, ...], clocks: Mapping[int, WallClock]) -> history.Item:
    incarnation, step, rank, proc, start_ns, end_ns = row[:6]
    clock = clocks.get(proc, _SINCE_1970)
    end = None if end_ns is None else max(clock.wall_ns(end_ns), clock.wall_ns(start_ns))
    return history.Item(history.Place(incarnation, step, rank, proc), clock.wall_ns(start_ns), end)


_SINCE_1970: Final = WallClock()


def _operation(row: tuple[Any, ...], clocks: Mapping[int, WallClock]) -> history.OperationItem:
    record, group_id, kind, op, seq, src, dst, tag, num_bytes, dtype, state = row[6:]
    key = None if seq is None or group_id is None else (group_id, *((src, dst, tag) if op in _P2P else ()), seq)
    return history.OperationItem(_item(row, clocks), record, key, op, group_id, kind, seq, src, dst, num_bytes, dtype,
                                 state)  # fmt: skip
