"""What samples and labels are taken as, or refused with: the tables of docs/data.md, row by row."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.data import Dataset, Subset, resize
from pdnn.progress import Progress
from processes import Completed

Run = Callable[..., Completed]

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text()
X = np.random.default_rng(7).integers(0, 2, (12, 6))
Y = np.arange(12) % 3
NAMES = np.array(["bird", "cat", "dog"])


class Holder:
    """Has an array inside, as data frames and tensors of other packages do."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array


def misaligned(a: np.ndarray) -> np.ndarray:
    room = np.zeros(a.nbytes + 1, np.uint8)
    room[1:] = np.frombuffer(a.tobytes(), np.uint8)
    return room[1:].view(a.dtype).reshape(a.shape)


def mapped(a: np.ndarray, tmp_path: Path) -> np.ndarray:
    np.save(tmp_path / "mapped.npy", a)
    array: np.ndarray = np.load(tmp_path / "mapped.npy", mmap_mode="r")
    return array


def frame(a: np.ndarray) -> Any:
    return pytest.importorskip("pandas").DataFrame(a, copy=False)


def tensor(a: np.ndarray) -> Any:
    return pytest.importorskip("torch").from_numpy(a)


# Where an array's own type is read, and each row in C order, nothing is copied.
SAMPLE_TYPES = {"uint8, float32, float64": "", "bool": "uint8", "float16, int8, int16, uint16": "float32"}
SAMPLE_TYPES["int32, uint32, int64, uint64"] = "float64"
LABEL_TYPES = {"every integer, float32, float64": "", "bool": "uint8", "float16": "float32"}
INTEGERS = "int8, int16, int32, int64, uint8, uint16, uint32, uint64"

ONE_PIECE: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda a: a,
    "memmap": lambda a: a,  # made in the test
    "rows of a larger array": lambda a: np.hstack([a, a])[:, : a.shape[1]],
    "every other row": lambda a: np.repeat(a, 2, axis=0)[::2],
    "rows backwards": lambda a: a[::-1],
    "without a mask": np.ma.masked_array,
    "holder": Holder,
    "tensor": tensor,
    "frame": frame,
}
MOVED: dict[str, Callable[[np.ndarray], Any]] = {
    "Fortran order": np.asfortranarray,
    "columns with steps": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "columns backwards": lambda a: a[:, ::-1],
    "misaligned": misaligned,
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder("S")),
}


def types(table: dict[str, str]) -> list[tuple[str, str, str]]:
    """Row of the docs, dtype, dtype that it is read as."""
    return [
        (row, dtype, wanted or dtype)
        for row, wanted in table.items()
        for dtype in row.replace("every integer", INTEGERS).split(", ")
    ]


@pytest.mark.parametrize(
    "dtype", [np.longlong, np.ulonglong, np.intc, np.dtype(np.longlong).newbyteorder("S")]
)
def test_every_type_of_integers_that_numpy_has(dtype: Any) -> None:
    """One of them is of the size of another, and another type."""
    data = Dataset(np.arange(6).reshape(3, 2).astype(dtype), np.array([0, 1, 0]).astype(dtype))
    assert data.x.dtype == np.float64 and data.x.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert data.y.dtype.kind in "iu" and data.y.tolist() == [0, 1, 0]


def test_tensors_that_numpy_does_not_take_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    learned, short = torch.ones(len(Y), 3, requires_grad=True), torch.ones(len(Y), 3, dtype=torch.bfloat16)
    for given in (learned, short):
        x = Dataset(given, Y).x
        assert x.dtype == np.float32 and (x == 1).all()
    assert np.shares_memory(Dataset(learned, Y).x, learned.detach().numpy())
    assert Dataset(X, short).y.dtype == np.float32


