"""`rankscope export FORMAT RUN`: a finished or imported run goes to where other tools look."""

from typing import Annotated, Final

from rankscope.schema.errors import InputError

from .arguments import Argument, BadUsage, JsonOption, Option, RunArgument

FORMATS: Final = ("otlp",)
PROTOCOLS: Final = ("http/protobuf", "grpc")


def command(
    format: Annotated[str, Argument(metavar="FORMAT", help="otlp: spans for an OpenTelemetry back-end.")],  # noqa: A002
    run: RunArgument,
    endpoint: Annotated[
        str, Option(metavar="URL", help="Collector; else OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318.")
    ] = "",
    protocol: Annotated[
        str, Option(metavar="P", help="http/protobuf or grpc; else OTEL_EXPORTER_OTLP_PROTOCOL, else http/protobuf.")
    ] = "",
    steps: Annotated[str, Option(metavar="FIRST:LAST", help="Only these steps.")] = "",
    no_kernels: Annotated[bool, Option("--no-kernels", help="Leave the activities of devices out.")] = False,
    restart: Annotated[bool, Option("--restart", help="Begin anew where an earlier export was broken off.")] = False,
    json: JsonOption = False,
) -> None:
    """Send a run as spans with the times of then: one trace per step over all ranks, operations linked across ranks.

    Headers, certificates and time-outs are taken from the OTEL_EXPORTER_OTLP_* variables. An export that is broken
    off goes on where it was when the same command is given again; sending twice gives the same spans.

    Example: rankscope export otlp rankscope-runs/my-run --endpoint http://collector:4318
    """
    if format not in FORMATS:
        raise InputError(f"no format {format}; there is {', '.join(FORMATS)}")
    if protocol and protocol not in PROTOCOLS:
        raise BadUsage(f"--protocol {protocol}: use {' or '.join(PROTOCOLS)}")
    first, last = _steps(steps)

    from rankscope.analyzers.run import Run

    from .export_otlp import Wish, export_otlp
    from .printing import print_json
    from .progress import progress_bar
    from .words import count

    with Run.open(run) as reader, progress_bar() as progress:
        wish = Wish(endpoint, protocol, first, last, not no_kernels, restart)
        found = export_otlp(reader, wish, lambda done, total: progress("rows", done, total))
    if json:
        print_json(found.as_json())
        return
    resumed = f", {count(found.num_earlier)} of them by an earlier command" if found.num_earlier else ""
    print(f"{count(found.num_spans)} spans in {count(found.num_traces)} traces sent to {found.endpoint}{resumed}")
    for table, number in found.by_table.items():
        print(f"  {count(number)} rows of {table}")
    if found.num_timeless:
        print(f"  {count(found.num_timeless)} rows tell no time and were left out")
    if found.note:
        print(f"  {found.note}")


def _steps(text: str) -> tuple[int | None, int | None]:
    """ "10:20" is (10, 20), "10:" and "7" are open or one step. Raises BadUsage."""
    first, colon, last = text.partition(":")
    numbers = [part.strip() for part in (first, last)]
    if any(part and not part.isdigit() for part in numbers) or (text and not any(numbers)):
        raise BadUsage(f"--steps {text}: use FIRST:LAST, such as 100:200")
    begin = int(numbers[0]) if numbers[0] else None
    end = int(numbers[1]) if numbers[1] else (None if colon or not text else begin)
    if begin is not None and end is not None and end < begin:
        raise BadUsage(f"--steps {text}: the first step comes after the last")
    return begin, end
