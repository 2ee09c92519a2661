"""What is fuzzed: readers of files and of codes, each a function of any bytes, and small sound ones.

A target returns where its reader takes the bytes, or refuses them as its documentation says. Anything else is
a defect: another error, a crash, memory beyond the limit.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np

import pdnn
from pdnn import codec, nn, optim, strategies
from pdnn.checkpoint import Content
from pdnn.data import Dataset
from pdnn.datasets import cifar_batches, csv_files, idx_files, matlab, npz_files
from pdnn.estimate import machine
from pdnn.files import safetensors
from pdnn.history import History
from pdnn.models import load_model
from pdnn.sweep.results import Results

Target = Callable[[bytes], bool]

FOLDER = tempfile.TemporaryDirectory()


def reader(read: Callable[[Path], object], name: str = "file", named: bool = True) -> Target:
    """Reads a file of these bytes; a refusal has its name."""
    file = Path(FOLDER.name, name)
    opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)  # once: opening takes longer than some readers

    def target(data: bytes) -> bool:
        """Whether it is taken."""
        os.pwrite(opened, data, 0)
        os.ftruncate(opened, len(data))
        try:
            read(file)
        except ValueError as error:
            if named and str(file) not in str(error):
                raise AssertionError("the refusal does not name the file") from error
            return False
        return True

    return target


def _model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), seed=1)


def _trainer() -> pdnn.Trainer:
    model = _model()
    rule = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), rule, strategy="serial")


@cache
def _kept() -> pdnn.Trainer:
    """A trainer for many inputs: to make one takes longer than to refuse a checkpoint."""
    return _trainer()


def _state(trainer: pdnn.Trainer) -> tuple[object, ...]:
    arrays = (trainer.model.flat_parameters, trainer.model.flat_buffers, *trainer.optimizer.core.state)
    return *(array.tobytes() for array in arrays), trainer.epoch, trainer.step, str(trainer.history.history)


def checkpoint(file: Path) -> None:
    """A checkpoint is taken, or the training stays as it was."""
    trainer = _kept()
    before = _state(trainer)
    try:
        trainer.load(file)
    except ValueError as error:
        if _state(trainer) != before:
            raise AssertionError("a refused checkpoint changed the training") from error
        raise
    _kept.cache_clear()


CODECS = ("fp16", "bf16", "int8", "int4", "1bit", "topk:0.3", "powersgd:1")
LENGTH = 37


def decode(data: bytes) -> None:
    """Codes of another rank: the first byte says by which codec."""
    if data:
        spec = codec.parse(CODECS[data[0] % len(CODECS)])
        with suppress(ValueError):
            spec.decode(np.frombuffer(data[1:], np.uint8), (LENGTH,))


def containers(data: bytes) -> None:
    """Samples and labels of any NumPy type, order and shape, of four bytes each; some are trained with."""
    if len(data) < 8:
        return
    arrays = []
    for kind, rows, columns, layout in (data[:4], data[4:8]):
        dtype = np.dtype("bBhHiIlLqQefdFD?SUOV"[kind % 20] + ("4" if kind % 20 in (16, 17, 19) else ""))
        shape = (rows % 7, columns % 5, layout % 3 + 1)[: layout % 4]
        count = int(np.prod(shape)) * (dtype.itemsize if dtype.kind != "O" else 1)
        if dtype.kind == "O":
            array = np.array([*data[8 : 8 + count], *[None] * count], object)[:count]
        elif dtype.kind == "U":  # in which not every number is a letter
            array = np.array([f"{number:3}" for number in [*data[8:], *[0] * count]][: count // 16], dtype)
        else:
            array = np.frombuffer((data[8:] + bytes(count))[:count], dtype)
        array = array.reshape(shape) if dtype.kind != "V" else array
        arrays.append(array[::-1] if layout & 16 and array.ndim else array)
    with suppress(ValueError, TypeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data_set = Dataset(*arrays)
        if len(data_set) and crc32(data) % 8 == 0:  # a training takes ten times as long as the rest
            model = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(data_set.sample_shape)), 4), seed=0)
            rule = optim.SGD(model.parameters(), lr=0.1)
            trainer = pdnn.Trainer(
                model, nn.CrossEntropyLoss(), rule, strategy="serial", on_nonfinite="ignore"
            )
            trainer.fit(data_set, 1, 3, verbose=False)


def words(data: bytes) -> None:
    """Spellings of strategies and codecs."""
    text = data.decode("utf-8", "replace")
    with suppress(ValueError):
        codec.parse(text)
    with suppress(ValueError):
        strategies.parse(text)


def _parsed(parse: Callable[[bytearray, str], object]) -> Callable[[Path], object]:
    return lambda file: parse(bytearray(file.read_bytes()), str(file))


TARGETS: dict[str, Target] = {
    "idx": reader(idx_files.read_idx),
    "idx-gzip": reader(idx_files.read_idx, "file.gz"),
    "npz": reader(npz_files.npz),
    "csv": reader(csv_files.csv),
    "matlab": reader(lambda file: matlab.read_mat(file, "X")),
    "cifar-records": reader(_parsed(cifar_batches.parse_records)),
    "cifar-pickle": reader(_parsed(cifar_batches.parse_pickle)),
    "safetensors": reader(safetensors.read),
    "model": reader(load_model, named=False),
    "checkpoint": reader(checkpoint),
    "history": reader(History.load),
    "sweep": reader(Results.load),
    "machine": reader(machine.load),
    "decode": decode,
    "containers": containers,
    "words": words,
}


def seeds(name: str) -> Iterator[bytes]:
    """Small sound inputs of a target."""
    file = Path(FOLDER.name, "seed")
    rng = np.random.default_rng(0)
    if name.startswith("idx"):
        for code, dtype in ((8, "u1"), (13, ">f4")):
            data = bytes([0, 0, code, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + np.arange(6).astype(dtype).tobytes()
            yield gzip.compress(data, mtime=0) if name == "idx-gzip" else data
    elif name == "npz":
        parts = {"x_train": np.ones((2, 3), np.uint8), "y_train": np.array([0, 1])}
        parts |= {"x_test": np.ones((1, 3), np.float32), "y_test": np.array([1])}
        for save in (np.savez, np.savez_compressed):
            buffer = io.BytesIO()
            save(buffer, **parts)
            yield buffer.getvalue()
    elif name == "csv":
        yield b"a,b,price\n1,2,3.5\n\n-1e3,+.5,7\n"
        yield b'1;"2";red\r\n3;4;blue\r\n'
    elif name == "matlab":
        from scipy.io import savemat

        for compressed in (False, True):
            buffer = io.BytesIO()
            savemat(buffer, {"X": np.arange(6.0).reshape(2, 3)}, do_compression=compressed)
            yield buffer.getvalue()
    elif name == "cifar-records":
        yield bytes([3]) + bytes(3072)
    elif name == "cifar-pickle":
        batch = {b"labels": [3], b"data": np.zeros((1, 3072), np.uint8)}
        yield pickle.dumps(batch, protocol=2).replace(b"numpy._core", b"numpy.core")
    elif name == "safetensors":
        safetensors.write(file, {"a": rng.random((2, 2)), "b": np.zeros(0, np.int64)}, {"key": "value"})
        yield file.read_bytes()
    elif name == "model":
        _model().save(file)
        yield file.read_bytes()
    elif name == "checkpoint":
        trainer = _trainer()
        trainer.fit(Dataset(rng.random((4, 2)), np.array([0, 1, 0, 1])), 1, 2, verbose=False)
        trainer.save(file)
        content = Content.read(file)
        safetensors.write(file, content.arrays, content.metadata)  # none gets past a checksum
        yield file.read_bytes()
    elif name == "history":
        history = History()
        history.history = {"loss": [0.5]}
        yield json.dumps(history.to_dict()).encode()
    elif name == "sweep":
        yield json.dumps({"format": "pdnn sweep 2", "settings": {"data": "mnist-mini"}, "runs": []}).encode()
    elif name == "machine":
        yield Path(__file__).parents[1].joinpath("docs", "cluster.toml").read_bytes()
    elif name == "decode":
        for number, spec in enumerate(CODECS):
            code = codec.parse(spec).encode(rng.standard_normal(LENGTH).astype(np.float32))
            yield bytes([number]) + np.asarray(code).tobytes()
    elif name == "containers":
        yield bytes([11, 6, 3, 2, 4, 6, 1, 1]) + bytes(range(64))
        yield bytes([1, 6, 3, 3, 11, 6, 4, 2]) + bytes(range(64))
    elif name == "words":
        for text in (
            "serial",
            "team:2",
            "pool:2/8",
            "ddp+team:2",
            "average:3:int8",
            "pipeline:2/4:gpipe",
            "topk:0.1",
        ):
            yield text.encode()


if __name__ == "__main__":  # the corpus is made anew: python tests/fuzz_targets.py FOLDER
    for name in TARGETS:
        folder = Path(sys.argv[1], name)
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(seeds(name)):
            folder.joinpath(f"seed{number}").write_bytes(data)
