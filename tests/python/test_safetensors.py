"""The safetensors layout: round trips, the package of that name as a peer, and files that lie."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pdnn import models, nn
from pdnn.cli import values
from pdnn.files import safetensors
from pdnn.files.atomic import replacing

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array([1, 2], np.int64),
    "empty": np.zeros((0, 3)),
}


def written(path: Path) -> bytes:
    safetensors.write(path, ARRAYS, {"key": "value"})
    return path.read_bytes()


def header_and_data(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_arrays_and_metadata_come_back(tmp_path: Path) -> None:
    written(tmp_path / "file")
    arrays, metadata = safetensors.read(tmp_path / "file")
    assert metadata == {"key": "value"}
    for name, want in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], want)
        assert arrays[name].dtype == want.dtype
        arrays[name] += 1  # writable


@given(array=hnp.arrays(st.sampled_from([np.float32, np.float64, np.uint8]), hnp.array_shapes(min_side=0)))
def test_any_array_comes_back(array: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    safetensors.write(path, {"x": array.T}, {})
    np.testing.assert_array_equal(safetensors.read(path)[0]["x"], array.T)


def test_the_safetensors_package_reads_and_writes_the_same(tmp_path: Path) -> None:
    peer = pytest.importorskip("safetensors.numpy")
    model = nn.Sequential(nn.Linear(7, 3), nn.Linear(3, 2), seed=0)
    model.save(tmp_path / "ours")
    theirs = peer.load_file(tmp_path / "ours")
    for name, parameter in model.named_parameters():
        np.testing.assert_array_equal(theirs[name], parameter.data)
    peer.save_file({name: array + 1 for name, array in theirs.items()}, tmp_path / "theirs")
    before = model.flat_parameters.copy()
    model.load(tmp_path / "theirs")
    np.testing.assert_array_equal(model.flat_parameters, before + 1)


def test_a_file_that_cannot_take_its_place_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        written(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_file_cut_anywhere_is_refused_by_name(tmp_path: Path) -> None:
    whole = written(tmp_path / "file")
    for length in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(ValueError, match="cut"):
            safetensors.read(tmp_path / "cut")


def test_metadata_may_be_long(tmp_path: Path) -> None:
    """As the history of a checkpoint of many epochs on many ranks."""
    words = {"words": "x" * 100_000_000}
    safetensors.write(tmp_path / "file", {"x": np.ones(2)}, words)
    arrays, found = safetensors.read(tmp_path / "file")
    assert found == words and arrays["x"].tolist() == [1, 1]


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ((2**63).to_bytes(8, "little") + b"{}", "cannot hold a header"),
        (header_and_data({"x": F32}, bytes(9)), "something follows"),
        (header_and_data({"x": {**F32, "dtype": "F8"}}, bytes(8)), "dtype F8"),
        (header_and_data({"x": {**F32, "shape": [3]}}, bytes(8)), "in 8 bytes"),
        (header_and_data({"x": {**F32, "shape": [2**62, 2**62]}}, bytes(8)), "in 8 bytes"),
        (header_and_data({"x": {**F32, "shape": [-2, -1]}}, bytes(8)), "whole numbers"),
        (header_and_data({"x": {**F32, "shape": [True, 2]}}, bytes(8)), "whole numbers"),
        (header_and_data({"x": F32, "y": F32}, bytes(8)), "expected 8"),
        (header_and_data({"x": {**F32, "data_offsets": [4, 12]}}, bytes(12)), "starts at byte 4"),
        (header_and_data({"x": {**F32, "shape": [1] * 70 + [2]}}, bytes(8)), "none of an array"),
        (header_and_data({"x": {**F32, "shape": [0, 2**64], "data_offsets": [0, 0]}}), "none of an array"),
        (header_and_data({"x": {**F32, "dtype": ["F32"]}}, bytes(8)), "dtype"),
        (header_and_data({"x": {"dtype": "F32"}}), "header"),
        ((10_005).to_bytes(8, "little") + b'{"x":' + b"9" * 9999 + b"}", "header"),
        (header_and_data(["x"]), "header"),
        (header_and_data({"__metadata__": "words"}), "header"),
        (header_and_data({"__metadata__": {"key": 3}}), "header"),
        (header_and_data({"x": 3}), "header"),
        (b"\x02" + bytes(7) + b"\xff\xff", "header"),
        (b"PK\x03\x04 this is a zip file, or so", "cannot hold"),
        (header_and_data({}).replace(b"{}", b"[" * 2), "header"),
    ],
)
def test_lying_files_are_refused_by_name(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "liar"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as caught:
        safetensors.read(path)
    assert "liar" in str(caught.value)


def test_a_failing_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = written(path)
    with pytest.raises(TypeError, match="complex128"):
        safetensors.write(path, {"x": np.zeros(1), "z": np.zeros(1, complex)}, {})
    with pytest.raises(TypeError, match="file: metadata 'key' is 3, expected a string"):
        safetensors.write(path, {"x": np.zeros(1)}, {"key": 3})  # type: ignore[dict-item]
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_what_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link, file = tmp_path / "link", tmp_path / "folder" / "file"
    link.symlink_to(file)
    for _ in range(2):  # the first time there is no file
        assert written(link) == file.read_bytes()
        assert link.is_symlink()
    assert [*(tmp_path / "folder").iterdir()] == [file]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """As root, /dev/null was."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(pipe.read_bytes)
        safetensors.write(pipe, ARRAYS, {"key": "value"})
        assert received.result(timeout=60) == written(tmp_path / "file")
    assert pipe.is_fifo()
    assert values.output(str(pipe)) == str(pipe)
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        safetensors.write(tmp_path, ARRAYS, {})
    assert {*tmp_path.iterdir()} == {pipe, tmp_path / "file"}


