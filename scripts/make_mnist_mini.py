"""Make the data set inside the package from MNIST's four IDX files: every fifth image of train, then test.

    python scripts/make_mnist_mini.py FOLDER_WITH_THE_FOUR_FILES [OUTPUT_FOLDER]

The result depends on the four files only (and, in how it is compressed, on the version of zlib): no time,
no name and no random number goes in. The checksums printed are of the arrays' bytes, the ones that the
tests compare.
"""

from __future__ import annotations

import argparse
import hashlib
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pdnn.datasets import idx

EMBEDDED = Path(__file__).parents[1] / "python" / "pdnn" / "datasets" / "embedded"


def every_fifth(folder: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Images (14000, 28, 28) and labels (14000,) at places 0, 5, 10, ... of the 70,000."""
    train, test = idx(folder, image=True)
    images = np.concatenate([train.x, test.x])[::5, 0]
    labels = np.concatenate([train.y, test.y])[::5]
    return images, labels


def idx_bytes(array: npt.NDArray[np.uint8]) -> bytes:
    """The array as an IDX file."""
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.tobytes()


def gzip_bytes(data: bytes) -> bytes:
    """Compressed with no time and no file name in the header."""
    packer: Any = zlib.compressobj(9, zlib.DEFLATED, 31, 9)
    return bytes(packer.compress(data) + packer.flush())


def main() -> None:
    """Write both files and print what they are."""
    parser = argparse.ArgumentParser(description="Make pdnn's embedded data set from MNIST's four IDX files.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path, nargs="?", default=EMBEDDED)
    args = parser.parse_args()
    images, labels = every_fifth(args.folder)
    for name, array in (("images-idx3-ubyte.gz", images), ("labels-idx1-ubyte.gz", labels)):
        packed = gzip_bytes(idx_bytes(array))
        digest = hashlib.sha256(array.tobytes()).hexdigest()
        (args.output / name).write_bytes(packed)
        print(f"{name}: {array.shape}, {len(packed):,} bytes, array SHA-256 {digest}")


if __name__ == "__main__":
    main()
