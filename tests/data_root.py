"""Where the real data of the workloads lies: $PDNN_DATA, or shared/data beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


def real_data(name: str) -> Path:
    """The folder `name` of the real data; without it the test is skipped."""
    folder = Path(os.environ.get("PDNN_DATA") or BESIDE, name)
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}; set PDNN_DATA to the one that has {name}/")
    return folder
