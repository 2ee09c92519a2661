"""State dicts: arrays by their names, in pdnn's shapes or PyTorch's, which has other axes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from pdnn.arrays import to_numpy
from pdnn.checks import unmasked
from pdnn.files import safetensors
from pdnn.store import Array, Handle, TableParameter

#: PyTorch's axes in terms of ours: Linear (in, out) to (out, in), Conv1d (length, in, out) to (out, in,
#: length), Conv2d (height, width, in, out) to (out, in, height, width). Anything else is the same, and so are
#: tables of an Embedding.
AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 2, 0, 1)}

#: What PyTorch counts batches by; nothing here depends on it.
COUNTER = "num_batches_tracked"


def to_torch(array: Array) -> Array:
    """An array as PyTorch shapes it: a copy, C-ordered."""
    return np.array(array.transpose(AXES.get(array.ndim)), order="C")


def from_torch(array: Array) -> Array:
    """An array of PyTorch as pdnn shapes it."""
    axes = AXES.get(array.ndim)
    return array if axes is None else array.transpose(np.argsort(axes))


def converted(where: str, handles: Mapping[str, Handle], format: str) -> dict[str, Array]:
    """A model's arrays as they are, or copies in PyTorch's shapes.

    Raises
    ------
    ValueError
        If the format is neither "pdnn" nor "torch".
    """
    if _is_torch(where, format):
        return {
            name: handle.data.copy() if isinstance(handle, TableParameter) else to_torch(handle.data)
            for name, handle in handles.items()
        }
    return {name: handle.data for name, handle in handles.items()}


def fingerprint(state: Mapping[str, Array]) -> str:
    """SHA-256 of names and bytes, in the order of the names; 64 hexadecimal digits."""
    import hashlib  # brings OpenSSL with it

    digest = hashlib.sha256()
    for name, values in sorted(state.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def load(handles: Mapping[str, Handle], state: Mapping[str, Array], format: str) -> None:
    """Copies a state into a model's own arrays; nothing changes unless all of it fits.

    Raises
    ------
    TypeError
        If it is no mapping.
    ValueError
        If a name is missing or unknown, a shape differs, an array is not of numbers, or the format is neither
        "pdnn" nor "torch", or "pdnn" for tensors of PyTorch, whose square weights would come transposed.
    """
    check_mapping("load_state_dict", state)
    given = state
    if _is_torch("load_state_dict", format):
        for name, values in state.items():
            unmasked("load_state_dict", name, values)
        arrays = {
            name: to_numpy(values) for name, values in state.items() if name.rpartition(".")[2] != COUNTER
        }
        state = {
            name: array if isinstance(handles.get(name), TableParameter) else from_torch(array)
            for name, array in arrays.items()
        }
    elif (torch := sys.modules.get("torch")) is not None:
        for name, values in state.items():
            if isinstance(values, torch.Tensor):
                raise ValueError(
                    f'load_state_dict: {name} is a tensor of PyTorch; pass format="torch" if its shape is '
                    "PyTorch's, or an array, as by .numpy(), if it is pdnn's"
                )
    own = {name: handle.data for name, handle in handles.items()}
    missing, unknown = own.keys() - state.keys(), state.keys() - own.keys()
    if missing or unknown:
        raise ValueError(
            f"load_state_dict: missing {sorted(missing) or 'none'}, "
            f"unknown {sorted(unknown, key=str) or 'none'}"
        )
    for name, values in state.items():
        if np.shape(values) != own[name].shape:
            expected = converted("load_state_dict", {name: handles[name]}, format)[name].shape
            raise ValueError(
                f"load_state_dict: {name} has shape {tuple(np.shape(given[name]))}, expected {expected}"
            )
    found = cast("load_state_dict", state, own)
    stores = {handle.store for handle in handles.values() if handle.store is not None}
    memory = [array for store in stores for array in (store.flat_parameters, store.flat_buffers)]
    for name, values in found.items():
        if values is not own[name] and any(np.may_share_memory(values, array) for array in memory):
            found[name] = values.copy()  # this model's, perhaps under another name
    for name, values in found.items():
        own[name][...] = values


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """The state in a safetensors file, and its metadata.

    Raises
    ------
    ValueError
        If the file is damaged, or its metadata say that it is PyTorch's, whose square weights would come
        transposed; or if neither they nor the shapes tell.
    """
    arrays, metadata = safetensors.read(path)
    format = metadata.get("format")
    if format == "pt":
        raise ValueError(
            f"{path}: its tensors have PyTorch's shapes; pass them on, as in "
            'model.load_state_dict(safetensors.torch.load_file(path), format="torch")'
        )
    if format != "pdnn" and "pdnn.architecture" not in metadata and _square(arrays):
        raise ValueError(
            f"{path}: its weights are square, and nothing tells whether their axes are in pdnn's order or in "
            "PyTorch's; pass them on, as in "
            'model.load_state_dict(safetensors.numpy.load_file(path), format="torch"), or format="pdnn"'
        )
    return arrays, metadata


def _square(arrays: Mapping[str, Array]) -> bool:
    """Whether all weights have the same shapes in both formats, but not the same values."""
    pairs = [(array, from_torch(array)) for array in arrays.values() if array.ndim in AXES]
    return all(array.shape == other.shape for array, other in pairs) and not all(
        np.array_equal(array, other, equal_nan=True) for array, other in pairs
    )


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of `load_state_dict` name the file whose state it is."""
    try:
        yield
    except ValueError as error:
        what = str(error).removeprefix("load_state_dict: ")
        if what == str(error):
            raise  # it names the file
        raise ValueError(f"{path}: {what}") from error


def check_mapping(where: str, state: object) -> None:
    """Raises TypeError if a state is no mapping."""
    if not isinstance(state, Mapping):
        raise TypeError(f"{where}: got {type(state).__name__}, expected a dict as state_dict() returns it")


def cast(where: str, state: Mapping[str, npt.ArrayLike], own: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of a state in the dtypes of the own ones, which have the same names.

    Raises
    ------
    ValueError
        If one is not of real numbers, or has masked entries.
    """
    found = {}
    for name, values in state.items():
        unmasked(where, name, values)
        given = np.asarray(values)
        try:
            found[name] = given.astype(own[name].dtype, casting="same_kind", copy=False)
        except (TypeError, ValueError):
            raise ValueError(f"{where}: {name} has dtype {given.dtype}, expected real numbers") from None
    return found


def _is_torch(where: str, format: str) -> bool:
    if format not in ("pdnn", "torch"):
        raise ValueError(f'{where}: format "{format}"; expected "pdnn" or "torch"')
    return format == "torch"
