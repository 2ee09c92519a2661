"""Promises of the loaders of data sets, on sound files."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_root import real_data
from pdnn import datasets
from pdnn.data import Dataset
from pdnn.datasets.images import resize

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


def test_the_embedded_files_are_small_and_have_their_licence_beside_them() -> None:
    folder = Path(datasets.__file__).parent / "embedded"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 3_000_000
    assert "Creative\nCommons Attribution-ShareAlike 3.0" in (folder / "README.md").read_text()


def test_the_script_makes_the_embedded_files(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("make_mnist_mini", root / "scripts" / "make_mnist_mini.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
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


def test_images_are_views_of_what_was_read() -> None:
    flat, image = datasets.mnist_mini(True), datasets.mnist_mini(True, image=True)
    assert image.sample_shape == (1, 28, 28)
    np.testing.assert_array_equal(flat.x, image.x.reshape(10_500, 784))
    assert flat.x.base is not None and image.x.base is not None


def interpolated(image: Array, size: int) -> Array:
    """One pixel at a time, in float64, from the definition."""
    out = np.empty((size, size))
    for i, j in np.ndindex(out.shape):
        corner = []
        for k, old in ((i, image.shape[0]), (j, image.shape[1])):
            place = min(max((k + 0.5) * old / size - 0.5, 0.0), old - 1.0)
            corner.append((int(place), min(int(place) + 1, old - 1), place - int(place)))
        (top, bottom, v), (left, right, h) = corner
        upper = image[top, left] * (1 - h) + image[top, right] * h
        lower = image[bottom, left] * (1 - h) + image[bottom, right] * h
        out[i, j] = upper * (1 - v) + lower * v
    return out


@settings(deadline=None)
@given(height=st.integers(1, 9), width=st.integers(1, 9), size=st.integers(1, 12))
def test_resize_interpolates_between_pixel_centres(height: int, width: int, size: int) -> None:
    images = np.random.default_rng(height).random((2, 3, height, width))
    resized = resize(images, size)
    assert resized.dtype == np.float32 and resized.shape == (2, 3, size, size)
    np.testing.assert_allclose(resized[1, 2], interpolated(images[1, 2], size), atol=1e-6)


def test_resize_in_blocks_equals_resize_at_once() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2049, 1, 3, 3), dtype=np.uint8)
    np.testing.assert_array_equal(
        resize(images, 4)[[0, 1023, 1024, 2048]], resize(images[[0, 1023, 1024, 2048]], 4)
    )
    with pytest.raises(ValueError, match="size is 0, expected at least 1"):
        resize(images, 0)


def test_resized_digits_equal_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch where it is installed")
    raw, resized = datasets.mnist_mini(False, image=True), datasets.mnist_mini(False, image=True, size=32)
    pixels = torch.from_numpy(raw.gather(slice(200))[0])
    theirs = torch.nn.functional.interpolate(pixels, size=(32, 32), mode="bilinear", align_corners=False)
    assert resized.x.dtype == np.float32 and resized.sample_shape == (1, 32, 32)
    np.testing.assert_allclose(resized.gather(slice(200))[0], theirs.numpy(), atol=1e-6)
    assert datasets.mnist_mini(False, size=32).sample_shape == (1024,)


def test_ex4_keeps_the_order_of_the_file_and_counts_classes_from_0() -> None:
    folder = real_data("ex4-digits")
    train, test = datasets.ex4(folder)
    assert (len(train), len(test), train.sample_shape, str(train.x.dtype)) == (5000, 0, (400,), "float64")
    halves = train.x[:2500].sum(), train.x[2500:].sum()
    np.testing.assert_allclose(halves, (132986.76649618745, 129691.49366349436), rtol=1e-13)
    assert np.bincount(train.y).tolist() == [500] * 10 and train.y[0] == 9  # the digit 0 comes first


def test_the_pretrained_weights_of_ex4_reach_the_published_precision() -> None:
    folder = real_data("ex4-digits")
    data = datasets.ex4(folder, train=True)
    theta1, theta2 = datasets.ex4_weights(folder)
    np.testing.assert_allclose(
        (theta1.sum(), theta2.sum()), (9.242643928120069, -100.08344384930399), rtol=1e-13
    )
    assert theta1.flags.c_contiguous and theta2.flags.c_contiguous

    def layer(a: Array, theta: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-(a @ theta[:, 1:].T + theta[:, 0]))))

    output = layer(layer(data.x, theta1), theta2)
    hot = np.eye(10)[data.y]
    cost = -(hot * np.log(output) + (1 - hot) * np.log(1 - output)).sum() / 5000
    assert round(cost, 6) == 0.287629 and (output.argmax(1) == data.y).mean() == 0.9752


def test_ex4_can_hold_rows_out() -> None:
    train, test = datasets.ex4(real_data("ex4-digits"), test=0.2, seed=1)
    order = np.random.RandomState(1).permutation(5000)
    whole = datasets.ex4(real_data("ex4-digits"), train=True)
    np.testing.assert_array_equal(test.x, whole.x[order[:1000]])
    np.testing.assert_array_equal(train.y, whole.y[order[1000:]])


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_matrices_equal_those_that_scipy_wrote(tmp_path: Path, dtype: str, compress: bool) -> None:
    io = pytest.importorskip("scipy.io", reason="writes the files to read")
    a, b = np.arange(-3, 9).astype(dtype).reshape(3, 4), np.array([[7]], dtype)
    other = {"text": "words", "cell": np.array([1, "x"], object), "record": {"field": 1.0}, "complex": a * 1j}
    io.savemat(tmp_path / "m.mat", {"a": a, **other, "b": b}, do_compression=compress)
    read_b, read_a = datasets.matlab.read_mat(tmp_path / "m.mat", "b", "a")
    assert read_a.dtype == np.float64 and read_a.flags.c_contiguous
    np.testing.assert_array_equal(read_a, a.astype(np.float64))
    np.testing.assert_array_equal(read_b, b.astype(np.float64))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("x_type", "y_type"), [("u1", "i8"), (">f4", ">i2"), ("f8", "f8")])
def test_npz_reads_what_numpy_wrote(tmp_path: Path, save: Any, order: Any, x_type: str, y_type: str) -> None:
    x = np.asarray(np.arange(24).reshape(4, 2, 3).astype(x_type), order=order)
    y = np.arange(8).reshape(4, 2).astype(y_type)
    file = tmp_path / "set.npz"
    save(file, x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])
    train, test = datasets.npz(file, scale=0.5)
    assert train.x.flags.c_contiguous and train.x.dtype.isnative and train.scale == 0.5
    np.testing.assert_array_equal(train.x, x)
    np.testing.assert_array_equal(train.y, y)
    assert len(test) == 1 and len(datasets.npz(file, train=False)) == 1


def test_one_part_of_npz_is_read_without_the_other(tmp_path: Path) -> None:
    np.savez(tmp_path / "half.npz", x_test=np.zeros((2, 3)), y_test=np.zeros(2, np.int64))
    assert len(datasets.npz(tmp_path / "half.npz", train=False)) == 2


def test_paths_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PDNN_DATA", raising=False)
    for load, words in (
        (datasets.npz, "nothing.npz"),
        (datasets.read_idx, "nothing.npz"),
        (datasets.ex4, "nothing.npz"),
    ):
        with pytest.raises(FileNotFoundError, match=words):
            load(tmp_path / "nothing.npz")
    with pytest.raises(FileNotFoundError, match=r"has none of mnistdata.mat, ex4data1.mat"):
        datasets.ex4(tmp_path)
    with pytest.raises(FileNotFoundError, match="no path was given and PDNN_DATA is not set"):
        datasets.ex4()
