"""The curve of a scaling series as an image: throughput over ranks, ideal and forecast beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.schema.errors import UnreadableFile

from .arguments import BadUsage

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rankscope.analyzers.scaling import Scaling


def draw(found: "Sequence[Scaling]", path: str) -> None:
    """Write the image. Raises BadUsage (matplotlib is not installed, unknown kind of image), UnreadableFile."""
    if not Path(path).suffix:  # matplotlib would write to another name than the one that was given
        raise BadUsage(f"--image {path}: its name says the kind of image: .png, .svg or .pdf")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BadUsage("--image needs matplotlib: pip install 'rankscope[plot]'") from None
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    for item in found:
        _draw_one(axes, item)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("ranks")
    axes.set_ylabel("throughput per second")
    sizes = sorted({size for item in found for size, _ in item.curve})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.grid(visible=True, which="major", alpha=0.3)
    if len(found) <= 12:
        axes.legend(fontsize="small")
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:
        raise BadUsage(f"--image: {str(error).splitlines()[0]}") from None
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or error}") from error


def _draw_one(axes: "Axes", item: "Scaling") -> None:
    from rankscope.analyzers.forecast import Forecast

    sizes, values = zip(*item.curve, strict=True)
    (line,) = axes.plot(sizes, values, marker="o", label=f"{item.name} ({item.mode}, {item.grade})")
    colour = line.get_color()
    told = item.forecast
    last = told.at if isinstance(told, Forecast) else sizes[-1]
    axes.plot([sizes[0], last], [values[0], values[0] * last / sizes[0]], linestyle=":", color=colour, alpha=0.6)
    if isinstance(told, Forecast):
        axes.errorbar([told.at], [told.value], [[told.value - told.low], [told.high - told.value]], marker="s",
                      color=colour, capsize=4, linestyle="none")  # fmt: skip