@pytest.mark.parametrize("container", [*ONE_PIECE, *MOVED])
@pytest.mark.parametrize(("row", "dtype", "wanted"), types(SAMPLE_TYPES))
def test_samples_in_arrays(container: str, row: str, dtype: str, wanted: str, tmp_path: Path) -> None:
    assert f"| array of {row} | {wanted if SAMPLE_TYPES[row] else 'itself'}" in DOCS
    array = X.astype(dtype)
    given = mapped(array, tmp_path) if container == "memmap" else (ONE_PIECE | MOVED)[container](array)
    inside = np.asarray(given)
    data = Dataset(given, Y)
    in_place = dtype in (wanted, "bool") and (
        container in ONE_PIECE or (inside.itemsize == 1 and container in ("misaligned", "other byte order"))
    )
    assert data.x.dtype == np.dtype(wanted)
    np.testing.assert_array_equal(data.x, inside.astype(wanted))
    assert np.shares_memory(data.x, inside) == in_place
    reordered = inside.dtype in (wanted, "bool")
    told = "x into C order" if reordered else f"x from {inside.dtype} to {wanted}"
    assert data.converted == ("" if in_place else told)
    fitted(given, Y, data.x)


@pytest.mark.parametrize("container", [*ONE_PIECE, *MOVED])
@pytest.mark.parametrize(("row", "dtype", "wanted"), types(LABEL_TYPES))
def test_labels_in_arrays(container: str, row: str, dtype: str, wanted: str, tmp_path: Path) -> None:
    assert f"| array of {row} | {wanted if LABEL_TYPES[row] else 'itself'}" in DOCS
    array = np.eye(3)[Y].astype(dtype)
    given = mapped(array, tmp_path) if container == "memmap" else (ONE_PIECE | MOVED)[container](array)
    inside = np.asarray(given)
    data = Dataset(X.astype(np.float32), given)
    in_place = dtype in (wanted, "bool") and (
        container in ONE_PIECE or (inside.itemsize == 1 and container in ("misaligned", "other byte order"))
    )
    assert data.y.dtype == np.dtype(wanted) and np.shares_memory(data.y, inside) == in_place
    assert bool(data.converted) != in_place
    fitted(X.astype(np.float32), given, None, np.asarray(given, np.float64))


def fitted(x: Any, y: Any, as_x: Any = None, as_y: Any = None) -> pdnn.Trainer:
    """A fit on these, which must come to the same as one on those."""
    trainers = []
    for samples, labels in ((x, y), (x if as_x is None else as_x, y if as_y is None else as_y)):
        net = nn.Sequential(nn.Linear(6, 3), seed=1)
        sgd = optim.SGD(net.parameters(), lr=0.1)
        trainers.append(pdnn.Trainer(net, nn.CrossEntropyLoss(), sgd, strategy="serial"))
        trainers[-1].fit(samples, labels, 2, 5, verbose=False)
    got, want = (trainer.model.flat_parameters for trainer in trainers)
    np.testing.assert_allclose(got, want, rtol=0, atol=0 if as_y is None else 1e-6)
    return trainers[0]


NUMBERS = {"integers": X, "floats": X / 2, "booleans": X > 0}


@pytest.mark.parametrize(
    ("kind", "wanted"), [("integers", "float64"), ("floats", "float64"), ("booleans", "uint8")]
)
@pytest.mark.parametrize(
    ("row", "make"),
    [
        ("list or tuple of numbers", np.ndarray.tolist),
        ("list or tuple of numbers", lambda a: tuple(map(tuple, a.tolist()))),
        ("array of objects, all of them numbers", lambda a: a.astype(object)),
        ("array of objects, all of them numbers", lambda a: Holder(a.astype(object))),
        ("array of objects, all of them numbers", lambda a: frame(a.astype(object))),
    ],
)
def test_samples_in_lists_and_objects(kind: str, wanted: str, row: str, make: Callable[..., Any]) -> None:
    assert f"| {row} | float64, of booleans uint8" in DOCS
    given = make(NUMBERS[kind])
    data = Dataset(given, Y)
    assert data.x.dtype == wanted and data.x.flags.c_contiguous
    np.testing.assert_array_equal(data.x, NUMBERS[kind])
    assert data.converted.endswith(f" to {wanted}")
    fitted(given, Y, NUMBERS[kind].astype(np.float64))


def test_samples_in_a_list_of_arrays() -> None:
    assert "| list or tuple of arrays | as an array of them" in DOCS
    for wanted in ("uint8", "float32", "float64"):
        data = Dataset(list(X.astype(wanted).reshape(12, 2, 3)), Y)
        assert data.x.dtype == wanted and data.sample_shape == (2, 3)


