"""`rankscope synth -o RUN`: a made-up run with the truth beside it, to try commands on and to measure them by."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from .arguments import JsonOption, Option
from .printing import print_json

if TYPE_CHECKING:
    from rankscope.tracer.importers.synth_plan import Plan


def command(  # noqa: PLR0913 - one for each thing that can be planted
    out: Annotated[str, Option("-o", "--out", metavar="RUN", help="The run's folder; must not hold anything.")],
    ranks: Annotated[int, Option(help="Processes of the job.")] = 8,
    ranks_per_node: Annotated[int, Option(help="Of these on one host.")] = 8,
    steps: Annotated[int, Option(help="Training steps.")] = 100,
    collectives: Annotated[int, Option(help="Operations of one rank in a step.")] = 20,
    layout: Annotated[
        str, Option(metavar="dp=..,tp=..,pp=..", help="Parallel layout; dp takes what is not given.")
    ] = "",
    microbatches: Annotated[int, Option(help="Of a step; with a pipeline 0 is twice the stages.")] = 0,
    seed: Annotated[int, Option(help="Everything follows from it.")] = 0,
    straggler: Annotated[
        list[str] | None,
        Option(metavar="RANK:CAUSE:DELAY[:STEP|:once]", help="A late rank, in every step, from a step on, or once."),
    ] = None,
    slow_link: Annotated[list[str] | None, Option(metavar="NODE:FACTOR", help="A node with slow transfers.")] = None,
    bubble: Annotated[
        list[str] | None, Option(metavar="STAGE:FACTOR", help="A stage that computes longer: others idle.")
    ] = None,
    step_ms: Annotated[float, Option(min=0.001, max=1e7, help="Computation of a step, in ms.")] = 50.0,
    transfer_us: Annotated[
        float, Option(min=0, max=1e9, help="Transfer of every operation, in us; 0: by its kind.")
    ] = 0.0,
    jitter: Annotated[float, Option(min=0, max=1, help="Standard deviation of computations, a share of them.")] = 0.01,
    clock_offset_ms: Annotated[
        float, Option(min=0, max=1e12, help="Hosts' clocks differ by up to this either way.")
    ] = 0.0,
    drift_ppm: Annotated[float, Option(min=0, max=500, help="And drift by up to this.")] = 0.0,
    slews: Annotated[int, Option(min=0, help="Times that each clock's drift changes.")] = 0,
    late: Annotated[
        bool, Option("--late", help="Asynchronous operations are seen complete when waited for, as on gloo.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write a run that nobody made: steps, collectives, spans and clocks as a real job's, simulated.

    Who waits for whom is right: a synchronous operation ends for all when the last one has come and the transfer is
    over. Stragglers are late by data, compute, gc, checkpoint, cpu_contention or throttle, in their own rows too, or
    by network. RUN/truth.json tells what was planted; no command looks at it.

    Example: rankscope synth -o made-up --ranks 16 --layout tp=4 --straggler 5:data:3ms:50 --clock-offset-ms 50
    """
    from rankscope.tracer.importers.synth import synthesise
    from rankscope.tracer.importers.synth_plan import Plan, SlowLink, SlowStage, layout_of, numbered, straggler_of

    from .progress import progress_bar

    dp, tp, pp = layout_of(layout, ranks)
    plan = Plan(
        ranks=ranks, ranks_per_node=ranks_per_node, steps=steps, collectives=collectives, dp=dp, tp=tp, pp=pp,
        microbatches=microbatches or (2 * pp if pp > 1 else 1), seed=seed, step_ns=round(step_ms * 1e6),
        transfer_ns=round(transfer_us * 1e3), jitter=jitter, clock_offset_ns=round(clock_offset_ms * 1e6),
        drift_ppm=drift_ppm, num_slews=slews, sees_late=late,
        stragglers=tuple(straggler_of(text, steps) for text in straggler or ()),
        slow_links=tuple(SlowLink(*numbered("--slow-link", text)) for text in slow_link or ()),
        slow_stages=tuple(SlowStage(*numbered("--bubble", text)) for text in bubble or ()),
    )  # fmt: skip
    with progress_bar() as progress:
        found = synthesise(plan, out, progress)
    if json:
        print_json(asdict(found))
    else:
        print("\n".join(_lines(plan)))
        print(f"run {found.run_id}: {found.num_rows:,} rows, {found.num_files:,} files in {found.address}")


def _lines(plan: "Plan") -> list[str]:
    from .words import duration

    size = f"{plan.ranks:,} ranks on {plan.num_nodes:,} nodes (dp {plan.dp}, tp {plan.tp}, pp {plan.pp})"
    lines = [f"{size}, {plan.steps:,} steps of up to {plan.collectives:,} operations"]
    for item in plan.stragglers:
        when = f"in step {item.since_step}" if item.is_once else f"from step {item.since_step} on"
        lines.append(f"planted: rank {item.rank} late by {duration(item.delay_ns)} of {item.cause} {when}")
    lines += [f"planted: transfers of node {item.node} {item.factor:g} times as long" for item in plan.slow_links]
    lines += [f"planted: stage {item.stage} computes {item.factor:g} times as long" for item in plan.slow_stages]
    if plan.clock_offset_ns or plan.drift_ppm or plan.num_slews:
        lines.append(f"planted: clocks up to {duration(plan.clock_offset_ns)} off, drifting by up to "
                     f"{plan.drift_ppm:g} ppm, {plan.num_slews} slews each")  # fmt: skip
    return lines