def test_a_full_disk_is_told_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        safetensors.write("/dev/full", ARRAYS, {})

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path / 'file'}'"):
        written(tmp_path / "file")
    assert not [*tmp_path.iterdir()]


def test_a_file_that_is_replaced_while_it_is_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was sound was said to be cut, if it had been replaced by one of another size."""
    path, real = tmp_path / "file", open
    safetensors.write(path, {"a": np.ones(100)}, {})

    def before(*arguments: Any) -> Any:
        monkeypatch.undo()
        safetensors.write(path, ARRAYS, {})
        return real(*arguments)

    monkeypatch.setattr("builtins.open", before)
    assert safetensors.read(path)[0].keys() == ARRAYS.keys()


def test_who_may_read_a_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A private file was public when it had been written again."""
    before = os.umask(0o027)
    try:
        written(tmp_path / "file")
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
        (tmp_path / "file").chmod(0o600)
        # The mask is the process's: other threads that make files meanwhile had none.
        monkeypatch.setattr("os.umask", None)
        written(tmp_path / "file")
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    finally:
        monkeypatch.undo()
        os.umask(before)


def test_a_name_of_any_length_that_the_system_takes_is_written(tmp_path: Path) -> None:
    name = "é" * 125 + ".file"  # 255 bytes
    written(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with pytest.raises(OSError, match=f"too long: '{tmp_path / name}s'"):
        written(tmp_path / (name + "s"))


def test_a_folder_that_cannot_be_flushed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file was written, and training ended by an error: some network file systems refuse it."""
    fsync = os.fsync

    def refuse_folders(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(file)

    monkeypatch.setattr("os.fsync", refuse_folders)
    written(tmp_path / "file")
    assert "a" in safetensors.read(tmp_path / "file")[0]


def test_a_model_comes_back_with_the_metadata_it_was_saved_with(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 1), seed=0)
    model.save(tmp_path / "file", {"key": "value", "pdnn.architecture": "another"})
    again, metadata = models.read_model(tmp_path / "file")
    assert again.fingerprint() == model.fingerprint()
    assert metadata["key"] == "value"
    assert "Linear" in metadata["pdnn.architecture"]


def test_a_file_of_pytorch_is_refused(tmp_path: Path) -> None:
    """A square weight came transposed."""
    square = np.arange(4, dtype=np.float32).reshape(2, 2)
    safetensors.write(tmp_path / "file", {"0.weight": square, "0.bias": square[0]}, {"format": "pt"})
    model = nn.Sequential(nn.Linear(2, 2), seed=0)
    before = model.fingerprint()
    with pytest.raises(ValueError, match=r"file: its tensors have PyTorch's shapes; .*format=\"torch\""):
        model.load(tmp_path / "file")
    assert model.fingerprint() == before
    model.load_state_dict(safetensors.read(tmp_path / "file")[0], format="torch")
    np.testing.assert_array_equal(model.state_dict()["0.weight"], square.T)


def test_a_file_that_may_be_of_pytorch_is_refused(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), seed=0)
    before, state = model.fingerprint(), model.state_dict()
    safetensors.write(tmp_path / "file", state, {"epoch": "3"})
    with pytest.raises(ValueError, match=r"file: its weights are square, .*, format=\"torch\"\), or format="):
        model.load(tmp_path / "file")
    state["0.weight"][...] = 0
    model.save(tmp_path / "file")
    model.load(tmp_path / "file")
    safetensors.write(tmp_path / "file", {**state, "0.weight": np.eye(3), "2.weight": np.eye(3)}, {})
    model.load(tmp_path / "file")  # the same in any order
    same = np.full((3, 3), np.nan)  # also of what is no number
    safetensors.write(tmp_path / "file", {**state, "0.weight": same, "2.weight": same}, {})
    model.load(tmp_path / "file")
    assert model.fingerprint() != before


def test_a_state_that_does_not_fit_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    nn.Sequential(nn.Linear(2, 3)).save(path)
    other = nn.Sequential(nn.Linear(2, 1), seed=0)
    before = other.fingerprint()
    with pytest.raises(ValueError, match=r"file: 0\.weight has shape \(2, 3\), expected \(2, 1\)"):
        other.load(path)
    assert other.fingerprint() == before
    arrays, metadata = safetensors.read(path)
    safetensors.write(path, {"0.w": arrays["0.weight"], "0.bias": arrays["0.bias"]}, metadata)
    for load in (models.load_model, OneLinear().load):
        with pytest.raises(ValueError, match=r"file: missing .*weight"):
            load(path)


class OneLinear(nn.Module):
    """A model by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)


def test_a_pipe_is_written_to() -> None:
    """As the /dev/stdout of a shell's pipe, whose real path is none."""
    read, write = os.pipe()
    with replacing(f"/dev/fd/{write}") as file:
        file.write(b"x")
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"x"
