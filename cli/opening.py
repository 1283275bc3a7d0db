"""What commands that ask one question have in common: the run, its coverage, and the form of their JSON."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .printing import print_json

if TYPE_CHECKING:
    from rankscope.analyzers.run import Run
    from rankscope.schema.measurement import Measurement, Verdict


@dataclass(frozen=True, slots=True)
class Opened:
    """An open run. share: its coverage, which is printed beside every number; None where it is not known."""

    run: "Run"
    share: float | None
    about: dict[str, Any]

    def print_json(
        self, measurements: "Iterable[Measurement]", verdicts: "Iterable[Verdict]" = (), **more: Any
    ) -> None:
        """Print the form that every `--json` has: run, measurements, verdicts, and what else the command tells."""
        print_json({
            "run": self.about, "measurements": [item.as_json() for item in measurements],
            "verdicts": [item.as_json() for item in verdicts], **more,
        })  # fmt: skip

    def print_gap(self) -> None:
        """A line where rows are missing, or files cannot be used, below an answer that they might change."""
        from rankscope.analyzers.listing import unusable

        unused = unusable(len(self.run.faults))
        if self.share is not None and self.share < 1:
            part = f"{100 * self.share:.2f}".rstrip("0").rstrip(".")
            print(f"only {part} % of the rows are there{unused or ', see rankscope report'}")
        elif unused:
            print(unused.lstrip("; "))


@contextmanager
def opened(run: str) -> Iterator[Opened]:
    """The run called `run`, closed when the block ends. Raises what `Run.open` does."""
    from rankscope.analyzers.coverage import coverage
    from rankscope.analyzers.engines import AUTO, Engine
    from rankscope.analyzers.run import Run

    with Run.open(run, engine=Engine(AUTO)) as reader:
        covered = coverage(reader).coverage.value
        share = None if covered is None else float(covered)
        about = {"run_id": reader.run_id, "address": reader.place.address, "dataset_digest": reader.digest}
        yield Opened(reader, share, about)
