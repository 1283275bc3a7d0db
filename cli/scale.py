"""`rankscope scale RUN RUN ...`: does the job scale, how sure are we, and what else differed."""

from typing import TYPE_CHECKING, Annotated, Any, Final

from .arguments import Argument, BadUsage, JsonOption, Option
from .printing import print_drawn, print_json

ONE_SIZE: Final = "one size: efficiency needs two"

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rankscope.analyzers.scaling import Scaling


def command(
    runs: Annotated[list[str] | None, Argument(metavar="RUN...", help="Runs of one job at several sizes.")] = None,
    points: Annotated[
        str, Option("--points", metavar="CSV", help="Points measured elsewhere, not runs: a CSV with series, "
                    "n_accelerators, metric, value (and mode, workload, hardware, source).")
    ] = "",
    series: Annotated[str, Option("--series", metavar="ID", help="Only this series of the CSV.")] = "",
    at: Annotated[int | None, Option("--at", metavar="N", min=1, help="Forecast the throughput on N ranks.")] = None,
    image: Annotated[
        str, Option("--image", metavar="FILE", help="Also draw the curve to this file (.png, .svg, .pdf); needs "
                    "rankscope[plot].")
    ] = "",
    json: JsonOption = False,
) -> int:  # fmt: skip
    """Print efficiency over sizes, what else differed, and what a larger size will do.

    Strong scaling (the same global batch) and weak scaling (a batch that grows with the size) are told apart by the
    samples of a step. Several runs of a size are repeats, which a controlled comparison needs. The forecast stands
    beside simpler ones, its error on the largest measured size, and a bracket that held on 80 % of public series.

    Example: rankscope scale runs/1gpu runs/2gpu runs/4gpu runs/8gpu --at 16
    """
    if bool(runs) == bool(points):
        raise BadUsage("Give either runs or --points CSV")
    if series and not points:
        raise BadUsage("--series names one of --points CSV, which is not given")
    found, single = _of_points(points, series, at) if points else ([_of_runs(runs or [], at)], [])
    if image:
        from .scale_image import draw

        draw(found, image)
    if json:
        print_json({**_document(found), "left_out": [{"name": name, "why": ONE_SIZE} for name in single]})
        return 0
    from .scale_view import scale_view

    print_drawn(scale_view(found))
    if single:
        print(f"left out ({ONE_SIZE}): {', '.join(single)}")
    return 0


def _of_runs(addresses: "Sequence[str]", at: int | None) -> "Scaling":
    from rankscope.analyzers.run import Run
    from rankscope.analyzers.scaling import scaling_of_runs
    from rankscope.analyzers.scaling_run import scaling_run

    from .progress import progress_bar

    read = []
    with progress_bar() as show:
        for number, address in enumerate(addresses):
            show("reading runs", number, len(addresses))
            with Run.open(address) as reader:
                read.append(scaling_run(reader))
    return scaling_of_runs(read, at)


def _of_points(path: str, wanted: str, at: int | None) -> "tuple[list[Scaling], list[str]]":
    """The series, and the names of those that have one size only, where there are others."""
    from rankscope.analyzers.scaling import scaling_of_series
    from rankscope.analyzers.scaling_points import read_points
    from rankscope.schema.errors import NoEvidence

    read = read_points(path)
    known = read.series
    chosen = tuple(item for item in known if item.name == wanted or not wanted)
    if not chosen:
        raise NoEvidence(f"{path}: no series {wanted}; there are {', '.join(item.name for item in known[:8])}")
    single = [item.name for item in chosen if len(item.curve) < 2]
    if len(single) < len(chosen):
        chosen = tuple(item for item in chosen if item.name not in single)
    else:
        single = []
    return [scaling_of_series(item, read.digest, at) for item in chosen], single


def _document(found: "Sequence[Scaling]") -> dict[str, Any]:
    return {
        "runs": [
            {"name": item.name, "mode": item.mode, "metric": item.metric, "grade": item.grade,
             "grade_reasons": list(item.grade_reasons), "confounders": [each.as_json() for each in item.confounders],
             "quality": None if item.quality is None else {"holds": item.quality.holds, "text": item.quality.text},
             "losses": [each.text for each in item.losses],
             "sizes": [{"world_size": size.num_ranks, "num_runs": size.num_runs, "throughput": size.throughput,
                        "step_ns": size.step_ns, "parts": dict(size.parts)} for size in item.sizes]}
            for item in found
        ],
        "measurements": [each.as_json() for item in found for each in item.measurements],
        "verdicts": [],
    }  # fmt: skip
