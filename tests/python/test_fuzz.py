"""The inputs that fuzzing keeps, read again: each is taken or refused, as its reader says."""

from __future__ import annotations

import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import fuzz_targets
from fuzz_targets import TARGETS, seeds
from pdnn import datasets

CORPUS = Path(__file__).parents[1] / "corpus"


def test_every_target_has_a_corpus() -> None:
    assert sorted(path.name for path in CORPUS.iterdir()) == sorted(TARGETS)


def test_every_reader_of_data_is_a_target() -> None:
    within = {"cifar_files": ["cifar_batches", "matlab"], "mnist_files": ["idx_files"]}
    files = [module.name for module in pkgutil.iter_modules(datasets.__path__) if "files" in module.name]
    assert len(files) >= 5
    for readers in (within.get(name, [name]) for name in files):
        assert all(hasattr(fuzz_targets, name) for name in readers), readers


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_are_taken_or_refused(name: str) -> None:
    inputs = [path.read_bytes() for path in sorted(CORPUS.joinpath(name).iterdir())]
    assert inputs
    for data in (*seeds(name), *inputs, b""):
        TARGETS[name](data)


def changed(data: bytes, change: Any) -> bytes:
    """A safetensors file with other words in its metadata."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    (key,) = (key for key in header["__metadata__"] if key.startswith("pdnn."))
    words = change if isinstance(change, str) else {**json.loads(header["__metadata__"][key]), **change}
    header["__metadata__"][key] = words if isinstance(words, str) else json.dumps(words)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


@pytest.mark.parametrize("name", ["history", "sweep", "machine", "model", "checkpoint"])
def test_deep_nesting_is_refused(name: str) -> None:
    deep = "[" * 6000
    if name in ("model", "checkpoint"):
        assert not TARGETS[name](changed(next(seeds(name)), deep))
    else:
        assert not TARGETS[name](f"a = {deep}".encode() if name == "machine" else deep.encode())


@pytest.mark.parametrize("digits", [26, 5000])
def test_a_machine_of_more_cores_than_can_be_counted_is_refused(digits: int) -> None:
    cluster = (Path(__file__).parents[2] / "docs" / "cluster.toml").read_text()
    assert not TARGETS["machine"](re.sub("cores = [0-9]+", f"cores = {'3' * digits}", cluster).encode())


@pytest.mark.parametrize("features", [1 << 30, 10**12, 10**40])
def test_a_model_that_its_file_cannot_hold_is_not_allocated(features: int) -> None:
    layers = [{"type": "Linear", "in_features": features, "out_features": 2, "bias": True}]
    assert not TARGETS["model"](changed(next(seeds("model")), {"layers": layers}))


@pytest.mark.parametrize(
    "words",
    [{"epoch": float("inf")}, {"classes": [[1], [2, 3]]}, {"classes": 5}, {"optimizer": {"steps": 1 << 70}}],
    ids=str,
)
def test_a_checkpoint_with_wrong_words_changes_nothing(words: dict[str, Any]) -> None:
    assert not TARGETS["checkpoint"](changed(next(seeds("checkpoint")), words))
