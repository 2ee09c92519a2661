"""Promises of mnist_mini, mnist and idx, on sound files."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from data_root import real_data
from modules import module_at
from pdnn import datasets
from pdnn.data import Dataset
from processes import Completed

Array = npt.NDArray[Any]
CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array: Array) -> bytes:
    code = CODES[array.dtype.str[1:]]
    return (
        bytes([0, 0, code, array.ndim])
        + np.array(array.shape, ">u4").tobytes()
        + array.astype(array.dtype.newbyteorder(">")).tobytes()
    )


def write_set(
    folder: Path, train: int = 6, test: int = 4, names: tuple[str, str] = ("train", "t10k"), end: str = ""
) -> Array:
    """Four IDX files with random images of 5 x 7; returns the training images."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (train + test, 5, 7), dtype=np.uint8)
    for name, rows in zip(names, (slice(train), slice(train, None)), strict=True):
        for kind, array in (
            ("images-idx3", images[rows]),
            ("labels-idx1", np.arange(train + test, dtype=np.uint8)[rows]),
        ):
            data = idx_bytes(array)
            (folder / f"{name}-{kind}-ubyte{end}").write_bytes(gzip.compress(data) if end == ".gz" else data)
    return images[:train]


def test_loaders_import_nothing_but_numpy_until_they_need_it(run_python: Callable[..., Completed]) -> None:
    code = "import sys, pdnn.data, pdnn.datasets; pdnn.datasets.mnist_mini(); print(*sys.modules)"
    imported = set(run_python(["-c", code]).stdout.split())
    assert "numpy" in imported and not imported & {"pooch", "requests", "scipy", "matplotlib", "tqdm"}


def test_mnist_mini_is_every_fifth_image_split_by_a_fixed_permutation() -> None:
    train, test = datasets.mnist_mini()
    assert (len(train), len(test), train.sample_shape, str(train.x.dtype)) == (10_500, 3_500, (784,), "uint8")
    assert (train.scale, train.shift, datasets.mnist_mini(False, scale=1).scale) == (1 / 255, 0.0, 1.0)
    order = np.random.RandomState(0).permutation(14_000)
    images, labels = np.empty((14_000, 784), np.uint8), np.empty(14_000, np.uint8)
    images[order], labels[order] = np.concatenate([test.x, train.x]), np.concatenate([test.y, train.y])
    # of the bytes that scripts/make_mnist_mini.py prints
    assert hashlib.sha256(images.tobytes()).hexdigest() == (
        "f214f377c75fdbf2077459764524d2f2f1de8dad6d401c7a591ffc90a9fdec68"
    )
    assert hashlib.sha256(labels.tobytes()).hexdigest() == (
        "7766cd5fce8bff275a16a3c137bfa43f90d09d802f23c50995ae886e42048f43"
    )


def test_the_embedded_files_are_small_and_have_their_license_beside_them() -> None:
    folder = Path(datasets.__file__).parent / "embedded"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 3_000_000
    text = (folder / "README.md").read_text()
    assert "Creative Commons Attribution-ShareAlike 3.0" in " ".join(text.split())


@pytest.mark.long
def test_the_script_makes_the_embedded_files(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = module_at(root / "scripts" / "make_mnist_mini.py")
    monkeypatch.setattr("sys.argv", ["make_mnist_mini.py", str(real_data("mnist")), str(tmp_path)])
    script.main()
    for embedded in (Path(datasets.__file__).parent / "embedded").glob("*.gz"):
        assert gzip.decompress((tmp_path / embedded.name).read_bytes()) == gzip.decompress(
            embedded.read_bytes()
        )


def test_mnist_comes_from_the_folder_of_pdnn_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDNN_DATA", str(real_data("mnist").parent))
    train, test = datasets.mnist(download=False)
    assert (len(train), len(test)) == (60_000, 10_000)
    assert train.y[:5].tolist() == [5, 0, 4, 1, 9] and test.y[:5].tolist() == [7, 2, 1, 0, 4]
    assert np.bincount(train.y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


@pytest.mark.parametrize("end", ["", ".gz"])
def test_idx_reads_any_set_of_four_files(tmp_path: Path, end: str) -> None:
    images = write_set(tmp_path, end=end)
    train, test = datasets.idx(tmp_path)
    np.testing.assert_array_equal(train.x, images.reshape(6, 35))
    assert train.y.tolist() == list(range(6)) and test.y.tolist() == list(range(6, 10))
    assert train.scale == 1 / 255 and datasets.idx(tmp_path, train=True, scale=2).scale == 2
    only = datasets.idx(tmp_path, train=False, image=True)
    assert isinstance(only, Dataset) and only.sample_shape == (1, 5, 7) and len(only) == 4


def test_a_word_does_not_say_whether_samples_are_images(tmp_path: Path) -> None:
    """Images came of "False"."""
    write_set(tmp_path)
    for make in (partial(datasets.idx, tmp_path), datasets.mnist_mini):
        with pytest.raises(TypeError, match="image is 'False', expected True or False"):
            make(True, image="False")  # type: ignore[operator]
    assert datasets.idx(tmp_path, True, image=np.True_).sample_shape == (1, 5, 7)  # type: ignore[call-overload]


@pytest.mark.parametrize("names", [("emnist-digits-train", "emnist-digits-test"), ("train", "test")])
def test_idx_understands_other_names(tmp_path: Path, names: tuple[str, str]) -> None:
    write_set(tmp_path, names=names)
    for file in list(tmp_path.iterdir()):
        file.rename(tmp_path / file.name.replace("-idx", ".idx"))
    assert [len(part) for part in datasets.idx(tmp_path)] == [6, 4]


def test_idx_prefers_the_plain_file_and_refuses_two_sets(tmp_path: Path) -> None:
    write_set(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"damaged")
    assert len(datasets.idx(tmp_path, train=True)) == 6
    write_set(tmp_path, names=("letters-train", "letters-t10k"))
    with pytest.raises(ValueError, match=r"several train-images files, letters-train.*; expected one"):
        datasets.idx(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_set(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    assert len(datasets.idx(tmp_path, train=True)) == 6
    with pytest.raises(FileNotFoundError, match="has no t10k-labels file"):
        datasets.idx(tmp_path)


@pytest.mark.parametrize("dtype", list(CODES))
def test_read_idx_knows_every_type_in_any_number_of_dimensions(tmp_path: Path, dtype: str) -> None:
    for shape in ((5,), (3, 2), (2, 3, 4), (2, 1, 3, 2)):
        array = (np.arange(np.prod(shape)) * 3 % 100).astype(dtype).reshape(shape)
        (tmp_path / "a").write_bytes(idx_bytes(array))
        read = datasets.read_idx(tmp_path / "a")
        assert read.dtype == array.dtype and read.dtype.isnative
        np.testing.assert_array_equal(read, array)


def test_floats_in_idx_are_not_scaled(tmp_path: Path) -> None:
    write_set(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx_bytes(np.full((6, 3), 0.5, np.float32)))
    train = datasets.idx(tmp_path, train=True)
    assert train.scale == 1.0 and train.x.dtype == np.float32 and train.sample_shape == (3,)
    with pytest.raises(ValueError, match=r"train-images.*shape \(3,\), expected images"):
        datasets.idx(tmp_path, train=True, image=True)
