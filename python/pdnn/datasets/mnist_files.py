"""MNIST itself, from the user's files or downloaded once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import overload

from pdnn.data import Dataset
from pdnn.datasets.download import fetch
from pdnn.datasets.idx_files import find_files, idx
from pdnn.datasets.parts import places

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
SHA256 = {
    True: {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    },
    False: {
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
}


@overload
def mnist(
    root: str | os.PathLike[str] | None = None,
    train: None = None,
    download: bool = True,
    *,
    scale: float = 1 / 255,
    image: bool = False,
    size: int | None = None,
) -> tuple[Dataset, Dataset]: ...
@overload
def mnist(
    root: str | os.PathLike[str] | None = None,
    *,
    train: bool,
    download: bool = True,
    scale: float = 1 / 255,
    image: bool = False,
    size: int | None = None,
) -> Dataset: ...


def mnist(
    root: str | os.PathLike[str] | None = None,
    train: bool | None = None,
    download: bool = True,
    *,
    scale: float = 1 / 255,
    image: bool = False,
    size: int | None = None,
) -> Dataset | tuple[Dataset, Dataset]:
    """70,000 handwritten digits, 60,000 to train and 10,000 to test.

    The four IDX files, plain or .gz, are looked for in `root`, or, if it is not given, in
    ``$PDNN_DATA/mnist`` and then in the user's cache. Files that are not there are downloaded, into `root` or
    the cache, and checked against their SHA-256; any number of ranks may do so at once.

    Parameters
    ----------
    root : path, optional
        Folder of the four files.
    train : bool, optional
        Only that part.
    download : bool
        Whether to fetch what is not there.
    scale : float
        ``scale=1`` keeps 0..255.
    image : bool
        Samples of shape (1, 28, 28) instead of (784,).
    size : int, optional
        Resize to (size, size), bilinear; samples are then float32.

    Returns
    -------
    Dataset, or (train, test)
        x: uint8, y: uint8 in 0..9.

    Raises
    ------
    FileNotFoundError
        If the files are nowhere and `download` is False.
    OSError
        If no mirror answers with the right files.
    ValueError
        With the file's name, if one is damaged.
    """
    parts = (True, False) if train is None else (train,)
    folder = _folder(root, parts, download)
    if train is None:
        return idx(folder, scale=scale, image=image, size=size)
    return idx(folder, train, scale=scale, image=image, size=size)


def _folder(root: str | os.PathLike[str] | None, parts: tuple[bool, ...], download: bool) -> Path:
    """The first folder that has all files of these parts, perhaps after a download."""
    folders = places("mnist", root)
    for folder in folders[:-1] if root is None and download else folders:  # fetch looks at the cache
        if _has(folder, parts):
            return folder
    if not download:
        raise FileNotFoundError(
            f"mnist: its files are in none of {', '.join(map(str, folders))}; set PDNN_DATA, or pass "
            "download=True"
        )
    for part in parts:
        for name, sha256 in SHA256[bool(part)].items():
            if not (folders[-1] / name.removesuffix(".gz")).is_file():  # there unpacked
                fetch(name, sha256, MIRRORS, folders)
    return folders[-1]


def _has(folder: Path, parts: tuple[bool, ...]) -> bool:
    try:
        return all(find_files(folder, part) for part in parts)
    except FileNotFoundError:
        return False
