"""Tables on narrow terminals: columns are left out, and named, before a number is broken over two lines."""

import pytest
from rich.console import Console

from rankscope.cli.printing import print_drawn
from rankscope.cli.tables import new_table


def drawn(width: int, spare: tuple[str, ...] = ("share", "p99")) -> list[str]:
    table = new_table("name", "p50", "p99", "share", "", "why", left=("name", "why"), spare=spare)
    table.add_row("ranks", "1.03 ms", "12.5 ms", "7.9 %", "█" * 10, "as it is said")
    screen = Console(width=width)
    with screen.capture() as found:
        screen.print(table)
    return [line.rstrip() for line in found.get().splitlines()]


@pytest.mark.parametrize(
    ("width", "there", "gone"),
    [
        (80, ["ranks", "1.03 ms", "12.5 ms", "7.9 %", "██████████", "as it is said"], []),
        (40, ["ranks", "1.03 ms", "12.5 ms", "7.9 %"], ["█"]),
        (33, ["ranks", "1.03 ms", "12.5 ms", "no room for share"], ["█", "7.9 %"]),
        (24, ["ranks", "1.03 ms", "share, p99"], ["█", "7.9 %", "12.5 ms"]),
    ],
)
def test_what_there_is_no_room_for_is_left_out_and_named(width: int, there: list[str], gone: list[str]) -> None:
    lines = drawn(width)
    text = " ".join(lines)
    assert [part for part in there if part not in text] == [] and [part for part in gone if part in text] == []
    assert max(len(line) for line in lines) <= width and "…" not in text


def test_of_two_columns_of_one_name_the_last_goes_first() -> None:
    table = new_table("p99", "p99", spare=("p99",))
    table.add_row("11111111", "22222222")
    screen = Console(width=12)
    with screen.capture() as found:
        screen.print(table)
    assert "11111111" in found.get() and "22222222" not in found.get()


def test_where_no_column_is_left_to_spare_lines_are_too_long_and_nothing_is_cut_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    table = new_table("p50", "bandwidth", spare=())
    table.add_row("11111111", "222.22 GB/s")
    print_drawn(table)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["p50", "bandwidth"] and lines[2].split() == ["11111111", "222.22", "GB/s"]
