"""Nodes on this host: network namespaces with host names of their own, joined by a veth pair or by a bridge."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest


class Wire(NamedTuple):
    """Network namespaces that reach one another: their names, each one's interface, the first one's address."""

    spaces: tuple[str, ...]
    interfaces: tuple[str, ...]
    address: str


@contextmanager
def two_nodes() -> Iterator[Wire]:
    """A pair of nodes; skips where network namespaces are not allowed."""
    number = os.getpid() % 60000
    wire = Wire((f"rs{number}a", f"rs{number}b"), (f"rsa{number}", f"rsb{number}"), f"{_subnet(number)}.1")
    with _built(wire, wire.interfaces[:1]):
        _ip("link", "add", wire.interfaces[0], "type", "veth", "peer", "name", wire.interfaces[1])
        _settle(wire)
        yield wire


@contextmanager
def bridged_nodes(num: int) -> Iterator[Wire]:
    """Some nodes, each with a link of its own to a bridge; skips where that is not allowed."""
    number = os.getpid() % 60000
    bridge, ends = f"rsh{number}", tuple(f"rsh{number}{at}" for at in range(num))
    wire = Wire(tuple(f"rs{number}n{at}" for at in range(num)), tuple(f"rsn{number}{at}" for at in range(num)),
                f"{_subnet(number)}.1")  # fmt: skip
    with _built(wire, (bridge, *ends)):
        _ip("link", "add", bridge, "type", "bridge")
        for interface, end in zip(wire.interfaces, ends, strict=True):
            _ip("link", "add", interface, "type", "veth", "peer", "name", end)
            _ip("link", "set", end, "master", bridge, "up")
        _ip("link", "set", bridge, "up")
        _settle(wire)
        yield wire


@contextmanager
def _built(wire: Wire, links: tuple[str, ...]) -> Iterator[None]:
    """Skips where the body cannot build; takes everything away at the end. links: in this namespace."""
    try:
        yield
    except subprocess.CalledProcessError as error:
        if error.cmd[0] != "ip":
            raise
        pytest.skip(f"no network namespaces here: {error.stderr!r}")
    except FileNotFoundError as error:
        pytest.skip(f"no network namespaces here: {error}")
    finally:
        _remove(wire.spaces, links)


def _settle(wire: Wire) -> None:
    """Give each namespace its interface, with an address."""
    for at, (space, interface) in enumerate(zip(wire.spaces, wire.interfaces, strict=True)):
        _ip("netns", "add", space)
        _ip("link", "set", interface, "netns", space)
        _ip("-n", space, "address", "add", f"{wire.address.rpartition('.')[0]}.{at + 1}/24", "dev", interface)
        _ip("-n", space, "link", "set", interface, "up")
        _ip("-n", space, "link", "set", "lo", "up")


def _subnet(number: int) -> str:
    return f"10.{200 + number % 50}.{number // 250 % 250}"


def start_rank(wire: Wire, node: int, script: str, local_dir: str, rank: int, world_size: int, local_rank: int) -> str:
    """A shell command that runs one rank on its node, by number."""
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


def _remove(spaces: tuple[str, ...], links: tuple[str, ...]) -> None:
    for command in (*(["link", "del", link] for link in links), *(["netns", "del", space] for space in spaces)):
        subprocess.run(["ip", *command], check=False, capture_output=True, timeout=20)
