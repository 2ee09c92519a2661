"""Safetensors files of pdnn and of the package of that name: each reads, or refuses, what the other does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pdnn.files import safetensors as ours

peer = pytest.importorskip("safetensors")
theirs = pytest.importorskip("safetensors.numpy")

TYPES = ("float64", "float32", "int64", "int32", "uint8", "bool")
CODES = {"F64": 8, "F32": 4, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}
NAMES = st.text(min_size=1, max_size=9).filter(lambda name: name != "__metadata__" and name.isprintable())
ARRAYS = st.dictionaries(
    NAMES,
    st.sampled_from(TYPES).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    ),
    max_size=4,
)
QUICK = settings(
    max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype
        and one[name].shape == other[name].shape
        and one[name].tobytes() == other[name].tobytes()
        for name in one
    )


@QUICK
@given(arrays=ARRAYS, words=st.dictionaries(NAMES, st.text(max_size=9), max_size=2))
def test_each_reads_what_the_other_writes(
    arrays: dict[str, Any], words: dict[str, str], tmp_path: Path
) -> None:
    ours.write(tmp_path / "ours", arrays, words)
    assert same(theirs.load_file(tmp_path / "ours"), arrays)
    with peer.safe_open(tmp_path / "ours", "numpy") as file:
        assert (file.metadata() or {}) == words
    # With metadata and no array safetensors 0.8.0 writes no JSON: {},"__metadata__":{}}
    theirs.save_file(arrays, tmp_path / "theirs", metadata=words if arrays else None)
    read, metadata = ours.read(tmp_path / "theirs")
    assert same(read, arrays) and metadata == (words if arrays else {})


def verdict(read: Any, path: Path) -> bool:
    """Whether a file is read."""
    try:
        read(path)
    except (ValueError, peer.SafetensorError):
        return False
    return True


@st.composite
def lying(draw: st.DrawFn) -> bytes:
    """A file whose lengths, places, types or shapes may be wrong in one place or several."""
    header: dict[str, Any] = {}
    end = 0
    for name in draw(st.lists(st.sampled_from("abcd"), max_size=3, unique=True)):
        code = draw(
            st.sampled_from([*CODES, "F33"]) if draw(st.integers(0, 9)) == 0 else st.sampled_from([*CODES])
        )
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        begin, end = end, end + int(np.prod(shape)) * CODES.get(code, 1)
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [begin, end]}
    for entry in header.values():
        wrong = draw(st.sampled_from(["", "", "", "begin", "end", "shape", "length", "missing", "negative"]))
        if wrong in ("begin", "end"):
            entry["data_offsets"][wrong == "end"] += draw(st.integers(-3, 3))
        elif wrong == "shape":
            entry["shape"] = [*entry["shape"], draw(st.integers(0, 1 << 62))]
        elif wrong == "length":
            entry["data_offsets"].append(0)
        elif wrong == "missing":
            del entry[draw(st.sampled_from(sorted(entry)))]
        elif wrong == "negative":
            entry["shape"] = [-1, *entry["shape"]]
    text = json.dumps(header).encode()
    data = bytes(max(0, end + draw(st.sampled_from([0, 0, 0, 0, -1, 1]))))
    length = len(text) + draw(st.sampled_from([0, 0, 0, 0, 0, -1, 1, 1 << 40]))
    return max(0, length).to_bytes(8, "little") + text + data


@settings(QUICK, max_examples=150)
@given(data=lying())
def test_both_refuse_the_same_files(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    assert verdict(ours.read, path) == verdict(theirs.load_file, path)
