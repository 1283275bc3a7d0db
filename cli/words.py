"""Numbers as people read them: durations, sizes, shares, counts. None is an en dash: no evidence is never a zero."""

from typing import Final

NONE: Final = "–"
_TIMES: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_SIZES: Final = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "B"))
_MINUTE_NS: Final = 60 * 1_000_000_000
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_BAR: Final = " ▏▎▍▌▋▊▉█"


def duration(ns: float | int | None) -> str:
    """1234567 is 1.23 ms; from two minutes on 125 s is 2 min 5 s."""
    if ns is None:
        return NONE
    if ns >= 2 * _MINUTE_NS:
        minutes, rest = divmod(round(ns / 1e9), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
    return _scaled(ns, _TIMES)


def size(num_bytes: float | int | None) -> str:
    """1500 is 1.5 kB; powers of ten, as bandwidths are."""
    return NONE if num_bytes is None else _scaled(num_bytes, _SIZES)


def share(ratio: float | None, digits: int = 1) -> str:
    """0.1234 is 12.3 %; below the last digit shown it says so."""
    if ratio is None:
        return NONE
    least = 10.0**-digits
    return f"< {least:g} %" if 0 < 100 * ratio < least else f"{100 * ratio:.{digits}f} %"


def count(number: int | None) -> str:
    """12345 is 12,345."""
    return NONE if number is None else f"{number:,}"


def sparkline(values: list[int]) -> str:
    """One block a value, from an eighth (0) to full (the largest)."""
    top = max(values, default=0)
    return "".join(_BLOCKS[1 + round(value / top * 7)] if top else _BLOCKS[1] for value in values)


def histogram(counts: list[int]) -> str:
    """One block a count; nothing for 0, at least an eighth for anything else."""
    top = max(counts, default=0)
    return "".join(_BLOCKS[max(1, round(value / top * 8))] if value else " " for value in counts)


def bar(ratio: float, width: int) -> str:
    """A bar of `ratio` times `width` characters, in eighths of a character."""
    eighths = round(max(0.0, min(1.0, ratio)) * width * 8)
    return "█" * (eighths // 8) + (_BAR[eighths % 8] if eighths % 8 else "")


def _scaled(value: float, units: tuple[tuple[int, str], ...]) -> str:
    for factor, unit in units:
        if abs(value) >= factor or factor == 1:
            number = value / factor
            digits = 0 if abs(number) >= 100 or factor == 1 else 1 if abs(number) >= 10 else 2
            return f"{number:.{digits}f} {unit}"
    raise AssertionError("units end with a factor of 1")
