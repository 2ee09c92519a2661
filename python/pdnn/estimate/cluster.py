"""Cluster files: a machine described in TOML, read with a sentence for whatever is wrong, and written."""

from __future__ import annotations

import os
import sys
from math import isfinite
from typing import Any

from pdnn.comm.costs import Link
from pdnn.estimate.machine import Machine
from pdnn.files.atomic import replacing

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LINK = {"latency": "seconds, 0 or more", "bandwidth": "bytes a second, more than 0"}
_CORE = {
    "flops": "floating-point operations a second, more than 0",
    "half_rows": "rows, 0 or more",
    "memory": "bytes a second, more than 0",
    "crowding": "a factor, 1 or more",
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

_OPTIONAL = {"core.half_rows": 0.0, "core.crowding": 1.0, "threads.barrier": 1e-6}
_LINKS = ("inside", "sums", "shared", "between")


def load(path: str | os.PathLike[str]) -> Machine:
    """The machine that a file describes.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is no TOML, or a key is missing, unknown or out of range; names the key, what it has and what
        was expected.
    """
    with open(path, "rb") as file:
        try:
            content = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: is no TOML ({error})") from error
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
    core = {key: flat.get(f"core.{key}", _OPTIONAL.get(f"core.{key}")) for key in _CORE}
    whole: dict[str, Any] = {**core, **links}
    return Machine(
        name=flat["name"],
        nodes=flat["nodes"],
        cores=flat["cores"],
        barrier=flat.get("threads.barrier", _OPTIONAL["threads.barrier"]),
        **whole,
    )


def save(machine: Machine, path: str | os.PathLike[str]) -> None:
    """Writes a machine as `load` reads it, all or nothing."""
    lines = [f'name = "{machine.name}"', f"nodes = {machine.nodes}", f"cores = {machine.cores}  # of a node"]
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
        for key, number in inner.items():
            dotted = f"{table}.{key}".lstrip(".")
            if key not in TABLES[table]:
                raise ValueError(f"{path}: unknown key {dotted}; [{table}] has {_keys(table)}")
            if not _fits(number, TABLES[table][key]):
                raise ValueError(f"{path}: {dotted} = {number!r}; expected {TABLES[table][key]}")
            flat[dotted] = number if isinstance(number, (str, int)) else float(number)
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
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        return False
    if expected.startswith("a whole number") and not isinstance(value, int):
        return False
    if expected.endswith("more than 0"):
        return value > 0
    return value >= (1 if expected.endswith("1 or more") else 0)


def _keys(table: str) -> str:
    return " and ".join(TABLES[table])
