"""What the readings of hosts and interfaces say in plain sentences: ranks short of CPU, memory nearly full, errors."""

from collections.abc import Iterator
from typing import Final

from .groups import named_ranks
from .headline import INFO, WARNING, Headline
from .host import Hosts
from .network import Network

NEARLY_FULL: Final = 0.95
"""Share of the memory limit in use from which the out-of-memory killer is near."""

WELL_COVERED: Final = 0.5
"""Share of the time of steps from which readings stand for the run."""


def host_headlines(hosts: Hosts, network: Network) -> Iterator[Headline]:
    """One sentence per finding."""
    if ranks := hosts.contended:
        worst = max(use.runnable_share or 0 for use in hosts.processes if use.rank in ranks)
        who = named_ranks(ranks).capitalize()
        yield Headline(
            WARNING, f"{who} had to wait for a CPU up to {100 * worst:.0f} % of the runnable time: others run there."
        )
    for host in hosts.hosts:
        share = host.memory_share.value
        if share is not None and float(share) >= NEARLY_FULL:
            yield Headline(WARNING, f"Memory of {host.node} was {100 * float(share):.0f} % full, of its limit.")
    if hosts.covered_ns and hosts.covered_ns[0] < WELL_COVERED * hosts.covered_ns[1]:
        read_s, stepped_s = (part / 1e9 for part in hosts.covered_ns)
        what = f"Hosts, network and storage were read for {read_s:.1f} s of the {stepped_s:.1f} s in which steps were"
        yield Headline(INFO, f"{what} made: readings begin with the agent (RANKSCOPE_AGENT=now: at once).")
    for interface in network.interfaces:
        if errors := int(interface.errors.value or 0):
            yield Headline(
                WARNING, f"{interface.nic} of {interface.node} counted {errors:,} error{'' if errors == 1 else 's'}."
            )
