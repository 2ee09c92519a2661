"""Promises of ex4, its .mat files, and npz, on sound files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pdnn
from data_root import real_data
from pdnn import datasets, exercises
from pdnn.cli import specs
from pdnn.datasets.matlab import read_mat

Array = npt.NDArray[Any]


def test_ex4_keeps_the_order_of_the_file_and_counts_classes_from_0() -> None:
    folder = real_data("ex4-digits")
    train, test = exercises.ex4(folder)
    assert (len(train), len(test), train.sample_shape, str(train.x.dtype)) == (5000, 0, (400,), "float64")
    halves = train.x[:2500].sum(), train.x[2500:].sum()
    np.testing.assert_allclose(halves, (132986.76649618745, 129691.49366349436), rtol=1e-13)
    assert np.bincount(train.y).tolist() == [500] * 10 and train.y[0] == 9  # the digit 0 comes first


def test_ex4_is_made_from_mnist_where_its_file_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = real_data("ex4-digits")
    published = exercises.ex4(folder, train=True)
    (tmp_path / "mnist").symlink_to(real_data("mnist"))
    monkeypatch.setenv("PDNN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made, nothing = exercises.ex4(download=False)
    assert len(nothing) == 0 and made.x.flags.c_contiguous and made.y.dtype == published.y.dtype
    np.testing.assert_array_equal(made.y, published.y)
    np.testing.assert_allclose(made.x, published.x, rtol=0, atol=2e-15)
    (tmp_path / "ex4-digits").symlink_to(folder)
    assert (exercises.ex4(train=True).x == published.x).all(), "the published file comes first"


def test_ex4_refuses_digits_that_are_not_mnists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(
        struct.pack(">4I", 0x803, 3, 28, 28) + bytes(3 * 784)
    )
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 3) + bytes(3))
    monkeypatch.setenv("PDNN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ValueError, match="expected 500 images or more of each digit"):
        exercises.ex4(download=False)


@pytest.mark.parametrize("made", [False, True], ids=["published digits", "made from MNIST"])
def test_the_pretrained_weights_of_ex4_reach_the_published_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    folder = real_data("ex4-digits")
    if made:
        (tmp_path / "mnist").symlink_to(real_data("mnist"))
        monkeypatch.setenv("PDNN_DATA", str(tmp_path))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = exercises.ex4(None if made else folder, train=True, download=False)
    theta1, theta2 = exercises.ex4_weights(folder)
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
    train, test = exercises.ex4(real_data("ex4-digits"), test=0.2, seed=1)
    order = np.random.RandomState(1).permutation(5000)
    whole = exercises.ex4(real_data("ex4-digits"), train=True)
    np.testing.assert_array_equal(test.x, whole.x[order[:1000]])
    np.testing.assert_array_equal(train.y, whole.y[order[1000:]])


@pytest.mark.parametrize("given", [{"train": "test"}, {"train": [0]}, {"seed": -1}, {"test": 2}], ids=str)
def test_ex4_refuses_what_is_no_part_or_draw(tmp_path: Path, given: dict[str, Any]) -> None:
    io = pytest.importorskip("scipy.io", reason="writes the file to read")
    io.savemat(tmp_path / "ex4data1.mat", {"X": np.eye(10, 400), "y": np.arange(1, 11)[:, None]})
    assert len(exercises.ex4(tmp_path, train=True)) == 10
    with pytest.raises((TypeError, ValueError), match=f"^ex4: {next(iter(given))} "):
        exercises.ex4(tmp_path, **given)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_matrices_equal_those_that_scipy_wrote(tmp_path: Path, dtype: str, compress: bool) -> None:
    io = pytest.importorskip("scipy.io", reason="writes the files to read")
    a, b = np.arange(-3, 9).astype(dtype).reshape(3, 4), np.array([[7]], dtype)
    other = {"text": "words", "cell": np.array([1, "x"], object), "record": {"field": 1.0}, "complex": a * 1j}
    io.savemat(tmp_path / "m.mat", {"a": a, **other, "b": b}, do_compression=compress)
    read_b, read_a = read_mat(tmp_path / "m.mat", "b", "a")
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


@pytest.mark.parametrize("x_type", ["?", "i2", "f2", "i8"])
@pytest.mark.parametrize("y", [[True, False], ["ü", "a"], [0.5, 1.5], [1, 0]], ids=str)
def test_npz_takes_what_a_dataset_takes(tmp_path: Path, x_type: str, y: list[object]) -> None:
    x, file = np.eye(2, 3).astype(x_type), tmp_path / "set.npz"
    np.savez(file, x_train=x, y_train=y, x_test=x, y_test=y)
    for part in datasets.npz(file):
        same = pdnn.data.Dataset(x, y)
        for name in ("x", "y", "classes"):
            ours, theirs = getattr(part, name), getattr(same, name)
            np.testing.assert_array_equal(ours, theirs)
            assert theirs is None or ours.dtype == theirs.dtype
        assert part.integers == same.integers


def test_both_parts_of_npz_number_names_alike(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x_train=np.eye(3), y_train=[*"cab"], x_test=np.eye(2, 3), y_test=[*"db"])
    train, test = datasets.npz(tmp_path / "set.npz")
    assert train.y.tolist() == [2, 0, 1] and test.y.tolist() == [3, 1]
    assert train.classes is not None and test.classes is not None
    assert train.classes.tolist() == test.classes.tolist() == [*"abcd"]
    assert test.converted == "y from names to the numbers of 4 classes"
    assert datasets.npz(tmp_path / "set.npz", train=False).y.tolist() == [3, 1]


def test_one_part_of_npz_is_read_without_the_other(tmp_path: Path) -> None:
    np.savez(tmp_path / "half.npz", x_test=np.zeros((2, 3)), y_test=np.zeros(2, np.int64))
    assert len(datasets.npz(tmp_path / "half.npz", train=False)) == 2


def test_paths_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PDNN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for load, words in (
        (datasets.npz, "nothing.npz"),
        (datasets.read_idx, "nothing.npz"),
        (exercises.ex4, "nothing.npz"),
    ):
        with pytest.raises(FileNotFoundError, match=words):
            load(tmp_path / "nothing.npz")
    with pytest.raises(FileNotFoundError, match=r"has none of mnistdata.mat, ex4data1.mat"):
        exercises.ex4(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"^ex4: ex4data1.mat is not in .*cache/pdnn/mnist"):
        exercises.ex4(download=False)
    with pytest.raises(FileNotFoundError, match=r"ex4weights.mat.* is not in .*cache/pdnn/ex4-digits; copy"):
        exercises.ex4_weights()


def test_npz_counts_bytes_as_0_to_1_and_other_numbers_as_they_are(tmp_path: Path) -> None:
    file, y = tmp_path / "set.npz", np.arange(3)
    for x, most in [
        (np.full((3, 2), 255, np.uint8), 1.0),
        (np.ones((3, 2), np.bool_), 1.0),
        (np.full((3, 2), 255, np.int16), 255.0),
        (np.full((3, 2), 255.0), 255.0),
    ]:
        np.savez(file, x_train=x, y_train=y, x_test=x, y_test=y)
        parts = [*datasets.npz(file), *specs.data(f"npz:{file}")()]
        assert [part.gather()[0].max() for part in parts] == pytest.approx([most] * 4)
        assert datasets.npz(file, True, scale=2).gather()[0].max() == 2 * float(x.max())
    np.savez(file, x_train=np.full((3, 2), 255, np.uint8), y_train=y, x_test=x, y_test=y)
    with pytest.raises(ValueError, match=r"set\.npz: .* only one part is bytes.*pass scale"):
        datasets.npz(file)


def test_a_part_that_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(TypeError, match="train is 'test', expected True, False or None"):
        datasets.mnist_mini(train="test")  # type: ignore[call-overload]