@pytest.mark.parametrize("make", [list, tuple, lambda y: np.array(y, object), np.array, Holder])
def test_class_numbers_in_any_container(make: Callable[..., Any]) -> None:
    assert "| list, tuple or array of objects, all of them integers | int64" in DOCS
    given = make(Y if make is Holder else Y.tolist())
    assert Dataset(X.astype(np.float32), given).y.tolist() == Y.tolist()
    fitted(X, given, None, Y)


@pytest.mark.parametrize(
    "make",
    [
        np.ndarray.tolist,
        lambda y: tuple(y.tolist()),
        lambda y: y,
        lambda y: y.astype(object),
        lambda y: Holder(y.astype(object)),
        lambda y: y.astype(np.dtypes.StringDType()) if hasattr(np.dtypes, "StringDType") else y,
        lambda y: pytest.importorskip("pandas").Series(y),
        lambda y: pytest.importorskip("pandas").Categorical(y),
    ],
)
def test_names_of_classes_in_any_container(make: Callable[..., Any]) -> None:
    assert (
        "| strings, shape (n,), in any of these | int64 class numbers; the names, sorted, are `classes`"
        in DOCS
    )
    given = make(NAMES[Y])
    data = Dataset(X.astype(np.float32), given)
    assert (
        data.y.tolist() == Y.tolist() and data.classes is not None and data.classes.tolist() == NAMES.tolist()
    )
    assert data.converted == "y from names to the numbers of 3 classes"
    trainer = fitted(X, given, None, Y)
    assert trainer.classes_ is not None and trainer.classes_.tolist() == NAMES.tolist()


def test_targets_of_a_single_output_may_be_flat() -> None:
    assert "| floats, shape (n,), for a single output | targets (n, 1)" in DOCS
    targets = X @ np.arange(6.0)
    parameters = []
    for y in (targets[:, None], targets, targets.astype(np.float16), targets.tolist(), targets[::-1][::-1]):
        net = nn.Sequential(nn.Linear(6, 1), seed=1)
        sgd = optim.SGD(net.parameters(), lr=0.01)
        pdnn.Trainer(net, nn.MSELoss(), sgd, strategy="serial").fit(X, y, verbose=False)
        parameters.append(net.flat_parameters)
    for other in parameters[1:]:
        np.testing.assert_array_equal(other, parameters[0])


# ---- refused

