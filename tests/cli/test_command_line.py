"""Words on a command line become the arguments of a command's function."""

from pathlib import Path
from typing import Annotated, Any

import pytest

from rankscope.cli.arguments import Argument, BadUsage, Option
from rankscope.cli.command_line import HelpWanted, parameters, parse
from rankscope.cli.help import command_help


def example(
    place: Annotated[str, Argument(metavar="PLACE", help="Where.")],
    more: Annotated[list[Path], Argument(metavar="MORE", help="What else.")],
    out: Annotated[str, Option("-o", "--out", metavar="RUN", help="To.")],
    older_than: Annotated[str, Option(metavar="AGE", help="Age.")] = "",
    patience: Annotated[float, Option("--patience", envvar="EXAMPLE_PATIENCE", min=0, max=9, help="Wait.")] = 2.5,
    number: Annotated[int | None, Option("--number", help="A number.")] = None,
    tag: Annotated[list[str], Option("--tag", help="Several.")] = [],  # noqa: B006
    json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Do nothing with it.

    one: the first way.
    two: the second way.
    """


def parsed(*words: str) -> dict[str, Any]:
    return parse(words, parameters(example))


def test_options_and_arguments_come_in_any_order() -> None:
    found = parsed("here", "--json", "a", "--out=there", "b", "--number", "-3", "--tag", "x", "--tag=y")
    assert found == {
        "place": "here", "more": [Path("a"), Path("b")], "out": "there", "older_than": "", "patience": 2.5,
        "number": -3, "tag": ["x", "y"], "json": True,
    }  # fmt: skip


def test_after_two_dashes_everything_is_an_argument() -> None:
    assert parsed("-othere", "here", "--", "--json", "-h", "--")["more"] == [Path("--json"), Path("-h"), Path("--")]


def test_the_last_of_a_repeated_option_counts() -> None:
    assert parsed("here", "a", "-o", "x", "--out", "y")["out"] == "y"


def test_a_value_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXAMPLE_PATIENCE", "7")
    assert parsed("here", "a", "-o", "x")["patience"] == 7.0
    assert parsed("here", "a", "-o", "x", "--patience", "8")["patience"] == 8.0
    monkeypatch.setenv("EXAMPLE_PATIENCE", "soon")
    with pytest.raises(BadUsage, match=r"EXAMPLE_PATIENCE.*'soon' is not a valid float"):
        parsed("here", "a", "-o", "x")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "x"], "Missing argument 'PLACE'"),
        (["here", "-o", "x"], "Missing argument 'MORE'"),
        (["here", "a"], "Missing option '-o' / '--out'"),
        (["here", "a", "-o"], "Option '-o' requires an argument"),
        (["here", "a", "-o", "x", "--jsn"], r"No such option: --jsn \(Possible options: --json\)"),
        (["here", "a", "-o", "x", "--json=1"], "Option '--json' does not take a value"),
        (["here", "a", "-o", "x", "--patience", "nan"], "nan is less than 0"),
        (["here", "a", "-o", "x", "--patience", "10"], "10 is more than 9"),
        (["here", "a", "-o", "x", "--number", "1.5"], "'1.5' is not a valid int"),
    ],
)
def test_wrong_words_are_one_line_that_names_them(words: list[str], said: str) -> None:
    with pytest.raises(BadUsage, match=said):
        parsed(*words)


def test_help_is_wanted_wherever_it_stands() -> None:
    for words in (["-h"], ["here", "--help"], ["here", "-o", "x", "-h"]):
        with pytest.raises(HelpWanted):
            parsed(*words)


def test_too_many_arguments() -> None:
    def one(place: Annotated[str, Argument(metavar="[PLACE]")] = "here") -> None: ...

    assert parse([], parameters(one)) == {"place": "here"}
    with pytest.raises(BadUsage, match=r"unexpected extra argument\(s\) \(b c\)"):
        parse(["a", "b", "c"], parameters(one))


def test_a_parameter_without_a_declaration_is_a_mistake_of_ours() -> None:
    def wrong(place: str) -> None: ...

    with pytest.raises(TypeError, match="place"):
        parameters(wrong)


def test_the_help_of_a_command() -> None:
    text = command_help("example", example, parameters(example))
    assert text.splitlines()[0] == "Usage: rankscope example [OPTIONS] PLACE MORE..."
    assert "\n  one: the first way.\n  two: the second way.\n" in text
    assert "\n  -o, --out RUN     To.  [required]\n" in text
    assert "\n  --patience FLOAT  Wait.  [env: EXAMPLE_PATIENCE; default: 2.5]\n" in text
    assert text.endswith("\n  -h, --help        Show this message and exit.")
