"""Promises of tables in CSV files: what is read from them, and what is told of a file that does not fit."""

from __future__ import annotations

import gzip
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdnn import datasets
from pdnn._core import numbers

ROWS = [[1.5, -2.0, 3], [4.25, 5e3, 6], [7.0, 8.125, 9], [1e-3, 0.0, 12]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "table.csv"


def write(file: Path, delimiter: str, header: str = "", end: str = "\n") -> None:
    lines = [delimiter.join(map(repr, row)) for row in ROWS]
    file.write_text(end.join([header, *lines] if header else lines) + end, newline="")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " ", ", ", "   "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_numbers_are_read_whatever_divides_them(file: Path, delimiter: str, end: str) -> None:
    write(file, delimiter, end=end)
    data = datasets.csv(file, True, test=0)
    order = np.argsort(data.y)
    np.testing.assert_array_equal(data.x[order], np.array(ROWS)[:, :2])
    assert data.y[order].tolist() == [3, 6, 9, 12] and data.y.dtype == np.int64


def test_numbers_are_those_of_float() -> None:
    bits = np.random.default_rng(0).integers(0, 2**64, 2000, np.uint64)
    words = [repr(value) for value in bits.view(np.float64).tolist()]
    words += [f"{value:.{place % 20}g}" for place, value in enumerate(bits.view(np.float64).tolist())]
    words += ["0", "-0", "+3", " 2.5\t", ".5", "5.", "1E5", "1e400", "-1e-400", "4e-324", "inf", "-Infinity"]
    words += ["9007199254740993", "1.00000000000000011102230246251565", "\u0661\u0662", "nan", "1" * 400]
    expected = np.array([float(word) for word in words])
    assert numbers(words).tobytes() == expected.tobytes()
    assert numbers([]).shape == (0,)
    for word in ("", " ", "1_0", "nan(1)", "0x1p3", "1e", "1,5", "- 1", "1 2", "1\x00", "infinit", "none"):
        with pytest.raises(ValueError, match="could not convert string to float"):
            numbers(["1", word])


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", ["", "a{0}b{0}c"])
def test_a_first_line_that_tells_excel_the_delimiter_is_no_row(
    file: Path, delimiter: str, header: str
) -> None:
    write(file, delimiter, "\n".join(filter(None, [f"sep={delimiter}", header.format(delimiter)])))
    data = datasets.csv(file, True, test=0)
    assert (len(data), data.columns) == (len(ROWS), ["a", "b"] if header else None)
    file.write_text(f"sep={delimiter}\r\n1{delimiter}2\r\n3{delimiter}x4\r\n5{delimiter}6\r\n")
    with pytest.raises(ValueError, match="line 3"):
        datasets.csv(file, True, test=0)


def test_blanks_at_the_ends_of_lines_divide_nothing(file: Path) -> None:
    file.write_text("a b c\n 1  2 3\n4 5   6 \n")
    data = datasets.csv(file, True, test=0)
    assert (data.x.tolist(), data.y.tolist(), data.columns) == ([[1, 2], [4, 5]], [3, 6], ["a", "b"])


@pytest.mark.parametrize(
    ("words", "targets"),
    [
        (["red"], ["red"]),
        (["red ", "blue", "red"], ["red", "blue", "red"]),
        (["100000000000000000000", "3"], [1e20, 3.0]),
    ],
)
def test_what_targets_are(file: Path, words: list[str], targets: list[Any]) -> None:
    file.write_text("".join(f"{row},{word}\n" for row, word in enumerate(words, 5)))
    data = datasets.csv(file, True, test=0)
    assert (data.y if data.classes is None else data.classes[data.y]).tolist() == targets


def test_blank_lines_are_no_rows(file: Path) -> None:
    file.write_text("a,b,c\n1,2,3\n\n4,5,6\n   \n")
    assert datasets.csv(file, True, test=0).x.tolist() == [[1, 2], [4, 5]]


def test_columns_by_name_and_by_number(file: Path) -> None:
    write(file, ",", 'a,"b, c",d')
    by_name = datasets.csv(file, True, target="b, c", test=0)
    assert sorted(by_name.y) == [-2.0, 0.0, 8.125, 5000.0] and by_name.sample_shape == (2,)
    by_number = datasets.csv(file, True, target=1, test=0)
    np.testing.assert_array_equal(by_number.y, by_name.y)
    two = datasets.csv(file, True, target=["d", 0], test=0)
    assert two.y.shape == (4, 2) and sorted(two.y[:, 0]) == [3.0, 6.0, 9.0, 12.0]
    assert datasets.csv(file, True, target=(), test=0).sample_shape == (3,)
    numbered = datasets.csv(file, True, target="1", test=0)
    np.testing.assert_array_equal(numbered.y, by_name.y)
    assert by_name.columns == ["a", "d"] and datasets.csv(file, target="a", weight="d")[1].columns == ["b, c"]


def test_names_that_are_numbers(file: Path) -> None:
    write(file, ",", "2020,b,2021")
    for target, columns in (("2020", ["b", "2021"]), (0, ["b", "2021"]), (["2021", "1"], ["2020"])):
        assert datasets.csv(file, True, target=target, test=0, header=True).columns == columns
    with pytest.raises(ValueError, match="there is no column 2020; it has 3"):
        datasets.csv(file, target=2020, header=True)
    with pytest.raises(TypeError, match="target is True, expected the name or number of a column"):
        datasets.csv(file, target=True, header=True)


def test_messages_are_short_whatever_the_table_has(file: Path, tmp_path: Path) -> None:
    names = [f"column{place}" for place in range(5000)]
    file.write_text(f"{','.join(names)}\n{','.join('1' for _ in names)}\n")
    other = tmp_path / "other.csv"
    other.write_text(f"{','.join(names[:-1])}\n{','.join('1' for _ in names[:-1])}\n")
    wide: list[Any] = [{"target": "price"}, {"target": names}, {"test": other}]
    for options in wide:
        with pytest.raises(ValueError, match="'column0', 'column1', 'column2'") as caught:
            datasets.csv(file, **options)
        assert len(str(caught.value)) < 3000
    file.write_text(f"a,b\n{'long ' * 1000},2\n")
    with pytest.raises(ValueError, match=r'column "a" is "long .*…", expected a number') as caught:
        datasets.csv(file)
    assert len(str(caught.value)) < 300
    file.write_text("a,b\n1,2\n1\u200b,2\n")
    with pytest.raises(ValueError, match=r"line 3: column \"a\" is '1\\u200b', expected a number"):
        datasets.csv(file)


def test_a_pipe_is_refused_by_name(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    try:
        with pytest.raises(ValueError, match=r"pipe\.csv: is a pipe, which can be read only once"):
            datasets.csv(pipe)
    finally:
        os.close(writer)


def test_a_column_of_weights(file: Path, tmp_path: Path) -> None:
    write(file, ",", "a,b,c")
    for weight in ("a", 0, -3):
        data = datasets.csv(file, True, weight=weight, test=0)
        order = np.argsort(data.y)
        assert data.weight is not None
        np.testing.assert_array_equal(np.c_[data.weight, data.x, data.y][order], ROWS)
    other = tmp_path / "other.csv"
    other.write_text("a,b,c\n0,5,6\n")
    train, test = datasets.csv(file, weight="a", test=other)
    assert train.weight is not None and test.weight is not None
    assert train.weight.tolist() == [row[0] for row in ROWS] and test.weight.tolist() == [0]
    assert datasets.csv(file, True).weight is None


@pytest.mark.parametrize(
    ("text", "weight", "words"),
    [
        ("a,b,c\n1,2,3\n1,-2,3\n", "b", 'line 3: column "b" is -2, expected a weight, a number from 0'),
        ("a,b,c\n1,2,3\n1,?,3\n", "b", 'line 3: column "b" is missing'),
        ("a,b,c\n1,2,3\n", "c", 'column "c" is both target and weight; name the target'),
        ("a,b,c\n1,2,3\n", "w", "no one column is named 'w'"),
        ("a,b\n1,2\n", "a", "no sample is left"),
    ],
)
def test_what_is_wrong_with_weights_is_told(file: Path, text: str, weight: str, words: str) -> None:
    file.write_text(text)
    with pytest.raises(ValueError, match=words):
        datasets.csv(file, weight=weight)


def test_names_that_are_numbers_are_a_header_if_that_is_said(file: Path) -> None:
    write(file, ",", "2019,2020,2021")
    assert len(datasets.csv(file, True, test=0)) == 5
    assert len(datasets.csv(file, True, test=0, header=True)) == 4
    write(file, ",")
    assert len(datasets.csv(file, True, test=0, header=True)) == 3


@pytest.mark.parametrize("names", ["0,1,2", "0,1,kind", ",0,kind", "2019,2020,kind"])
def test_numbers_of_columns_are_no_row_unless_that_is_said(file: Path, names: str) -> None:
    file.write_text(f"{names}\n5,6,7\n")
    with pytest.raises(ValueError, match=r"line 1: are \d.* names of columns, .*header=True or False"):
        datasets.csv(file)
    if "kind" not in names:
        assert len(datasets.csv(file, True, test=0, header=True)) == 1
        assert len(datasets.csv(file, True, test=0, header=False)) == 2


def test_an_index_is_no_input_unless_it_has_a_name(file: Path) -> None:
    file.write_text(",a,kind\n0,6,x\n1,8,y\n")
    with pytest.raises(ValueError, match=r"column 0 has no name, as an index .*index=False"):
        datasets.csv(file)
    assert datasets.csv(file, True, test=0, weight=0).x.tolist() == [[6], [8]]
    file.write_text("row,a,kind\n0,6,x\n1,8,y\n")
    assert datasets.csv(file, True, test=0).x.tolist() == [[0, 6], [1, 8]]


def test_options_may_be_numpys_numbers_and_what_is_none_is_told(file: Path) -> None:
    write(file, ",", "a,b,c")
    train, test = datasets.csv(file, target=np.int64(1), weight=np.int32(0), test=np.float32(0.5))
    assert (train.columns, len(train), len(test)) == (["c"], 2, 2)
    assert len(datasets.csv(file, True, test=np.int64(0), header=np.True_)) == 4
    wrong: dict[str, Any]
    for wrong, words in (
        ({"header": "no"}, "header is 'no', expected True, False or None"),
        ({"header": 0}, "header is 0, expected True"),
        ({"test": None}, r"test is None, expected a share in \[0, 1\], or another file"),
        ({"target": None}, r"target is None, expected the name or number of a column; \(\) for none"),
        ({"target": ["a", 0.5]}, "target is 0.5, expected the name"),
        ({"weight": ["a", "b"]}, r"weight is \['a', 'b'\], expected the name or number of a column$"),
    ):
        with pytest.raises(TypeError, match=words):
            datasets.csv(file, **wrong)


def test_a_single_column_is_a_table_of_samples(file: Path) -> None:
    file.write_text("a\n1\n\n2.5\n")
    assert datasets.csv(file, True, target=(), test=0).x.tolist() == [[1], [2.5]]
    file.write_text('a\n1\n""\n2.5\n')
    with pytest.raises(ValueError, match='line 3: column "a" is missing'):
        datasets.csv(file, True, target=(), test=0)


def test_names_of_classes_are_numbered_alike_in_both_parts(tmp_path: Path) -> None:
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    a.write_text("x,kind\n1,red\n2,blue\n")
    b.write_text("x,kind\n3,green\n4,red\n")
    train, test = datasets.csv(a, test=b)
    assert train.classes is not None and train.classes.tolist() == ["blue", "green", "red"]
    assert (train.y.tolist(), test.y.tolist()) == ([2, 0], [1, 2])
    assert test.x.tolist() == [[3.0], [4.0]]


def test_a_number_has_no_underscore(file: Path) -> None:
    file.write_text("x,kind\n1,1_0\n2,10_\n")
    classes = datasets.csv(file, True).classes
    assert classes is not None and classes.tolist() == ["10_", "1_0"]


def test_none_is_a_name_among_names(file: Path) -> None:
    for first, second in ("none", "mild"), ("mild", "none"):
        file.write_text(f"x,kind\n1,{first}\n2,{second}\n")
        classes = datasets.csv(file, True).classes
        assert classes is not None and classes.tolist() == ["mild", "none"]


@pytest.mark.parametrize("test", [0, 1])
def test_all_rows_are_in_the_order_of_the_file(file: Path, test: int) -> None:
    file.write_text("".join(f"{row},0.5\n" for row in range(50)))
    assert datasets.csv(file, test == 0, test=test).x[:, 0].tolist() == list(range(50))


def test_the_test_rows_are_drawn_as_scikit_learn_draws_them(file: Path) -> None:
    selection = pytest.importorskip("sklearn.model_selection", reason="draws the same rows")
    x = np.arange(30.0).reshape(15, 2)
    np.savetxt(file, np.c_[x, np.arange(15)], delimiter=",")
    train, test = datasets.csv(file, test=0.3, seed=4)
    rows = selection.train_test_split(np.arange(15), test_size=0.3, random_state=4)
    assert (train.y.tolist(), test.y.tolist()) == (rows[0].tolist(), rows[1].tolist())
    np.testing.assert_array_equal(test.x, x[rows[1]])


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        ("a,b,c\n1,2,3\n1,,3\n", -1, 'line 3: column "b" is missing; fill it'),
        ("a,b,c\n1,2,3\n\n1,NA,3\n", -1, 'line 4: column "b" is missing'),
        ("a,b,c\n1,2,3\n1,nan,3\n", -1, 'line 3: column "b" is missing'),
        ("a,b,c\n1,inf,3\n", -1, 'line 2: column "b" is "inf", expected a number'),
        ("1,2,3\n1,male,3\n", -1, 'line 2: column "1" is "male", expected a number; encode'),
        ("a,b,c\n1,2,3\n1,2,x\n", "c", 'line 3: column "c" is "x", expected a number'),
        ("a,b,c\n1,2,?\n1,2,1\n", "c", 'line 2: column "c" is missing'),
        ("a,b,c\n1,2,red\n1,2,\n", "c", 'line 3: column "c" is missing'),
        ("a,b,c\n1,2,3\n1,2\n", -1, "line 3: has 2 columns, the first line 3"),
        ("a;b;c\n1,5;2;3\n1,5;2\n", -1, 'line 2: column "a" is "1,5"'),
        ("a;b;c\n1;2;3\n1;2\n", -1, "line 3: has 2 columns, the first line 3"),
        ("a\tb\tc\n1\t2\t3\n1\t2\n", -1, "line 3: has 2 columns, the first line 3"),
        ('"a;b",c\n1,2\n1\n', -1, "line 3: has 1 columns, the first line 2"),
        ('a,b,c\n1,2,"x y"\n1,2,"x\n' + 50 * "1,2,y\n", -1, "line 3: no text in columns .* quotation mark"),
        ('a,b,c\n1,2,x\n1,2,"x\n3,4,"y"\n1,2,x\n', -1, "line 3: no text in columns .* quotation mark"),
        ('a,"b\n(m)",c\n1,2,3\n1,,3\n', -1, "line 4: column"),
        ("a,b,c\n1,2,NA\n1,2,x\n1,2,y\n", "c", 'line 2: column "c" is missing'),
        ("a,b,c\n1,2,x\n1,2,y\n1,2,NA\n", "c", 'line 4: column "c" is missing'),
        ("a,b,c\n1,2,x\n1,2,y\n1,2,nan\n", "c", 'line 4: column "c" is missing'),
        ("a,b,c\n1,2,none\n1,2,none\n1,2,3\n", "c", 'line 2: column "c" is missing'),
        ("a,b,c\n1,2,3\n1,2,x\n1,2,y\n", "c", 'line 2: column "c" is "3", a number among names'),
        ("a,b,c\n1,2,x\n1,2,y\n1,2,3\n", "c", 'line 4: column "c" is "3", a number among names'),
        ("a,b,c\n1,2,x\n1,2,2\n1,2,3\n", "c", 'line 2: column "c" is "x", expected a number'),
        ("a,b,c\n1,2,3\n1,1_0,3\n", -1, 'line 3: column "b" is "1_0", expected a number'),
        ("a,b,c\n1,2,10\n1,2,1_0\n", -1, 'line 3: column "c" is "1_0", expected a number'),
        ("a,b,c\n1,2,x\n1,2,#N/A\n", "c", r'line 3: column "c" is missing \(#N/A\); fill it'),
        ("a,b,c\n1,2,x\n1,2,<NA>\n", "c", 'line 3: column "c" is missing'),
        ('a,b,c\n"1,250",2,x\n', -1, 'column "a" is "1,250", expected a number .* nothing between thousands'),
        ("a;b;c\n1.250,75;2;x\n", -1, 'column "a" is "1.250,75", expected a number with a decimal point'),
        ("a;b;c\n1;2;1,5\n1;2;2,5\n", "c", 'line 2: column "c" is "1,5", expected a number with a decimal'),
        ('a,b,c\n1,2,"1,250"\n1,2,"12,500"\n1,2,7\n', "c", 'line 2: column "c" is "1,250"'),
        ("town,2019,2020\n1,2,3\n", -1, "line 1: are 2019, 2020 the names of columns, years, or numbers"),
        ("a,b,c\n1,2,3\n", "d", r"no one column is named 'd'; it has the columns \['a', 'b', 'c'\]"),
        ("1,2,3\n", "d", "it has 3 columns without names"),
        ("a,b,b\n1,2,3\n", "b", "no one column is named 'b'"),
        ("a,b,c\n1,2,3\n", 3, "there is no column 3; it has 3"),
        ("a,b,c\n1,2,3\n", [0, "a"], "names a column twice"),
        ("a,b\n1,2\n", [0, 1], "no sample is left"),
        ("# made by hand\na,b\n1,2\n", -1, "line 2: has 2 columns, the first line 1"),
        ("a,b\n", -1, "has no rows of numbers"),
        ("", -1, "has no columns divided by"),
        ("1\n2\n", -1, "has no columns divided by"),
        ("a,b,c\n1,2,12%\n1,2,13%\n", "c", 'line 2: column "c" is "12%", expected a number with a decimal'),
        ("a,b,c\n1,2,$12.50\n1,2,$13\n", "c", r'column "c" is "\$12.50", expected a number'),
        ("a;b;c\n1;2;1,5E+03\n1;2;2,5E+03\n", "c", r'column "c" is "1,5E\+03", expected a number'),
        (
            "a,b,c\n1,2,1\u2019234.5\n1,2,2\u2019345.5\n",
            "c",
            'column "c" is "1\u2019234.5", expected a number',
        ),
        ("a,b,c\n1,2,\u221212\n1,2,\u221213\n", "c", 'column "c" is "\u221212", expected a number'),
        ("a,b,c\n1,inf,0\n1,2,1\n", "c", 'column "b" is "inf", expected a number that is finite'),
        ("1 2 3\n1 2\n", -1, "line 2: has 2 columns, the first line 3"),
        ("a,b,y,\n1,2,0,\n3,4,1,\n", -1, "what follows a delimiter at the ends of lines"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    file: Path, text: str, target: str | int | list[str | int], words: str
) -> None:
    file.write_text(text)
    with pytest.raises(ValueError, match=words) as caught:
        datasets.csv(file, target=target)
    assert str(caught.value).startswith(str(file))


def test_bytes_that_are_no_text_and_other_columns_are_refused(tmp_path: Path) -> None:
    broken, good = tmp_path / "broken.csv", tmp_path / "good.csv"
    broken.write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(ValueError, match=r"broken\.csv: no text in columns in UTF-8 .*save it so"):
        datasets.csv(broken)
    broken.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(ValueError, match=r"broken\.csv: .* compressed by gzip: unpack it"):
        datasets.csv(broken)
    broken.write_text("a,c\n1,2\n")
    good.write_text("a,b\n1,2\n")
    with pytest.raises(
        ValueError,
        match=r"broken\.csv: has the columns \['a', 'c'\], .* has \['a', 'b'\], and number 1 is the",
    ):
        datasets.csv(good, test=broken)
    with pytest.raises(ValueError, match=r"test = 2; expected a share in .*, or another file"):
        datasets.csv(good, test=2)


@pytest.mark.parametrize("seed", [None, -1, 2.5, "1", 2**32])
def test_a_draw_that_could_not_be_repeated_is_refused(file: Path, seed: Any) -> None:
    """With NumPy's None for a seed, the rows of a call for one part would be in that for the other."""
    file.write_text("1,2\n3,4\n5,6\n7,8\n")
    with pytest.raises((TypeError, ValueError), match=rf"table\.csv: seed (is|=) {seed!r}.* from 0"):
        datasets.csv(file, True, test=0.5, seed=seed)


def test_a_header_of_numbers_is_no_sample_of_a_class_of_its_own(file: Path) -> None:
    file.write_text("400.5,410.5,species\n1,2,x\n3,4,z\n5,6,x\n7,8,z\n")
    with pytest.raises(ValueError, match=r'line 1: is "species" the name of a class.*header=True'):
        datasets.csv(file)
    assert len(datasets.csv(file, True, test=0, header=True)) == 4
    assert len(datasets.csv(file, True, test=0, header=False)) == 5


def test_quotation_marks_may_hold_other_delimiters_and_line_ends(file: Path) -> None:
    file.write_text('"1"|"2"|"a; b"\n"3"|"4"|"c; d"\n')
    data = datasets.csv(file, True, test=0, header=False)
    assert data.x.tolist() == [[1, 2], [3, 4]] and [*data.classes] == ["a; b", "c; d"]
    file.write_text('a kind\n1 "x\ny"\n2 z\n')
    assert [*datasets.csv(file, True, test=0).classes] == ["x\ny", "z"]


def test_a_target_needs_no_name(file: Path) -> None:
    file.write_text(",a,b\ncat,1,2\ndog,3,4\n")
    assert [*datasets.csv(file, True, target=0, test=0).classes] == ["cat", "dog"]


def test_plain_rows_are_read_as_all_others_are(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random tables, some with something odd: by the core as far as they are plain, and by csv alone."""

    def read() -> Any:
        try:
            parts = datasets.csv(file, test=0.25, seed=3, weight=None if seed % 3 else 1)
        except (TypeError, ValueError) as error:
            return str(error)
        return [
            (part.x.tolist(), part.y.tolist(), part.columns, str(part.classes), str(part.weight))
            for part in parts
        ]

    monkeypatch.setattr("pdnn.datasets.csv_rows.BLOCK", 4)
    monkeypatch.setattr("pdnn.datasets.csv_files.BLOCK", 4)
    odd = [
        "+1",
        " 2 ",
        '"3"',
        "1e400",
        "1e-400",
        "nan",
        "-inf",
        "1_0",
        "0x1",
        "",
        "  ",
        "word",
        "1,5",
        "\x00",
        "٣",
    ]
    plain = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        delimiter, end = rng.choice([",", ";", "\t", "|", ", ", " "]), rng.choice(["\n", "\r\n", "\r"])
        width, words = int(rng.integers(2, 5)), rng.random() < 0.5
        rows = [[f"c{place}" for place in range(width)]] if rng.random() < 0.7 else []
        for _ in range(int(rng.integers(1, 20))):
            row = [
                rng.choice([repr(rng.normal()), f"{rng.normal():.2f}", str(rng.integers(9))])
                for _ in range(width)
            ]
            row[-1] = rng.choice(["cat", "dog ", "ö"]) if words else row[-1]
            rows.append(row)
        if rng.random() < 0.6:
            row = rows[int(rng.integers(len(rows)))]
            row[int(rng.integers(width))] = rng.choice(odd)
        lines = [delimiter.join(row) for row in rows]
        if rng.random() < 0.2:
            lines.insert(
                int(rng.integers(len(lines) + 1)), rng.choice(["", " ", "1", "1,2,3,4,5,6", "sep=,"])
            )
        file.write_text(end.join(lines) + rng.choice([end, ""]), encoding="utf-8", newline="")
        found = read()
        with monkeypatch.context() as without:
            without.setattr("pdnn.datasets.csv_rows.Rows.plain", lambda *_: None)
            assert found == read(), file.read_bytes()
        plain += isinstance(found, list)
    assert 100 < plain < 300


def test_an_archive_is_told(file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.csv", "a,b\n" + "1,2\n" * 100)
    with pytest.raises(ValueError, match="zip archive"):
        datasets.csv(file)


def test_a_column_is_no_part() -> None:
    with pytest.raises(TypeError, match="train is 1, expected True, False or None"):
        datasets.mnist_mini(1)  # type: ignore[call-overload]


def test_npz_names_in_one_part_only_are_refused(tmp_path: Path) -> None:
    x = np.zeros((2, 3))
    np.savez(tmp_path / "set.npz", x_train=x, y_train=["a", "b"], x_test=x, y_test=[0, 1])
    with pytest.raises(ValueError, match=r"set\.npz: labels of only one part are names"):
        datasets.npz(tmp_path / "set.npz")


def test_mnist_may_lie_unpacked_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network they were not found."""

    def refuse(*_: object) -> None:
        raise AssertionError("a download")

    folder = tmp_path / "pdnn" / "mnist"
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(
            struct.pack(">4I", 0x803, 2, 28, 28) + bytes(2 * 784)
        )
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 2) + bytes(2))
    monkeypatch.delenv("PDNN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("pdnn.datasets.mnist_files.fetch", refuse)
    assert [len(part) for part in datasets.mnist()] == [2, 2]
