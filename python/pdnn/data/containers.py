"""Containers of samples and labels: read without a copy, converted once, or refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pdnn.arrays import to_numpy
from pdnn.checks import undated, unmasked
from pdnn.data.checks import Array
from pdnn.data.sparse import check_starts, is_sparse, to_csr

#: Samples of these types are read as they are; bytes stay bytes.
READ = (np.uint8, np.float32, np.float64)

#: Of the others, the narrower float that holds all their values (of 64-bit integers those up to 2**53).
WIDENED: dict[Any, Any] = {
    **dict.fromkeys((np.float16, np.int8, np.int16, np.uint16), np.float32),
    **dict.fromkeys((np.int32, np.uint32, np.int64, np.uint64), np.float64),
}


_KNOWN = (str, int, float, np.number, np.bool_)


class Converted(NamedTuple):
    """An array that can be read row by row.

    Attributes
    ----------
    array : ndarray, or of samples a CSR array
        What was given, if it could be read as it was.
    note : str
        What was converted, such as "x from int16 to float32"; empty if nothing was copied.
    classes : ndarray of str or None
        The names that class numbers stand for, sorted.
    integers : bool
        Whether samples came as integers or booleans.
    """

    array: Array
    note: str = ""
    classes: Array | None = None
    integers: bool = False


def to_samples(where: str, given: Any, plain: bool = True) -> Converted:
    """Samples as uint8, float32 or float64, each row in C order, or sparse; messages begin with `where`.

    Unless `plain`, integers are refused: only a Dataset knows their scale.

    Raises
    ------
    TypeError, ValueError
        If they are no numbers that a float holds, or not one sample a row.
    """
    unmasked(where, "x", given)
    x, container = (_sparse(where, given), "") if is_sparse(given) else _to_array(where, "x", given)
    kind = _type_of(x)
    if kind not in READ and kind not in WIDENED:
        raise TypeError(
            f"{where}: x has dtype {x.dtype}, expected booleans, integers or floats of at most 64 bits; "
            + _advice(given, x)
        )
    if not plain and x.dtype.kind in "iu":
        raise TypeError(
            f"{where}: x is {x.dtype}; raw integers need their scale: pass the Dataset, "
            "or floats if they mean themselves"
        )
    if x.ndim < 2:
        raise ValueError(
            f"{where}: x has shape {x.shape}, expected (n, ...) with one sample a row; "
            "for one sample pass x[None], for one feature x[:, None]"
        )
    values: Any = x.data if is_sparse(x) else x
    if kind in (np.int64, np.uint64) and values.size and max(-int(values.min()), int(values.max())) > 2**53:
        raise ValueError(
            f"{where}: x has integers beyond 2**53, which float64 rounds; pass x.astype(np.float64)"
        )
    wanted = WIDENED.get(kind, kind)
    converted = _as_csr(given, x, wanted) if is_sparse(x) else _as("x", x, wanted, container)
    return converted._replace(integers=x.dtype.kind in "iu")


def _advice(given: Any, x: Array) -> str:
    """What to do about samples that are no numbers."""
    if x.dtype.kind == "U" and (word := _first(given, x, _is_number)):
        return f"encode words as numbers, such as {word}"
    if x.dtype.names is not None:
        return "convert it, as by numpy.lib.recfunctions.structured_to_unstructured(x)"
    if x.dtype.kind in "mM":
        return "make numbers of it, such as years or days"
    return "convert it, as by x.astype(np.float32)"


def to_labels(where: str, given: Any) -> Converted:
    """Labels as integers, float32 or float64, each row in C order; names become class numbers.

    Raises
    ------
    TypeError, ValueError
        If they are neither class numbers, names, one-hot rows, probabilities nor targets.
    """
    unmasked(where, "y", given)
    listed = isinstance(given, (list, tuple)) or not hasattr(given, "__array__")
    read = None if listed else _of(where, "y", given)
    if (words := _words(given if listed else read)) is not None:
        return _numbered(words)
    y, container = _to_array(where, "y", given, read)
    names = y.dtype.kind == "U"
    if y.ndim not in (1, 2) or (names and y.ndim == 2):
        wanted = "(n,)" if names else "(n,) or (n, classes)"
        raise ValueError(f"{where}: y has shape {y.shape} and dtype {y.dtype}, expected shape {wanted}")
    if names:
        classes = np.unique(y)
        numbers = np.searchsorted(classes, y)  # up to some 10,000 classes faster than return_inverse
        return _of_classes(numbers, classes)
    kind = _type_of(y)
    if kind not in READ and kind not in WIDENED:
        raise TypeError(
            f"{where}: y has dtype {y.dtype}, expected integers (class numbers, one-hot), strings "
            "(names of classes), or floats of at most 64 bits (probabilities, targets)"
            + ("; bytes become strings by y.astype(str)" if y.dtype.kind == "S" else "")
        )
    return _as("y", y, np.float32 if kind is np.float16 else kind, container)


def _words(given: Any) -> list[str] | None:
    """These in a list, if they are words in one, or objects: an array has room for the longest in each."""
    if isinstance(given, np.ndarray):
        given = given.tolist() if given.dtype.kind in "OT" and given.ndim == 1 else ()
    if not isinstance(given, (list, tuple)) or not given:
        return None
    return list(given) if all(issubclass(kind, str) for kind in set(map(type, given))) else None


def _numbered(words: list[str]) -> Converted:
    """The class numbers of names."""
    different = list(set(words))
    classes, places = np.unique(np.array(different), return_inverse=True)
    number = dict(zip(different, places.tolist(), strict=True))
    return _of_classes(np.fromiter(map(number.__getitem__, words), np.int64, len(words)), classes)


def _of_classes(numbers: Array, classes: Array) -> Converted:
    return Converted(numbers, f"y from names to the numbers of {len(classes)} classes", classes)


def _type_of(array: Array) -> Any:
    """The type of its numbers, in any byte order; NumPy has two of 64-bit integers, which this makes one."""
    if array.dtype.isbuiltin == 2:  # another library's, such as an 8-bit float
        return array.dtype.type
    return np.dtype(array.dtype.newbyteorder("=").str).type


def _to_array(where: str, name: str, given: Any, read: Array | None = None) -> tuple[Array, str]:
    """These values as an array of no objects and no booleans, and what they came in if that was none.

    `read` is what NumPy makes of them, where that is known.
    """
    undated(where, name, given)
    sequence = isinstance(given, Sequence) and not isinstance(given, (str, bytes))
    if not sequence and not hasattr(given, "__array__"):
        raise TypeError(f"{where}: {name} is of type {type(given).__name__}, expected an array or a list")
    if type(given) in (np.ndarray, np.memmap) and given.dtype.kind != "V":
        read = given
    array = _of(where, name, given) if read is None else read
    container = f"a {type(given).__name__}" if sequence else ""
    if array.dtype.kind in "OT":
        array, container = _of(where, name, array.tolist()), container or "objects"
    if array.dtype == np.object_:
        kinds = ", ".join(sorted({type(value).__name__ for value in array.flat})[:4])
        first = _first(given, array, _is_known)
        raise TypeError(
            f"{where}: {name} holds values of type {kinds}, expected numbers of at most 64 bits or names of "
            "classes" + (f"; the first is {first}" if first else "")
        )
    return array.view(np.uint8) if array.dtype == np.bool_ else array, container


def _first(given: Any, array: Array, fits: Callable[[Any], bool]) -> str:
    """The first value that does not fit, and where it is; empty if all do."""
    for place in np.ndindex(array.shape):
        if not fits(value := array[place]):
            name = getattr(given, "columns", range(array.shape[1]))[place[1]] if len(place) == 2 else ""
            column = f", column {name if isinstance(name, str) else place[1]}" if len(place) == 2 else ""
            return f"{str(value)!r}" + (f" (row {place[0]}{column})" if place else "")
    return ""


def _is_known(value: Any) -> bool:
    return isinstance(value, _KNOWN) and not (isinstance(value, int) and abs(value) >= 2**64)


def _is_number(word: Any) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _of(where: str, name: str, given: Any) -> Array:
    """NumPy's array of these, unless it made strings of numbers."""
    try:
        array = to_numpy(given)
    except ValueError as error:
        raise ValueError(f"{where}: {name} has rows of different lengths ({error})") from error
    if array.dtype.kind == "U" and array.ndim == 1 and isinstance(given, Sequence):
        others = [(row, value) for row, value in enumerate(given) if not isinstance(value, str)]
        if others:
            kinds, (row, first) = sorted({type(value).__name__ for _, value in others}), others[0]
            raise TypeError(
                f"{where}: {name} holds strings beside values of type {', '.join(kinds[:4])}; "
                f"the first is {str(first)!r} (row {row})"
            )
    return array


