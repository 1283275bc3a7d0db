"""`rankscope seal RUN`: what dead agents and processes left becomes sealed files."""

from dataclasses import asdict

from .addressing import address_of
from .arguments import JsonOption, RunArgument
from .printing import print_json


def command(run: RunArgument, json: JsonOption = False) -> None:
    """Turn what crashed agents and processes left of a run into sealed files.

    What still runs is left alone and named. Sealing twice changes nothing. Example: rankscope seal my-run
    """
    from rankscope.tracer.seal import seal

    done = seal(address_of(run, is_to_seal=True))
    if json:
        print_json(asdict(done))
        return
    print(f"{done.run_id}: {done.num_rows:,} rows newly sealed, {done.num_files:,} files on {len(done.nodes):,} nodes")
    for note in done.left_alone:
        print(f"  left alone: {note}")