REFUSED_SAMPLES = [
    ("strings", X.astype(str), TypeError, "x has dtype <U21, expected booleans, integers or floats"),
    ("strings", X.astype(str).tolist(), TypeError, "x has dtype <U"),
    ("complex numbers, dates, records, longdouble", X.astype(complex), TypeError, "x has dtype complex128"),
    ("complex numbers, dates, records, longdouble", X.astype("M8[s]"), TypeError, "x has dtype datetime64"),
    ("complex numbers, dates, records, longdouble", X.astype("i4,f4"), TypeError, "x has dtype"),
    ("complex numbers, dates, records, longdouble", X.astype(np.longdouble), TypeError, "x has dtype"),
    ("integers beyond 2**53", X + 2**53, ValueError, r"integers beyond 2\*\*53"),
    ("integers beyond 2**53", -X - 2**53, ValueError, r"integers beyond 2\*\*53"),
    ("rows of different lengths", [[1.0], [1.0, 2.0]], ValueError, "x has rows of different lengths"),
    (
        "missing values, None",
        [[1.0, None]] * 12,
        TypeError,
        "x holds values of type NoneType, float",
    ),
    (
        "masked entries",
        np.ma.masked_array(X, X > 0),
        ValueError,
        "x has masked entries; fill them",
    ),
    (
        "masked entries",
        [np.ma.masked_array(X[0], X[0] > 0), X[1]],
        ValueError,
        "x has masked entries; fill them",
    ),
    ("one dimension", X[:, 0], ValueError, r"shape \(12,\), expected \(n, ...\).*x\[:, None\]"),
    (
        "a number, a set, a dict, a generator",
        3.0,
        TypeError,
        "x is of type float, expected an array or a list",
    ),
    (
        "a number, a set, a dict, a generator",
        set(),
        TypeError,
        "x is of type set, expected an array or a list",
    ),
    (
        "a number, a set, a dict, a generator",
        iter([[1.0]]),
        TypeError,
        "x is of type list_iterator",
    ),
    ("a number, a set, a dict, a generator", {"a": [1.0]}, TypeError, "x is of type dict"),
]
REFUSED_LABELS = [
    ("strings beside numbers", ["cat", 1] * 6, TypeError, "y holds strings beside values of type int"),
    (
        "strings beside numbers",
        np.array(["cat", np.nan] * 6, object),
        TypeError,
        "strings beside values of type float",
    ),
    ("strings beside numbers", ["cat", None] * 6, TypeError, "y holds values of type NoneType, str"),
    ("strings in more than one column", NAMES[np.eye(3, dtype=int)[Y]], ValueError, r"expected shape \(n,\)"),
    ("integers of more than 64 bits", [1, 2**70] * 6, TypeError, rf"64 bits .* is '{2**70}' \(row 1\)"),
    ("bytes, complex numbers, dates", NAMES[Y].astype("S4"), TypeError, "y has dtype .S4, expected integers"),
    ("bytes, complex numbers, dates", Y.astype(complex), TypeError, "y has dtype complex128"),
    ("three or more dimensions", Y[:, None, None], ValueError, r"expected shape \(n,\) or \(n, classes\)"),
    ("another number of rows than x", Y[:3], ValueError, "x has 12 rows and y has 3"),
]


class Frame(Holder):
    """A table with names of columns, as pandas and polars have them."""

    def __init__(self, array: Any, dtypes: list[Any]) -> None:
        super().__init__(array)
        self.columns = [*"abcdef"[: len(dtypes)]]
        self.schema = dict(zip(self.columns, dtypes, strict=True))


def test_tables_of_several_types_become_no_objects() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [0.5, np.nan], "b": [True, False], "c": np.array([1, 2], np.int8)})
    for kind in ("int8", "Int64", "Float32"):
        data = Dataset(table.astype({"c": kind}), [0, 1])
        np.testing.assert_array_equal(data.x, [[0.5, 1, 1], [np.nan, 0, 2]])
        assert data.converted == "x into C order, y from a list to int64" and not data.integers
    whole = Dataset(table[["b", "c"]].astype({"c": "Int16"}), [0, 1])
    assert whole.x.tolist() == [[1, 1], [0, 2]] and whole.x.dtype == np.float32 and whole.integers
    with pytest.raises(TypeError, match=r"the first is '<NA>' \(row 1, column c\)"):
        Dataset(table.assign(c=pandas.array([1, pandas.NA], "Int64")), [0, 1])


def test_a_long_name_takes_no_memory_for_the_others(run_python: Run) -> None:
    """As in an array of NumPy: here 8 GB."""
    script = (
        "import resource, pdnn; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "names = ['short', 'x' * 1_000_000] * 1000\n"
        "data = pdnn.data.Dataset([[1.0]] * 2000, names)\n"
        "print(data.y[:3], [len(name) for name in data.classes], data.y.dtype)"
    )
    assert run_python(["-c", script]).stdout == "[0 1 0] [5, 1000000] int64\n"


def test_names_in_other_arrays() -> None:
    """Whose elements are arrays of their own, as xarray's, or words of which some end in NUL."""
    assert Dataset(np.eye(3), Holder(np.array(["b", "a", "b"]))).y.tolist() == [1, 0, 1]
    ends = Dataset(np.eye(3), ["a", "b", "a\0"])
    assert ends.y.tolist() == [0, 1, 0] and ends.classes is not None and ends.classes.tolist() == ["a", "b"]


