"""Machine: the few numbers that estimates need of the computers that train; files that describe them."""

from __future__ import annotations

import json
import os
import sys
import warnings
from dataclasses import dataclass
from math import inf
from typing import Any

from pdnn.checks import integer, number
from pdnn.comm import costs
from pdnn.comm.costs import Cost, Link, text
from pdnn.files.atomic import replacing


@dataclass(frozen=True)
class Machine:
    """Nodes with cores, and what arithmetic and messages cost there.

    Parameters
    ----------
    name : str
    nodes, cores : int
        Computers, and cores of each that trainings use.
    flops : float
        Floating-point operations per second of a core, in the products of a step of very many rows.
    half_rows : float
        Rows with which it reaches half of that rate (Hockney and Jesshope's n½, "Parallel Computers 2",
        1988).
    memory : float
        Bytes of gradients per second that a core adds to others.
    barrier : float
        Seconds of a barrier of the threads of a process.
    inside : Link or None
        A message between two ranks of a node; None if there were no ranks to measure it.
    sums : Link or None
        The link whose formulas give the time of all-reduces on a node; default `inside`.
    shared : Link or None
        Updates in memory that the ranks of a node share: the latency per step, the bandwidth for what a
        rank reads of others. Default `inside`.
    between : Link or None
        A message between nodes.
    contention : float
        Factor by which a core is slower while all cores of its node are busy.
    ranks : int
        Ranks of a node, where they were counted; 0: as many as have cores.

    Raises
    ------
    TypeError, ValueError
        If a number is none or out of range, or a link is none.
    """

    name: str
    nodes: int
    cores: int
    flops: float
    half_rows: float
    memory: float
    barrier: float
    inside: Link | None = None
    sums: Link | None = None
    shared: Link | None = None
    between: Link | None = None
    contention: float = 1.0
    ranks: int = 0

    def __post_init__(self) -> None:
        for name, least in (("nodes", 1), ("cores", 1), ("ranks", 0)):
            integer(self, name, getattr(self, name), least)
        for name in ("flops", "memory"):
            number(self, name, getattr(self, name), "a finite number above 0", lambda found: 0 < found < inf)
        for name in ("half_rows", "barrier"):
            number(self, name, getattr(self, name), "a finite number from 0", lambda found: 0 <= found < inf)
        number(self, "contention", self.contention, "a finite number from 1", lambda found: 1 <= found < inf)
        for name in ("inside", "sums", "shared", "between"):
            if not isinstance(link := getattr(self, name), Link | None):
                raise TypeError(f"Machine: {name} is {link!r}, expected a Link or None")
        if self.nodes > 1 and self.between is None:
            raise ValueError(f"Machine: {self.nodes} nodes without a link between them")

    def ranks_a_node(self, ranks: int, threads: int) -> int:
        """Ranks, of so many threads, that share a node where nodes are filled one after another."""
        return max(1, min(ranks, self.ranks or self.cores // threads))

    def all_reduce(self, ranks: int, size: float, threads: int = 1) -> Cost:
        """Sum over ranks of n bytes: on a node, or between the nodes in the shares of its ranks.

        On k nodes of c ranks: reduce-scatter and all-gather on each node, which are an all-reduce there, and
        between them c all-reduces of n/c bytes at once, which share the node's link.
        """
        local = self.ranks_a_node(ranks, threads)
        nodes = -(-ranks // local)
        cost = costs.all_reduce(self._link(self.sums), local, size) if local > 1 else costs.NOTHING
        if nodes == 1:
            return cost
        across = costs.all_reduce(self._between(), nodes, size)
        return cost + Cost(across.seconds, across.bytes / local)

    def agreement(self, ranks: int, size: float, threads: int = 1) -> Cost:
        """Update of shared parameters of n bytes.

        Of a node's c ranks each reads (c−1)/c n of gradients and as much of parameters; between k nodes each
        all-reduces its share, all of them n bytes through a node's link.
        """
        local = self.ranks_a_node(ranks, threads)
        nodes = -(-ranks // local)
        read = 2 * (local - 1) / local * size
        cost = Cost(self._link(self.shared).seconds(read), 0) if local > 1 else costs.NOTHING
        if nodes == 1:
            return cost
        across = costs.all_reduce(self._between(), nodes, size)
        return cost + Cost(across.seconds, across.bytes / local)

    def message(self, ranks: int, threads: int = 1) -> Link:
        """Between neighbors among so many ranks: the slowest kind that occurs."""
        if self.ranks_a_node(ranks, threads) < ranks:
            return self._between()
        return self._link(None)

    def _link(self, own: Link | None) -> Link:
        link = own or self.inside
        if link is None:
            raise ValueError(f"estimate: {self.name} tells no link between ranks; measure it on ranks")
        return link

    def _between(self) -> Link:
        if self.between is None:
            raise ValueError(f"estimate: {self.name} has {self.cores} cores and no link to other nodes")
        return self.between

    def to_dict(self) -> dict[str, Any]:
        """All numbers, as JSON has them."""
        return {
            name: vars(value) if isinstance(value, Link) else value
            for name, value in vars(self).items()
            if value is not None
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Machine:
        """What `to_dict` gave."""
        numbers: dict[str, Any] = {
            name: Link(**value) if isinstance(value, dict) else value for name, value in content.items()
        }
        return cls(**numbers)

    def __str__(self) -> str:
        lines = [
            f"{self.name}: nodes {self.nodes}, cores of each {self.cores}",
            f"  a core: {self.flops / 1e9:.3g} Gflop/s, half of it with {self.half_rows:.3g} rows",
            f"  adds {self.memory / 1e9:.3g} GB/s; {self.contention:.2f} times as slow while all cores work",
            f"  threads meet in {text(self.barrier)}",
        ]
        for name, words in (
            ("inside", "a message on a node"),
            ("sums", "all-reduces on a node"),
            ("shared", "agreement in shared memory"),
            ("between", "a message between nodes"),
        ):
            if (link := getattr(self, name)) is not None:
                lines.append(f"  {words}: {link}")
        return "\n".join(lines)


_LINK = {"latency": "seconds, 0 or more", "bandwidth": "bytes a second, more than 0"}
_CORE = {
    "flops": "floating-point operations a second, more than 0",
    "half_rows": "rows, 0 or more",
    "memory": "bytes a second, more than 0",
    "contention": "a factor, 1 or more",
}
TABLES: dict[str, dict[str, str]] = {
    "": {"name": "words", "nodes": "a whole number, 1 or more", "cores": "a whole number, 1 or more"},
    "core": _CORE,
    "threads": {"barrier": "seconds, 0 or more"},
    "inside": _LINK,
    "sums": _LINK,
    "shared": _LINK,
    "between": _LINK,
}
"""The keys of a file by the table that they are in, and what is expected of each."""

_OPTIONAL = {"core.half_rows": 0.0, "core.contention": 1.0, "threads.barrier": 1e-6}
_LINKS = ("inside", "sums", "shared", "between")


def load(path: str | os.PathLike[str]) -> Machine:
    """The machine that a file describes.

    Raises
    ------
    ImportError
        On Python 3.10, if tomli is not installed.
    OSError
        If it cannot be read.
    ValueError
        If it is no TOML, or a key is missing, unknown or out of range; names the key, what it has and what
        was expected.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ModuleNotFoundError as error:
            raise ImportError(f"{path}: tomli is missing, which reads TOML; pip install tomli") from error
    with open(path, "rb") as file:
        try:
            content = tomllib.load(file)
        except (RecursionError, ValueError) as error:  # TOMLDecodeError, or of 5,000 digits
            raise ValueError(f"{path}: is no TOML ({error})") from error
    core = content.get("core")
    if isinstance(core, dict) and "crowding" in core:
        warnings.warn(f"{path}: core.crowding is core.contention now", DeprecationWarning, stacklevel=2)
        core["contention"] = core.pop("crowding")
    flat = _flattened(path, content)
    links = {
        name: Link(flat[f"{name}.latency"], flat[f"{name}.bandwidth"])
        for name in _LINKS
        if f"{name}.latency" in flat
    }
    if flat["nodes"] > 1 and "between" not in links:
        raise ValueError(
            f"{path}: nodes = {flat['nodes']} without [between]; expected its {_keys('between')}"
        )
    numbers = {key: flat.get(f"core.{key}", _OPTIONAL.get(f"core.{key}")) for key in _CORE}
    whole: dict[str, Any] = {**numbers, **links}
    try:
        return Machine(
            name=flat["name"],
            nodes=flat["nodes"],
            cores=flat["cores"],
            barrier=flat.get("threads.barrier", _OPTIONAL["threads.barrier"]),
            **whole,
        )
    except ValueError as error:  # of a whole number of more than 63 bits
        raise ValueError(f"{path}: {error}") from error


def save(machine: Machine, path: str | os.PathLike[str]) -> None:
    """Writes a machine as `load` reads it, all or nothing."""
    written = json.dumps(machine.name, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML takes no DEL
    lines = [
        f"name = {written}",
        f"nodes = {machine.nodes}",
        f"cores = {machine.cores}  # of a node",
    ]
    lines += ["", "[core]", *(f"{key} = {getattr(machine, key):.6g}  # {_CORE[key]}" for key in _CORE)]
    lines += ["", "[threads]", f"barrier = {machine.barrier:.6g}  # seconds"]
    for name in _LINKS:
        if (link := getattr(machine, name)) is not None:
            lines += ["", f"[{name}]", *(f"{key} = {getattr(link, key):.6g}" for key in _LINK)]
    with replacing(path) as file:
        file.write("\n".join([*lines, ""]).encode())


def _flattened(path: str | os.PathLike[str], content: dict[str, Any]) -> dict[str, Any]:
    """Checked values by their names, "core.flops"."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        inner = value if isinstance(value, dict) else {name: value}
        table = name if isinstance(value, dict) else ""
        if table not in TABLES or (not table and name not in TABLES[""]):
            known = ", ".join([*TABLES[""], *(f"[{table}]" for table in TABLES if table)])
            raise ValueError(f"{path}: unknown key {name}; expected some of {known}")
        for key, given in inner.items():
            dotted = f"{table}.{key}".lstrip(".")
            if key not in TABLES[table]:
                raise ValueError(f"{path}: unknown key {dotted}; [{table}] has {_keys(table)}")
            if not _fits(given, TABLES[table][key]):
                raise ValueError(f"{path}: {dotted} = {given!r}; expected {TABLES[table][key]}")
            flat[dotted] = given if isinstance(given, (str, int)) else float(given)
    for table in ("", "core", *(name for name in content if name in _LINKS)):
        for key, expected in TABLES[table].items():
            dotted = f"{table}.{key}".lstrip(".")
            if dotted not in flat and dotted not in _OPTIONAL:
                raise ValueError(f"{path}: {dotted} is missing; expected {expected}")
    return flat


def _fits(value: object, expected: str) -> bool:
    """Whether a value is what the words ask for."""
    if expected == "words":
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if not abs(value) <= sys.float_info.max:
        return False
    if expected.startswith("a whole number") and not isinstance(value, int):
        return False
    if expected.endswith("more than 0"):
        return value > 0
    return value >= (1 if expected.endswith("1 or more") else 0)


def _keys(table: str) -> str:
    return " and ".join(TABLES[table])
