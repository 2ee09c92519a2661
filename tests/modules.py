"""Modules of files that are on no path, such as an example."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def module_at(path: Path) -> ModuleType:
    """A file as a module of its name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module
