"""`rankscope explain NAME RUN`: where a number comes from, and whether it comes out again."""

from typing import TYPE_CHECKING, Annotated, Any

from .arguments import Argument, BadUsage, JsonOption, Option, RunArgument
from .printing import print_drawn, print_json

if TYPE_CHECKING:
    from rankscope.analyzers.digest import Input
    from rankscope.analyzers.explain import Explained


def command(
    name: Annotated[str, Argument(metavar="NAME", help="A measurement, as every --json spells it.")],
    run: RunArgument,
    scope: Annotated[
        list[str],
        Option("--scope", metavar="KEY=VALUE", help="Only those about this, as in --scope rank=3; repeat it."),
    ] = [],  # noqa: B006
    by: Annotated[str, Option("--by", metavar="ANALYZER", help="Only those of one analyzer, where two tell it.")] = "",
    threads: Annotated[int, Option("--threads", metavar="N", help="Threads of the second derivation.", min=1)] = 1,
    files: Annotated[bool, Option("--files", help="List the files that it was read from, with their digests.")] = False,
    json: JsonOption = False,
    fail_on_findings: Annotated[
        bool, Option("--fail-on-findings", help="Exit with 1 if a value does not come out again.")
    ] = False,
) -> int:
    """Print what a number means, how it is computed, from which rows, and derive it a second time.

    Definition, formula, statement, inputs with their digest, what was left out, interval, coverage, caveats, versions.
    The analyzer runs again on a fresh reader of the same files, then its statement alone: the bits must be the same.

    Example: rankscope explain step.duration rankscope-runs/my-run --scope statistic=p99
    """
    wanted = _scope(scope)
    from rankscope.analyzers.explain import Explainer
    from rankscope.analyzers.run import Run

    with Run.open(run) as opened, Explainer(opened, threads=threads) as explainer:
        found = explainer.explain(name, wanted, question=by)
        about = {"run_id": opened.run_id, "address": opened.place.address, "dataset_digest": opened.digest}
        tables = tuple(dict.fromkeys(table for item in found for table in item.measurement.provenance.tables))
        inputs = opened.inputs(tables) if files else ()
    if json:
        more = {"files": [_file(item) for item in inputs]} if files else {}
        print_json({"run": about, "measurements": [_as_json(item) for item in found], "verdicts": [], **more})
    else:
        from .explain_view import explained_section

        print_drawn(explained_section(found, inputs if files else None))
    return int(fail_on_findings and any(item.is_same_dataset and not item.is_equal for item in found))


def _scope(texts: list[str]) -> dict[str, str]:
    """Raises BadUsage."""
    wanted = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not key or not sign:
            raise BadUsage(f"--scope is KEY=VALUE, as in --scope rank=3: not {text!r}")
        wanted[key] = value
    return wanted


def _as_json(item: "Explained") -> dict[str, Any]:
    again, told = item.again, item.statement
    return item.measurement.as_json() | {
        "question": item.question,
        "formula": item.formula,
        "inputs": list(item.columns),
        "rederived": {
            "value": None if again is None else again.value, "n": None if again is None else again.n,
            "is_equal": item.is_equal, "threads": item.threads, "is_same_dataset": item.is_same_dataset,
            "statement": {"num_rows": told.num_rows, "num_fitting": told.num_fitting, "column": told.column or None,
                          "module": told.module or None, "problem": told.problem or None},
        },
    }  # fmt: skip


def _file(item: "Input") -> dict[str, Any]:
    return {"file": item.file, "table": item.table, "num_rows": item.num_rows, "num_bytes": item.num_bytes,
            "digest": item.digest}  # fmt: skip
