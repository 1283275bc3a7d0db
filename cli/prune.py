"""`rankscope prune [DIR]`: old runs are deleted."""

import re
import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

from rankscope.schema.errors import UnreadableFile
from rankscope.schema.paths import RUNS_FOLDER
from rankscope.tracer.settings import byte_size

from .arguments import Argument, BadUsage, JsonOption, Option
from .printing import print_json
from .words import size

_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def command(
    folder: Annotated[str, Argument(metavar="[DIR]", help="A folder of runs.")] = RUNS_FOLDER,
    older_than: Annotated[
        str, Option(metavar="AGE", help="Delete runs not written to for so long: 12h, 30d, 4w.")
    ] = "",
    max_bytes: Annotated[str, Option(metavar="SIZE", help="Delete the oldest runs until the others fit: 500G.")] = "",
    dry_run: Annotated[bool, Option("--dry-run", help="Delete nothing, say what would be.")] = False,
    json: JsonOption = False,
) -> None:
    """Delete old runs, and say which. It asks nothing, and leaves alone what still runs or is not a run.

    Example: rankscope prune /shared/rankscope-runs --older-than 30d --dry-run
    """
    before_ns, most = _limits(older_than, max_bytes)

    from rankscope.analyzers.runs import runs_in
    from rankscope.tracer.pruning import prune

    found = [path for run in runs_in(folder) if (path := Path(run.path)).exists()]
    try:
        done = prune(found, before_ns, most, dry_run)
    except OSError as error:
        raise UnreadableFile(f"{error.filename or folder}: {error.strerror or error}") from error
    if json:
        left_alone = [{"path": path, "why": why} for path, why in done.left_alone]
        print_json({"deleted": [asdict(run) for run in done.deleted], "left_alone": left_alone,
                    "freed_bytes": done.freed_bytes, "is_dry_run": done.is_dry_run})  # fmt: skip
        return
    verb = "would delete" if dry_run else "deleted"
    for run in done.deleted:
        moment = datetime.fromtimestamp(run.written_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M")
        print(f"{verb} {run.run_id}, last written {moment}, {size(run.num_bytes)}: {run.path}")
    for place, why in done.left_alone:
        print(f"left alone {place}: {why}")
    print(f"{verb} {len(done.deleted):,} of {len(found):,} runs, {size(done.freed_bytes)}")


def _limits(older_than: str, max_bytes: str) -> tuple[int | None, int | None]:
    """Written before (ns since 1970), and bytes. Raises BadUsage."""
    if not older_than and not max_bytes:
        raise BadUsage("say which runs: --older-than 30d, --max-bytes 500G, or both")
    before_ns, most = None, None
    if older_than:
        match = _AGE.fullmatch(older_than.strip())
        if not match:
            raise BadUsage(f"--older-than {older_than}: use a number and one of s, m, h, d, w, such as 30d")
        before_ns = time.time_ns() - int(float(match[1]) * _SECONDS[match[2]] * 1e9)
    if max_bytes:
        try:
            most = byte_size(max_bytes)
        except ValueError as error:
            raise BadUsage(f"--max-bytes {max_bytes}: {error}") from None
    return before_ns, most
