"""`rankscope check RUN --policy FILE`: a gate of rules that were agreed on beforehand."""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from rankscope.schema.errors import UnreadableFile

from .arguments import JsonOption, Option, RunArgument
from .opening import opened
from .printing import print_drawn, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from rankscope.analyzers.differences import Difference
    from rankscope.analyzers.policy import Ruling

_STYLES: Final = {"pass": "green", "fail": "bold red", "cannot tell": "yellow"}
_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""XML 1.0, production 2."""


def command(
    run: RunArgument,
    policy: Annotated[str, Option("--policy", metavar="FILE", help="The rules: a TOML file, see examples/policies.")],
    baseline: Annotated[
        str, Option("--baseline", metavar="RUN", help="The run that rules with max_of_baseline compare with.")
    ] = "",
    junit: Annotated[
        str, Option("--junit", metavar="FILE", help="Also write the outcome as JUnit XML, for CI systems.")
    ] = "",
    json: JsonOption = False,
) -> int:
    """Hold a run against a policy; exit with 1 if it does not pass.

    Each rule has an owner, names a measurement and bounds it, or its ratio to a baseline. A rule whose number is not
    known cannot tell, and fails unless it says if_unknown = "pass". What else the baseline differs in is said.

    Example: rankscope check rankscope-runs/my-run --policy policy.toml --baseline rankscope-runs/last-good
    """
    from rankscope.analyzers.policy import baseline_differences, judge, read_policy

    rules = read_policy(policy)
    with ExitStack() as stack:
        asked = stack.enter_context(opened(run))
        other = stack.enter_context(opened(baseline)).run if baseline else None
        differs = () if other is None else baseline_differences(asked.run, other)
        found = judge(rules, asked.run, asked.share, other)
    if junit:
        _write_junit(junit, run, found)
    if json:
        print_json({"run": asked.about, "rules": [item.as_json() for item in found],
                    "baseline_differences": [item.as_json() for item in differs]})  # fmt: skip
    else:
        print_drawn(_drawn(found, differs))
    return int(any(item.is_bad for item in found))


def _drawn(found: "Sequence[Ruling]", differs: "Sequence[Difference]") -> "RenderableType":
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from rankscope.analyzers.differences import in_words

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for header in ("", "rule", "measured", "owner"):
        table.add_column(header, overflow="fold")
    for item in found:
        table.add_row(Text(item.outcome, style=_STYLES[item.outcome]), item.rule.name,
                      f"{item.rule.measure}: {item.text}", item.rule.owner)  # fmt: skip
    beside = [Text(f"the baseline differs in {in_words(tuple(differs))}: rankscope diff tells more")] if differs else []
    return Group(table, Text(), *beside, Text(_verdict(found), style="bold"))


def _verdict(found: "Sequence[Ruling]") -> str:
    num, num_bad = len(found), sum(item.is_bad for item in found)
    if num_bad:
        return f"{num_bad} of {num} rules do not pass"
    if unknown := sum(item.outcome != "pass" for item in found):
        return f"{num - unknown} of {num} rules pass; of {unknown} nobody can tell, and the policy lets that through"
    return f"all {num} rules pass"


def _write_junit(path: str, run: str, found: "Sequence[Ruling]") -> None:
    from xml.etree import ElementTree

    bad = [item for item in found if item.is_bad]
    suite = ElementTree.Element("testsuite", name="rankscope check", tests=str(len(found)), failures=str(len(bad)))
    for item in found:
        name = _xml(f"{item.rule.name} ({item.rule.owner})")
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(run), name=name)
        if item.is_bad:
            ElementTree.SubElement(case, "failure", message=_xml(f"{item.outcome}: {item.text}"))
        elif item.outcome == "cannot tell":
            ElementTree.SubElement(case, "skipped", message=_xml(item.text))
    try:
        Path(path).write_bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or error}") from error


def _xml(text: str) -> str:
    """Without what XML cannot hold: control characters, and halves of surrogate pairs."""
    return _NOT_IN_XML.sub("?", text)