def test_dates_in_tables_of_pyarrow_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Schema(list):  # type: ignore[type-arg]
        """Of fields."""

    arrow = SimpleNamespace(
        Schema=Schema, types=SimpleNamespace(is_temporal=lambda kind: kind == "date32[day]")
    )
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    table = Holder(np.eye(2))
    fields = [SimpleNamespace(name="a", type="double"), SimpleNamespace(name="b", type="date32[day]")]
    table.schema = Schema(fields)  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"x has dtype date32\[day\] in column b, expected"):
        Dataset(table, [0, 1])
    table.schema = Schema(fields[:1])  # type: ignore[attr-defined]
    assert len(Dataset(table, [0, 1])) == 2


class Temporal:
    """A dtype of polars."""

    def is_temporal(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "Date"


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (
            Frame(np.array([[1, 2.5], [3, None]], object), [float, float]),
            [0, 1],
            "the first is 'None' (row 1, column b)",
        ),
        (Frame(np.array([["1", "2"], ["x", "3"]]), [str, str]), [0, 1], "such as 'x' (row 1, column a)"),
        (Frame(np.eye(2), [float, Temporal()]), [0, 1], "x has dtype Date in column b, expected"),
        ([[1.0], [2.0]], ["a", float("nan")], "of type float; the first is 'nan' (row 1)"),
        ([[1.0], [2.0]], [None, "b"], "the first is 'None' (row 0)"),
        (np.array("a"), [0], "encode words as numbers, such as 'a'"),
    ],
)
def test_the_place_of_what_is_no_number_is_told(x: Any, y: Any, words: str) -> None:
    with pytest.raises(TypeError, match=re.escape(words)):
        Dataset(x, y)


def test_dates_of_a_frame_are_refused_as_targets_and_weights() -> None:
    dated = Frame(np.ones((12, 1)), [Temporal()])
    for name, call in (
        ("y", lambda: nn.MSELoss()(np.zeros((12, 1)), dated)),
        ("weight", lambda: nn.MSELoss()(np.zeros((12, 1)), np.zeros(12), dated)),
    ):
        with pytest.raises(TypeError, match=f"{name} has dtype Date in column a"):
            call()


def hidden(values: Any) -> Any:
    """The same with their first number masked."""
    return np.ma.masked_array(values, np.arange(np.size(values)).reshape(np.shape(values)) == 0)