def _as(name: str, array: Array, dtype: type[np.generic], container: str) -> Converted:
    """The array in this type, the machine's byte order and rows in C order; a copy only if it must be."""
    wanted = np.dtype(dtype)
    if array.dtype == wanted and _rows_contiguous(array):
        return Converted(array, container and f"{name} from {container} to {wanted}")
    if container or array.dtype != wanted:
        note = f"{name} from {container or array.dtype} to {wanted}"
    else:
        note = f"{name} into C order"
    return Converted(np.require(array, wanted, ["C", "A"]), note)


def _sparse(where: str, given: Any) -> Any:
    """The rows of sparse samples, True as 1."""
    if given.ndim != 2:
        raise ValueError(f"{where}: sparse x has shape {given.shape}, expected (n, features)")
    if given.format in ("csr", "csc", "bsr"):
        check_starts(where, given)
    x = given.tocsr()
    if x.dtype == np.bool_:  # of which an element that is there twice is True, not 2
        x = to_csr(x, np.bool_).astype(np.uint8)
    return x


def _as_csr(given: Any, x: Any, dtype: type[np.generic]) -> Converted:
    """Sparse samples as CSR of this type, or of float32 if that is of bytes."""
    wanted = np.dtype(np.float32 if dtype is np.uint8 else dtype)
    before, after = f"{given.format.upper()} of {given.dtype}", f"CSR of {wanted}"
    return Converted(to_csr(x, wanted), "" if before == after else f"x from {before} to {after}")


def _rows_contiguous(a: Array) -> bool:
    """Whether each row is one piece of aligned memory in C order; where the rows lie does not matter."""
    step = a.itemsize
    for size, stride in zip(reversed(a.shape[1:]), reversed(a.strides[1:]), strict=True):
        if size > 1 and stride != step:
            return a.size == 0
        step *= size
    return a.flags.aligned
