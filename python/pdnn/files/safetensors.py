"""The safetensors layout: a length, a JSON header, raw little-endian data (https://github.com/huggingface/safetensors)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pdnn.files.atomic import replacing

Array: TypeAlias = npt.NDArray[Any]

NAMES = {
    "float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
FIELDS = ("dtype", "shape", "data_offsets")
DTYPES = {code: np.dtype(name).newbyteorder("<") for name, code in NAMES.items()}


def write(path: str | os.PathLike[str], arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Writes named arrays and string metadata, all or nothing.

    Raises
    ------
    TypeError
        If an array's dtype has no name in the layout, or metadata are no strings.
    """
    for key, word in metadata.items():
        if not (isinstance(key, str) and isinstance(word, str)):
            raise TypeError(f"{path}: metadata {key!r} is {word!r}, expected a string")
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    blocks, end = [], 0
    for name, array in arrays.items():
        if array.dtype.name not in NAMES:
            raise TypeError(f"{path}: {name} is {array.dtype}, expected one of {', '.join(NAMES)}")
        code = NAMES[array.dtype.name]
        block = np.ascontiguousarray(array, dtype=DTYPES[code])
        blocks.append(block)
        begin, end = end, end + block.nbytes
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # data starts aligned
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for block in blocks:
            file.write(block.data if block.nbytes else b"")


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays and the metadata of a file.

    Raises
    ------
    ValueError
        If the file is not of the layout: a lying length, a broken header, an unknown dtype, data that
        overlap, leave gaps, or do not fill the file. Nothing is allocated before all of it is checked.
    FileNotFoundError
        If there is no such file.
    """
    with open(os.fspath(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size  # of this file, which another may replace meanwhile
        length = int.from_bytes(file.read(8), "little")
        if length > size - 8:
            raise ValueError(
                f"{path}: {size} bytes cannot hold a header of {length}; not a whole safetensors file"
            )
        try:
            header = json.loads(file.read(length))
            metadata = header.pop("__metadata__", {})
            if not all(isinstance(text, str) for text in metadata.values()):
                raise TypeError("its metadata are no strings")
            fields = {name: tuple(entry[key] for key in FIELDS) for name, entry in header.items()}
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{path}: its header is not that of a safetensors file") from error
        entries = {name: _check(path, name, *values) for name, values in fields.items()}
        end = 0
        for name, (_, _, begin, stop) in sorted(entries.items(), key=lambda item: item[1][2:]):
            if begin != end:
                raise ValueError(f"{path}: {name} starts at byte {begin} of the data, expected {end}")
            end = stop
        if 8 + length + end != size:
            raise ValueError(
                f"{path}: {size} bytes, expected {8 + length + end}; it was cut, or something follows"
            )
        arrays = {}
        for name, (dtype, shape, begin, stop) in entries.items():
            file.seek(8 + length + begin)
            data = np.empty(stop - begin, np.uint8)
            if file.readinto(data.data) != data.size:
                raise ValueError(f"{path}: ends within {name}; the file was cut while it was read")
            values = data.view(dtype).astype(dtype.newbyteorder("="), copy=False)
            try:
                arrays[name] = values.reshape(shape)
            except (OverflowError, ValueError) as error:  # 70 axes, or 0 × 2**64
                raise ValueError(f"{path}: {name} has shape {shape}, which is none of an array") from error
    return arrays, metadata


def _check(
    path: str | os.PathLike[str], name: str, code: Any, shape: Any, offsets: Any
) -> tuple[Any, list[int], int, int]:
    if not (isinstance(shape, list) and isinstance(offsets, list)):
        raise ValueError(f"{path}: {name} has shape {shape!r} at {offsets!r}; expected lists of numbers")
    if len(offsets) != 2:
        raise ValueError(f"{path}: {name} has data_offsets {offsets}; expected where it begins and ends")
    begin, end = offsets
    if not isinstance(code, str) or code not in DTYPES:
        raise ValueError(
            f"{path}: {name} has dtype {code}, expected one of {', '.join(DTYPES)}; "
            "safetensors.torch.load_file reads others"
        )
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError(
            f"{path}: {name} has shape {shape} at {begin} … {end}; expected whole numbers from 0"
        )
    if prod(shape) * DTYPES[code].itemsize != end - begin:
        raise ValueError(f"{path}: {name} has shape {shape} of {code} in {end - begin} bytes")
    return DTYPES[code], shape, begin, end