def objects(*values: Any) -> np.ndarray:
    """An array of these."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


class Typed(Holder):
    """Has a dtype, as arrays of other packages do."""

    @property
    def dtype(self) -> Any:
        return self.array.dtype


def test_what_has_a_dtype_is_not_therefore_an_array() -> None:
    names = Typed(NAMES[Y].astype(object))
    assert np.array_equal(Dataset(X, names).y, Y)
    table = Holder(X.astype(float))
    table.dtype = np.arange(12.0)  # type: ignore[attr-defined]  # a column of this name
    assert np.array_equal(Dataset(table, Y).x, X)


@pytest.mark.parametrize(
    "take",
    [
        lambda: nn.MSELoss()(np.zeros((2, 2)), (hidden([1.0, 2.0]), [3.0, 4.0])),
        lambda: Dataset(objects(hidden([1.0, 2.0]), [3.0, 4.0]), [0, 1]),
        lambda: Dataset([[hidden(1.0), 2.0]], [0]),
        lambda: Dataset(X[:2], hidden(np.array(["a", "b"], object))),
        lambda: Dataset(X, Y)[hidden(np.ones(12, bool))],
        lambda: Dataset(X, Y).gather(hidden([1, 2])),
        lambda: Subset(Dataset(X, Y), hidden([1, 2])),
        lambda: resize(hidden(np.ones((1, 1, 2, 2))), 4),
    ],
)
def test_masked_entries_within_other_containers_are_refused(take: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="has masked entries"):
        take()


def test_images_of_other_kinds_are_resized_or_refused() -> None:
    images = np.arange(8.0).reshape(1, 2, 2, 2)
    np.testing.assert_array_equal(resize(images.tolist(), 4), resize(images, 4))
    for wrong in (images.astype(complex), images.astype("M8[s]")):
        with pytest.raises(TypeError, match="resize: images have dtype"):
            resize(wrong, 4)


def test_tensors_in_lists_are_read_as_tensors_are() -> None:
    torch = pytest.importorskip("torch")
    row = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    assert Dataset([row, row], [0, 1]).x.tolist() == [[1, 2], [1, 2]]
    assert nn.MSELoss()(np.zeros((1, 2)), row[None]).item() == nn.MSELoss()(np.zeros((1, 2)), [row]).item()
    weighed = Dataset([row, row], [0, 1], weight=row)
    assert weighed.weight is not None and weighed.weight.tolist() == [1, 2]
    layer = nn.Linear(1, 2)
    model = nn.Sequential(layer, seed=0)
    assert len(model.flat_parameters) == 4
    layer.bias.data = row
    assert layer.bias.data.tolist() == [1, 2]


def test_floats_of_8_bits_are_refused_by_their_name() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(TypeError, match="x has dtype float8_e5m2, expected booleans"):
        Dataset(np.eye(2).astype(ml_dtypes.float8_e5m2), [0, 1])


def test_what_to_do_about_records_dates_and_bytes_is_told() -> None:
    records = np.zeros(2, [("a", float), ("b", float)])
    with pytest.raises(TypeError, match=r"as by numpy.lib.recfunctions.structured_to_unstructured\(x\)"):
        Dataset(records, [0, 1])
    with pytest.raises(TypeError, match=r"x has dtype datetime64.*; make numbers of it, such as years"):
        Dataset(np.zeros((2, 1), "M8[s]"), [0, 1])
    with pytest.raises(TypeError, match=r"y has dtype .S1.* strings by y\.astype\(str\)"):
        Dataset(np.eye(2), np.array([b"a", b"b"]))


def test_names_in_another_order_than_sorted() -> None:
    model = nn.Sequential(nn.Linear(1, 3), seed=0)
    model.classes = ["two", "one", "many"]
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.Adam(model.parameters(), lr=0.5))
    x, y = np.array([[-5.0], [0.0], [5.0]]), ["many", "one", "two"]
    trainer.fit((x, y), epochs=60, batch_size=3, verbose=False)
    assert trainer.predict_classes(x).tolist() == y and trainer.evaluate((x, y))["accuracy"] == 1
    outputs = model.predict(x.astype(np.float32))
    assert outputs.argmax(axis=1).tolist() == [2, 1, 0]


@pytest.mark.parametrize(("row", "given", "error", "words"), REFUSED_SAMPLES)
def test_what_samples_cannot_be(row: str, given: Any, error: type[Exception], words: str) -> None:
    assert f"| x: {row} | {error.__name__}" in DOCS
    with pytest.raises(error, match=words):
        Dataset(given, Y)
    with pytest.raises(error, match=words):
        fitted(given, Y)


@pytest.mark.parametrize(("row", "given", "error", "words"), REFUSED_LABELS)
def test_what_labels_cannot_be(row: str, given: Any, error: type[Exception], words: str) -> None:
    assert f"| y: {row} | {error.__name__}" in DOCS
    with pytest.raises(error, match=words):
        Dataset(X, given)
    with pytest.raises(error, match=words):
        fitted(X, given)


@pytest.mark.parametrize(
    ("row", "labels", "loss", "outputs", "words"),
    [
        ("floats, shape (n,), for several outputs", Y + 0.0, nn.CrossEntropyLoss(), 3, "integer classes"),
        ("floats, shape (n,), for several outputs", Y + 0.0, nn.MSELoss(), 3, r"expected numbers \(n, 3\)"),
        (
            "integers, shape (n,), for several outputs of a loss of values",
            Y,
            nn.MSELoss(),
            3,
            "targets are classes",
        ),
        ("a column of class numbers", Y[:, None], nn.CrossEntropyLoss(), 3, r"or \(n, 3\); pass y\[:, 0\]"),
        (
            "class numbers that the model has not",
            Y + 1,
            nn.CrossEntropyLoss(),
            3,
            "label 3 of row 2 is outside",
        ),
        ("more names than outputs", NAMES[Y], nn.CrossEntropyLoss(), 2, "3 names, the model 2 outputs"),
    ],
)
def test_labels_that_could_mean_two_things_or_none(
    row: str, labels: Any, loss: nn.Loss, outputs: int, words: str
) -> None:
    assert f"| y: {row} | ValueError" in DOCS
    net = nn.Sequential(nn.Linear(6, outputs), seed=1)
    trainer = pdnn.Trainer(net, loss, optim.SGD(net.parameters(), lr=0.1), strategy="serial")
    with pytest.raises(ValueError, match=words):
        trainer.fit(X, labels, verbose=False)
    assert trainer.classes_ is None


# ---- names of classes, from fit to predict


def test_a_class_without_a_name_is_not_predicted() -> None:
    model = nn.Sequential(nn.Linear(1, 3, bias=False), seed=0)
    model.flat_parameters[...] = [0, 0, 1]
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1))
    model.classes = ["a", "b"]
    assert trainer.predict_classes([[-1.0]]).tolist() == ["a"]
    with pytest.raises(ValueError, match=r"class 2 has no name; the model has 3 outputs and the names \['a'"):
        trainer.predict_classes([[-1.0], [1.0]])


def test_names_are_known_from_fit_to_prediction(tmp_path: Path) -> None:
    names = NAMES[Y].tolist()
    trainer = fitted(X.tolist(), names, X, Y)
    numbers = fitted(X, Y)
    assert trainer.evaluate(X, names) == numbers.evaluate(X, Y) == trainer.evaluate((X, Y))
    assert trainer.evaluate(X[:4], ["dog"] * 4) == numbers.evaluate(X[:4], [2] * 4)  # not the first of one
    np.testing.assert_array_equal(trainer.predict_classes(X.tolist()), NAMES[numbers.predict_classes(X)])
    with pytest.raises(
        ValueError, match="label 'fish' is none of the classes trained on: 'bird', 'cat', 'dog'"
    ):
        trainer.evaluate(X, ["fish"] * 12)
    with pytest.raises(ValueError, match="labels are names, and no fit has told"):
        numbers.evaluate(X, names)
    trainer.fit(X[:2], ["cat", "dog"], verbose=False)
    assert trainer.classes_ is not None and trainer.classes_.tolist() == NAMES.tolist()

    trainer.save(tmp_path / "saved")
    fresh = fitted(X, Y)
    fresh.load(tmp_path / "saved")
    assert fresh.predict_classes(X.astype(np.float32)).tolist() == trainer.predict_classes(X).tolist()
    other = fitted(X, [name.upper() for name in names], X, Y)
    with pytest.raises(ValueError, match=r"classes \['bird', 'cat', 'dog'\], this trainer has \['BIRD'"):
        other.load(tmp_path / "saved")


def test_a_fit_that_is_refused_leaves_no_names(tmp_path: Path) -> None:
    fitted(X, Y).fit(X, Y, checkpoint=tmp_path, verbose=False)
    net = nn.Sequential(nn.Linear(6, 3), seed=1)
    trainer = pdnn.Trainer(net, nn.CrossEntropyLoss(), optim.SGD(net.parameters(), lr=0.1), strategy="serial")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"checkpoint": tmp_path}, "another training is in this folder"),
        ({"callbacks": [pdnn.callbacks.EarlyStopping()]}, "without validation="),
    ]
    for options, words in refused:
        with pytest.raises((FileExistsError, ValueError), match=words):
            trainer.fit(X, np.array(["a", "b", "c"])[Y], verbose=False, **options)
        assert trainer.classes_ is None
    trainer.fit(X, NAMES[Y], verbose=False)
    assert trainer.classes_ is not None and trainer.classes_.tolist() == NAMES.tolist()


def test_parts_of_a_data_set_keep_its_names() -> None:
    data = Dataset(X, NAMES[Y])
    trainer = fitted(data[:2], None, (X[:2], Y[:2]))
    assert trainer.classes_ is not None and trainer.classes_.tolist() == NAMES.tolist()
    assert trainer.evaluate(data[[5, 2]]) == trainer.evaluate(X[[5, 2]], ["dog", "dog"])


def test_names_are_no_targets() -> None:
    net = nn.Sequential(nn.Linear(6, 3), seed=1)
    trainer = pdnn.Trainer(net, nn.MSELoss(), optim.SGD(net.parameters(), lr=0.1), strategy="serial")
    with pytest.raises(TypeError, match="labels are names of classes, MSELoss compares numbers"):
        trainer.fit(X, NAMES[Y], verbose=False)


# ---- how it is passed, and what is told


def test_x_and_y_may_be_passed_as_two_or_as_one() -> None:
    with_epochs: list[Callable[[pdnn.Trainer], object]] = [
        lambda trainer: trainer.fit((X, Y), 2, 5, verbose=False),
        lambda trainer: trainer.fit(Dataset(X, Y), np.int64(2), 5, verbose=False),
        lambda trainer: trainer.fit(X, Y, 2, 5, verbose=False),
        lambda trainer: trainer.fit(X, y=Y, epochs=2, batch_size=5, verbose=False),
        lambda trainer: trainer.fit(X, Y.tolist(), 2, batch_size=5, verbose=False),
        lambda trainer: trainer.fit(train=(X, Y), epochs=2, batch_size=5, verbose=False),
    ]
    want = fitted(X, Y)
    for fit in with_epochs:
        net = nn.Sequential(nn.Linear(6, 3), seed=1)
        sgd = optim.SGD(net.parameters(), lr=0.1)
        trainer = pdnn.Trainer(net, nn.CrossEntropyLoss(), sgd, strategy="serial")
        fit(trainer)
        np.testing.assert_array_equal(net.flat_parameters, want.model.flat_parameters)
    assert want.evaluate(X, Y) == want.evaluate((X, Y)) == want.evaluate(Dataset(X, Y))
    with pytest.raises(TypeError, match="multiple values"):
        want.fit((X, Y), 2, epochs=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"got ndarray, expected a Dataset, which .*, or x and y"):
        want.fit(X)
    with pytest.raises(TypeError, match="x is of type Dataset, expected an array"):
        want.fit(Dataset(X, Y), Y)


def test_a_conversion_is_told_once(
    capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    trainer = fitted(X.astype(np.float32), Y)
    assert "converted" not in capsys.readouterr().out
    for _ in range(2):
        trainer.fit(X.astype(np.int16), NAMES[Y].tolist(), validation=(X.tolist(), NAMES[Y]))
    told = [line for line in capsys.readouterr().out.splitlines() if "converted" in line]
    assert len(told) == 2 and not recwarn
    assert told[0].startswith(
        "train: converted x from int16 to float32, y from names to the numbers of 3 classes; arrays"
    )
    trainer.fit(X.astype(np.float16), Y, verbose=False)
    assert not capsys.readouterr().out


def test_integers_are_predicted_where_they_were_trained_on_as_they_are() -> None:
    trainer = fitted(X, Y)
    np.testing.assert_array_equal(trainer.predict(X.tolist()), trainer.predict(X.astype(np.float32)))
    for data in (Dataset(X.astype(np.uint8), Y, scale=1 / 255), Dataset(X / np.float32(255), Y)):
        trainer.fit(data, verbose=False)
        for x in (X, X.astype(np.uint8), X > 0, X.tolist()):
            with pytest.raises(TypeError, match="raw integers need their scale: pass the Dataset"):
                trainer.predict(x)


def test_names_stay_when_the_first_epoch_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps are not counted, but the model has been trained on them."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "at_step", interrupt)
    net = nn.Sequential(nn.Linear(6, 64), nn.Linear(64, 3), seed=1)
    trainer = pdnn.Trainer(net, nn.CrossEntropyLoss(), optim.SGD(net.parameters(), lr=0.1), strategy="serial")
    before = net.flat_parameters.copy()
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(np.repeat(X, 20_000, 0), np.repeat(NAMES[Y], 20_000), batch_size=1, verbose=False)
    assert (net.flat_parameters != before).any()
    assert trainer.classes_ is not None and trainer.classes_.tolist() == NAMES.tolist()


def test_bfloat16_of_jax_becomes_float32() -> None:
    kind = pytest.importorskip("ml_dtypes").bfloat16
    values = np.arange(6.0).reshape(3, 2)
    data = Dataset(values.astype(kind), values[:, :1].astype(kind))
    assert data.x.dtype == data.y.dtype == np.float32
    np.testing.assert_array_equal(data.x, values)
