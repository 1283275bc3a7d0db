"""Two nodes on this host: network namespaces joined by a veth pair, with host names of their own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest


class Wire(NamedTuple):
    """Two network namespaces, joined by a veth pair: names of the namespaces, the interfaces, the first address."""

    spaces: tuple[str, str]
    interfaces: tuple[str, str]
    address: str


@contextmanager
def two_nodes() -> Iterator[Wire]:
    """A pair of nodes; skips where network namespaces are not allowed."""
    number = os.getpid() % 60000
    spaces, interfaces = (f"rs{number}a", f"rs{number}b"), (f"rsa{number}", f"rsb{number}")
    subnet = f"10.{200 + number % 50}.{number // 250 % 250}"
    try:
        _ip("link", "add", interfaces[0], "type", "veth", "peer", "name", interfaces[1])
        for at, (space, interface) in enumerate(zip(spaces, interfaces, strict=True)):
            _ip("netns", "add", space)
            _ip("link", "set", interface, "netns", space)
            _ip("-n", space, "address", "add", f"{subnet}.{at + 1}/24", "dev", interface)
            _ip("-n", space, "link", "set", interface, "up")
            _ip("-n", space, "link", "set", "lo", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        _remove(spaces, interfaces)
        pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', b'') or error}")
    try:
        yield Wire(spaces, interfaces, f"{subnet}.1")
    finally:
        _remove(spaces, interfaces)


def start_rank(wire: Wire, node: int, script: str, local_dir: str, rank: int, world_size: int, local_rank: int) -> str:
    """A shell command that runs one rank on its node (0 or 1)."""
    settings = (
        f"RANK={rank} WORLD_SIZE={world_size} LOCAL_RANK={local_rank} MASTER_ADDR={wire.address} MASTER_PORT=29500"
    )
    own = f"GLOO_SOCKET_IFNAME={wire.interfaces[node]} RANKSCOPE_LOCAL_DIR={local_dir}{node}"
    named = f"hostname {wire.spaces[node]}; exec env {settings} {own} {sys.executable} {script}"
    return f"ip netns exec {wire.spaces[node]} unshare --uts sh -c '{named}'"


def limit_rate(space: str, interface: str, megabits: int) -> None:
    """What an interface sends goes at this rate (token bucket); skips where the kernel cannot."""
    command = ["ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", interface, "root", "tbf"]
    limits = ["rate", f"{megabits}mbit", "burst", "64kb", "latency", "200ms"]
    try:
        subprocess.run([*command, *limits], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no rate can be set here: {getattr(error, 'stderr', b'') or error}")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


def _remove(spaces: tuple[str, str], interfaces: tuple[str, str]) -> None:
    for command in (["link", "del", interfaces[0]], *(["netns", "del", space] for space in spaces)):
        subprocess.run(["ip", *command], check=False, capture_output=True, timeout=20)
