"""A slow link between two machines, on one: a program runs on the first, its mpiexec starts ranks on both.

python benchmarks/slow_link.py [--megabits 1000] -- mpiexec -n 2 python train.py

The machines are two network namespaces with a name each, joined by a pair of virtual interfaces that send at
most so many megabits a second each way (Linux's token bucket, `tc … tbf`). Open MPI is told of both through
its environment, starts what belongs to the second there, and cannot reach it but by TCP over the link. Ranks
are dealt in turns. The second machine's ranks keep to the second half of the cores. Nothing outside changes,
and everything is gone when the program ends.

Needs ip, tc, unshare and nsenter (iproute2, util-linux), and root or a kernel that lets users have
namespaces; where these are missing, it says so and ends with code 77.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MEGABITS = 1000
NODES = ("10.11.12.1", "10.11.12.2")
"""Addresses of the two machines, on a network of their own."""
INTERFACE = "wire"
"""Its name on either machine."""
MARK = "PDNN_SLOW_LINK"
"""Set to the megabits where a program runs over such a link."""
SKIPPED = 77
BURST = 16 * 1024  # bytes that may pass at once


def command(program: Sequence[str], megabits: float = MEGABITS) -> list[str]:
    """The words that run a program on the first of two machines joined by a slow link."""
    return [sys.executable, str(Path(__file__).resolve()), "--megabits", f"{megabits:g}", "--", *program]


def enter(megabits: float, program: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Becomes this Python program over a slow link, unless it is; the parser ends where there can be none."""
    if MARK in os.environ:
        return
    if reason := refusal():
        parser.error(f"--link: not possible here: {reason}")
    words = command([sys.executable, *program], megabits)
    os.execv(words[0], words)


def refusal() -> str | None:
    """Why there can be no such link here; None if there can."""
    missing = [tool for tool in ("ip", "tc", "unshare", "nsenter", "taskset") if shutil.which(tool) is None]
    if missing:
        return f"no {', '.join(missing)} on PATH"
    attempt = f"ip link add {INTERFACE} type veth peer name far && {_limit(MEGABITS)}"
    tried = subprocess.run(
        [*_unshared(), "sh", "-c", attempt], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    return tried.stderr.strip() or f"code {tried.returncode}" if tried.returncode else None


def _unshared() -> list[str]:
    """The words before a program that give it a network and a host name of its own."""
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net", "--uts"]


def _limit(megabits: float) -> str:
    return f"tc qdisc add dev {INTERFACE} root tbf rate {megabits:g}mbit burst {BURST} latency 200ms"


def run(program: Sequence[str], megabits: float) -> int:
    """Makes the second machine and the link, and runs the program; returns its exit code.

    To be called in a network of its own, as the first machine.
    """
    # The second machine lasts as long as its one process, which ends with this one: it reads from a pipe.
    second = subprocess.Popen(
        ["unshare", "--net", "--uts", "sh", "-c", "hostname node1; echo; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert second.stdin is not None
    assert second.stdout is not None
    try:
        second.stdout.readline()
        there = f"nsenter --target {second.pid} --net --uts"
        setup = [
            "hostname node0",
            f"ip link add {INTERFACE} type veth peer name {INTERFACE} netns {second.pid}",
            *_machine("", NODES[0], megabits),
            *_machine(there, NODES[1], megabits),
        ]
        for words in setup:
            subprocess.run(shlex.split(words), check=True, stdin=subprocess.DEVNULL)
        with tempfile.TemporaryDirectory(prefix="pdnn-link-") as folder:
            environment = os.environ | _open_mpi(Path(folder), there) | {MARK: f"{megabits:g}"}
            return subprocess.run(list(program), env=environment, check=False).returncode
    finally:
        second.stdin.close()
        second.wait()


def _machine(there: str, address: str, megabits: float) -> list[str]:
    lines = (
        "ip link set lo up",
        f"ip address add {address}/24 dev {INTERFACE}",
        f"ip link set {INTERFACE} up",
        _limit(megabits),
    )
    return [f"{there} {line}" for line in lines]


def _open_mpi(folder: Path, there: str) -> dict[str, str]:
    """What makes Open MPI use both machines; instead of ssh it takes a program that enters the second."""
    cores = sorted(os.sched_getaffinity(0))
    kept = ",".join(map(str, cores[len(cores) // 2 :]))
    agent, hosts = folder / "agent", folder / "hosts"
    agent.write_text(f'#!/bin/sh\nshift\nexec taskset --cpu-list {kept} {there} sh -c "$*"\n')
    agent.chmod(0o700)
    hosts.write_text("".join(f"{address} slots=1\n" for address in NODES))
    return {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_plm_ssh_agent": str(agent),
        "PRTE_MCA_prte_default_hostfile": str(hosts),
        "PRTE_MCA_rmaps_default_mapping_policy": "node:oversubscribe",
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,sm,tcp",
        "OMPI_MCA_mtl": "^ofi",
        "OMPI_MCA_btl_tcp_if_include": INTERFACE,
        "GLOO_SOCKET_IFNAME": INTERFACE,  # for PyTorch's ranks
    }


def main(arguments: Sequence[str]) -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--megabits", type=float, default=MEGABITS, help="a second, each way (default %(default)s)"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("program", nargs="+", help="and its arguments, after --")
    options = parser.parse_args(arguments)
    if options.megabits <= 0:
        parser.error(f"--megabits {options.megabits:g}; expected more than 0")
    if options.inside:
        return run(options.program, options.megabits)
    if reason := refusal():
        print(f"slow_link: not possible here: {reason}", file=sys.stderr)
        return SKIPPED
    own = [sys.executable, __file__, "--inside", "--megabits", str(options.megabits), "--"]
    os.execvp("unshare", [*_unshared(), *own, *options.program])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
