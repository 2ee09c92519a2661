"""Promises of cifar10, on sound files: every layout gives the same images, and nothing is unpacked."""

from __future__ import annotations

import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

import cifar_made
from data_root import real_data
from pdnn import datasets

BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"


@pytest.mark.parametrize("inside", [True, False], ids=["folder", "flat"])
@pytest.mark.parametrize(("end", "name"), [(".bin", BINARY), ("", PYTHON)], ids=["binary", "python"])
def test_official_files_are_read_in_their_order(tmp_path: Path, end: str, name: str, inside: bool) -> None:
    files, x, y = cifar_made.six_files(end)
    cifar_made.put(files, tmp_path / name if inside else tmp_path)
    train, test = datasets.cifar10(tmp_path, download=False)
    np.testing.assert_array_equal(np.concatenate([train.x, test.x]), x)
    np.testing.assert_array_equal(np.concatenate([train.y, test.y]), y)
    assert (len(train), train.sample_shape, train.x.dtype, train.y.dtype) == (10, (3, 32, 32), "u1", "u1")
    assert train.x.flags.c_contiguous and test.x.flags.c_contiguous
    assert train.scale == 1 / 255 and datasets.cifar10(tmp_path, train=False, scale=1).scale == 1
    assert train.x.flags.writeable and train.y.flags.writeable


@pytest.mark.parametrize(("end", "name"), [(".bin", BINARY), ("", PYTHON)], ids=["binary", "python"])
def test_archives_are_read_and_never_unpacked(tmp_path: Path, end: str, name: str) -> None:
    files, x, y = cifar_made.six_files(end)
    shuffled = [f"data_batch_{n}{end}" for n in (4, 1, 5, 2)] + [f"test_batch{end}", f"data_batch_3{end}"]
    members = {f"{name}/readme.html": b"words"} | {f"{name}/{file}": files[file] for file in shuffled}
    word = "binary" if end else "python"
    path = cifar_made.archive(members, tmp_path / f"cifar-10-{word}.tar.gz")
    for root in (tmp_path, path):
        train, test = datasets.cifar10(root, download=False)
        np.testing.assert_array_equal(np.concatenate([train.x, test.x]), x)
        np.testing.assert_array_equal(np.concatenate([train.y, test.y]), y)
    assert list(tmp_path.iterdir()) == [path]


def test_members_with_other_names_are_left_alone(tmp_path: Path) -> None:
    files, x, _ = cifar_made.six_files(".bin")
    link = tarfile.TarInfo(f"{BINARY}/../{BINARY}/test_batch.bin")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    members = {"../../escaped.bin": b"x", "/data_batch_1.bin": b"x", "data_batch_1.bin": b"x"}
    members |= {f"{BINARY}/{name}": content for name, content in files.items()}
    (tmp_path / "in").mkdir()
    path = cifar_made.archive(members, tmp_path / "in" / "cifar-10-binary.tar.gz", [link])
    np.testing.assert_array_equal(datasets.cifar10(path, train=False).x, x[10:])
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == [path.name]


def test_record_files_of_any_name_are_joined(tmp_path: Path) -> None:
    x, y = cifar_made.images(9)
    for name, rows in (("a_train_1", slice(4)), ("a_train_2", slice(4, 6)), ("latest_train", slice(6, 7))):
        (tmp_path / f"{name}.bin").write_bytes(cifar_made.records(x[rows], y[rows]))
    (tmp_path / "small_test.bin").write_bytes(cifar_made.records(x[7:], y[7:]))
    (tmp_path / "other.bin").write_bytes(b"something else")
    train, test = datasets.cifar10(tmp_path, download=False)
    np.testing.assert_array_equal(np.concatenate([train.x, test.x]), x)
    np.testing.assert_array_equal(np.concatenate([train.y, test.y]), y)


def test_the_sample_of_the_real_images() -> None:
    folder = real_data("cifar10")
    train, test = datasets.cifar10(folder, download=False)
    assert (len(train), len(test)) == (4000, 1000)
    labels = np.fromfile(folder / "labels_train50000_then_test1000.u8", np.uint8)
    np.testing.assert_array_equal(train.y, labels[:4000])
    np.testing.assert_array_equal(test.y, labels[50_000:])
    assert (folder / "batches.meta.txt").read_text().split() == list(datasets.CIFAR10_CLASSES)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has none of CIFAR-10's files; expected data_batch_1.bin"):
        datasets.cifar10(tmp_path, download=False)
    files, _, _ = cifar_made.six_files(".bin")
    del files["data_batch_2.bin"], files["data_batch_5.bin"]
    cifar_made.put(files, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"lacks data_batch_2.bin, data_batch_5.bin"):
        datasets.cifar10(tmp_path)
    assert len(datasets.cifar10(tmp_path, train=False)) == 2


def test_root_comes_before_pdnn_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, n in (("data/cifar10", 3), ("root", 1)):
        cifar_made.put({"train.bin": cifar_made.records(*cifar_made.images(n))}, tmp_path / place)
    monkeypatch.setenv("PDNN_DATA", str(tmp_path / "data"))
    assert len(datasets.cifar10(train=True, download=False)) == 3
    assert len(datasets.cifar10(tmp_path / "root", train=True, download=False)) == 1


def test_the_made_pickles_are_pickles() -> None:
    """The files of these tests are what they claim: the ordinary Unpickler reads them, too."""
    x, y = cifar_made.images(3)
    plain = pickle.loads(cifar_made.pickled(x, y), encoding="bytes")
    np.testing.assert_array_equal(plain[b"data"], x.reshape(3, -1))
    assert plain[b"labels"] == y.tolist()


def test_a_whole_batch_is_within_the_bounds(tmp_path: Path) -> None:
    """10,000 images and file names, as in the real batches."""
    n = 10_000
    data = cifar_made.array((n, 3072), bytes(n * 3072))
    names = b"]q\x05(" + b"".join(
        cifar_made.string(b"frog_s_%06d.png" % i) + b"r" + i.to_bytes(4, "little") for i in range(n)
    )
    whole = cifar_made.batch(data, cifar_made.label_list([i % 10 for i in range(n)]))[:-2]
    cifar_made.put({"test_batch": whole + cifar_made.string(b"names") + names + b"eu."}, tmp_path)
    test = datasets.cifar10(tmp_path, train=False)
    assert len(test) == n and np.bincount(test.y).tolist() == [1000] * 10
