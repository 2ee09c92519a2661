"""The course: blanks, solutions and planted mistakes under the check."""

from __future__ import annotations

import ast
import errno
import io
import json
import os
import pickle
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from select import select

import numpy as np
import pytest

from bugs import BUGS
from filling import fill, plant, solution
from pdnn.cli import main
from pdnn.course import SHEETS, Result, Sheet, check, files_in, find, new
from pdnn.course import examine as examine_module
from pdnn.course.compare import all_rows, same
from pdnn.course.examine import checks_of, examine
from pdnn.course.notebook import code_cells, to_notebook
from pdnn.course.results import Report
from pdnn.course.sheet import sheet_of
from pdnn.course.submission import Submission, Wrong
from processes import Completed, standard_input

SMALL = {
    "backprop": {"epochs": 1},
    "pool": {"n": 200, "most": 2},
    "scatter": {"n": 100, "steps": 2},
    "averaging": {"n": 200},
    "ddp": {"n": 300, "epochs": 1},
    "pipeline": {"n": 500, "epochs": 1},
    "ring": {"n": 500, "epochs": 1},
}
"""Arguments of each sheet's `draw` that make it short."""

CASES = [(sheet, *bug) for sheet in SHEETS for bug in BUGS[sheet.name]]


def examined(tmp_path: Path, sheet: Sheet, solved: str) -> Iterator[Result]:
    path = tmp_path / f"{sheet.stem}.py"
    path.write_text(fill(sheet.source, solved))
    with np.errstate(all="ignore"):
        yield from examine(Submission(path), sheet)


def results(tmp_path: Path, sheet: Sheet, solved: str) -> list[Result]:
    return list(examined(tmp_path, sheet, solved))


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
def test_a_solution_is_right(tmp_path: Path, sheet: Sheet) -> None:
    found = results(tmp_path, sheet, solution(sheet))
    assert [result for result in found if not result.passed] == []


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
def test_a_blank_sheet_fails_with_the_names_of_its_blanks(tmp_path: Path, sheet: Sheet) -> None:
    found = results(tmp_path, sheet, "")
    assert not any(result.passed for result in found)
    assert all("is still a TODO, line" in result.words for result in found)


@pytest.mark.parametrize(("sheet", "before", "after", "words"), CASES)
def test_a_planted_mistake_is_named(
    tmp_path: Path, sheet: Sheet, before: str, after: str, words: str
) -> None:
    found = examined(tmp_path, sheet, plant(solution(sheet), before, after))
    wrong = next((result.words for result in found if not result.passed), "nothing was found")
    assert words in wrong


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # as where students run it
def test_an_average_over_no_rows_is_named(tmp_path: Path) -> None:
    sheet = next(sheet for sheet in SHEETS if "averaging" in sheet.name)
    always = "            rows = 0\n    average(comm, arrays, rows)\n"
    found = results(tmp_path, sheet, plant(solution(sheet), "            rows = 0\n", always))
    assert any("an average over no rows" in result.words for result in found)


@pytest.mark.parametrize(
    "sheet",
    [SHEETS[0], *(pytest.param(sheet, marks=pytest.mark.long) for sheet in SHEETS[1:])],
    ids=lambda sheet: sheet.name,
)
def test_the_picture_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sheet: Sheet) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    path = tmp_path / f"{sheet.stem}.py"
    path.write_text(fill(sheet.source, solution(sheet)))
    Submission(path).draw(**SMALL[sheet.name])
    assert (tmp_path / f"{sheet.stem}.png").stat().st_size > 0


def test_script_and_notebook_are_the_same(tmp_path: Path) -> None:
    import nbformat  # here, because its seconds would be those of every process that collects tests

    for sheet in SHEETS:
        script, notebook = new(sheet, tmp_path / "course")
        nbformat.validate(nbformat.read(notebook, 4))
        kept = [ast.dump(ast.parse(code)) for _, code in code_cells(notebook)]
        assert "".join(kept).count("FunctionDef") == ast.dump(ast.parse(script.read_text())).count(
            "FunctionDef"
        )
        assert sheet_of(script) == sheet_of(notebook) == sheet
        assert notebook.read_text().count("raise NotImplementedError") == sheet.source.count(
            "raise NotImplementedError"
        )


OF_IPYTHON = ["%time x = 1", "%%time", "!ls", "?print", "print?", "np.eye??", "f = !ls", "t = %timeit -o 1"]
OF_IPYTHON += ["!pip install \\\n    scipy \\\n    sympy", "%timeit -n 1 \\\n    sum([1])"]
IN_BLOCKS = [
    "for n in 1, 2:\n    %time n",
    "try:\n    import yaml\nexcept ImportError:\n    !pip install pyyaml",
]
OF_PYTHON = ["    % 3", "    != 3", "    %(3)", "    %len('abc')"]


def test_of_a_notebook_lines_and_cells_in_other_languages_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "1_backprop.ipynb"
    modulo = [f"x = (\n    7\n{line}\n)" for line in OF_PYTHON]
    texts = [*IN_BLOCKS, *OF_IPYTHON, "%%bash\nls -l", "%%writefile helper.py\ndef softmax(s): ...", *modulo]
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": text} for text in texts]}))
    codes = [code for _, code in code_cells(path)]
    assert codes[0].splitlines()[-1] == codes[1].splitlines()[-1] == "    pass"
    left = [statement for code in codes[2:-4] for statement in ast.parse(code).body]
    assert all(isinstance(statement, ast.Pass) for statement in left)
    assert codes[-4:] == modulo and all(map(ast.parse, codes))
    assert [code.count("\n") for code in codes[:-6]] == [text.count("\n") for text in texts[:-6]]


@pytest.mark.parametrize("magic", ["%%capture out", "%%prun -q", "%%time", "%%timeit -n 1", "\n%%time"])
def test_a_cell_is_python_below_magics_that_run_it(tmp_path: Path, magic: str) -> None:
    path = tmp_path / "1_backprop.ipynb"
    text = f"{magic}\ndef one(): return 1\n"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": text}]}))
    assert Submission(path).one() == 1


def test_a_cell_may_be_indented_as_a_whole(tmp_path: Path) -> None:
    """Jupyter runs it."""
    path = tmp_path / "1_backprop.ipynb"
    text = "\n  def one():\n      return 1\n\n  TWO = 2\n"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": text}]}))
    student = Submission(path)
    assert student.one() == 1 and student.TWO == 2


def test_a_place_in_a_notebook_counts_all_cells(tmp_path: Path) -> None:
    path = tmp_path / "1_backprop.ipynb"
    cells = [("markdown", "# text"), ("code", "ONE = 1"), ("code", "\nTWO = three")]
    path.write_text(json.dumps({"cells": [{"cell_type": kind, "source": text} for kind, text in cells]}))
    with pytest.raises(Wrong, match=r"`three` is not defined, cell 3, line 2 \(TWO = three\)"):
        Submission(path)


@pytest.mark.parametrize("text", ["[]", '{"cells": 3}', "[" * 100_000, "{}"])
def test_a_damaged_notebook_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "1_backprop.ipynb"
    path.write_text(text)
    with pytest.raises(ValueError, match="is damaged"):
        sheet_of(path)


def test_a_sheet_is_found_by_its_name_its_number_and_both() -> None:
    for sheet in SHEETS:
        assert find(sheet.name) == find(str(sheet.number)) == find(f"{sheet.number}_{sheet.name}") == sheet


def test_a_file_is_a_sheet_by_its_name_or_by_its_marker(tmp_path: Path) -> None:
    for name, text in [
        ("my 3_scatter (2).py", ""),
        ("mine.py", 'SHEET = "scatter"\n'),
        ("my.py", "SHEET='scatter'"),
    ]:
        (tmp_path / name).write_text(text)
        assert sheet_of(tmp_path / name) == find("scatter")


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    sheet = SHEETS[0]
    script, notebook = tmp_path / "1_backprop.py", tmp_path / "1_backprop.ipynb"
    script.write_text(sheet.source, encoding="utf-8-sig")
    notebook.write_text(json.dumps(to_notebook(sheet.source)), encoding="utf-8-sig")
    for path in (script, notebook):
        assert sheet_of(path) == sheet and Submission(path).one_hot([1], 2).tolist() == [[0, 1]]


def test_a_script_may_say_its_encoding(tmp_path: Path) -> None:
    path = tmp_path / "1_backprop.py"
    path.write_bytes(b"# -*- coding: latin-1 -*-\nNAME = 'Andr\xe9'\n")
    assert Submission(path).NAME == "André"
    path.write_bytes(b"NAME = 'Andr\xe9'\n")
    with pytest.raises(ValueError, match="save it again, in UTF-8"):
        sheet_of(path)


def test_what_is_printed_is_shown_up_to_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, source = tmp_path / "1_backprop.py", fill(SHEETS[0].source, solution(SHEETS[0]))
    wordy = f"import os\n    os.write(2, b'mine \\xff')\n    print('é' * 10**6)\n    {SIGMOID}"
    path.write_text(plant(source, SIGMOID, wordy))
    assert check(path).passed
    out, err = capsys.readouterr()
    assert "mine \ufffd" in err and out.startswith("éé") and len(out) < 100_100
    assert re.search(r"… [\d,]{9,} characters more$", out)
    path.write_text(plant(source, SIGMOID, "print('here')\n    import os\n    os._exit(3)"))
    assert not check(path).passed and capsys.readouterr().out == "here\n"


DEFINED = """
from dataclasses import dataclass
EPS: float = 0.5
ONE, (TWO, THREE) = 1, (2, 3)
LATER: int
half = lambda a: a * EPS

try:
    import none as tool
except ImportError:
    tool = None

@dataclass
class Pair:
    first: int

class Meant:
    rows: list[int]

lower, UPPER = 1, 2
THREE.four = 4
"""


@pytest.mark.parametrize("first", ["", "from __future__ import annotations"])
def test_definitions_are_run_however_they_are_written(tmp_path: Path, first: str) -> None:
    path = tmp_path / "1_backprop.py"
    path.write_text(first + DEFINED)
    student = Submission(path)
    assert (student.ONE, student.TWO, student.THREE, student.half(4)) == (1, 2, 3, 2.0)
    assert student.tool is None
    assert pickle.loads(pickle.dumps(student.Pair(7))) == student.Pair(7)
    assert student.Meant.__annotations__ == {"rows": "list[int]" if first else list[int]}
    for name in ("UPPER", "lower", "LATER"):
        with pytest.raises(Wrong, match=f"there is no `{name}`"):
            getattr(student, name)


def test_a_try_that_does_more_than_import_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "1_backprop.py"
    path.write_text("try:\n    import json\n    draw()\nfinally:\n    import os\nONE = 1\n")
    student = Submission(path)
    assert student.ONE == 1
    with pytest.raises(Wrong, match="there is no `json`"):
        print(student.json)


def test_a_definition_that_ends_the_program_is_named(tmp_path: Path) -> None:
    path = tmp_path / "1_backprop.py"
    path.write_text("import argparse\nARGS = argparse.ArgumentParser().parse_args(['--none'])\n")
    with pytest.raises(Wrong, match=r"`<module>` ends the program, line 2 \(ARGS = "):
        Submission(path)


def test_new_never_writes_over_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "1_backprop.ipynb").write_text("mine")
    assert main(["course", "new", "backprop", str(tmp_path)]) == 1
    assert "is there already, and stays as it is" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["1_backprop.ipynb"]
    assert (tmp_path / "1_backprop.ipynb").read_text() == "mine"


def test_new_makes_the_folders_that_lead_there(tmp_path: Path) -> None:
    script, notebook = new(SHEETS[0], tmp_path / "courses" / "mine")
    assert script.is_file() and notebook.is_file()


def test_new_shows_a_command_for_a_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my course"
    assert main(["course", "new", "backprop", str(folder)]) == 0
    shown = capsys.readouterr().out.splitlines()[-1].removeprefix("then: pdnn ")
    assert shlex.split(shown) == ["course", "check", str(folder / "1_backprop.py")]


def test_the_command_checks_notebooks_and_writes_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sheet = SHEETS[0]
    solved = fill(sheet.source, plant(solution(sheet), "delta.sum(axis=0)", "delta.mean(axis=0)"))
    Path("renamed.ipynb").write_text(json.dumps(to_notebook(solved)))
    words = ["check", "renamed.ipynb", "--json", "results.json", "--gradescope", "gradescope.json"]
    assert main(["course", *words]) == 1
    assert "WRONG  The gradients equal pdnn's" in capsys.readouterr().out
    (report,) = json.loads(Path("results.json").read_text())
    wrong = [result["words"] for result in report["results"] if not result["passed"]]
    assert report["sheet"] == "backprop" and not report["passed"]
    assert wrong[0] == "db2: it is the mean over the rows, not the sum: the 1/n is in δ already"
    tests = json.loads(Path("gradescope.json").read_text())["tests"]
    assert len(tests) == 7 and sum(test["score"] for test in tests) == 7 - len(wrong)
    assert [test["number"] for test in tests] == [f"1.{number}" for number in range(1, 8)]
    for test, result in zip(tests, report["results"], strict=True):
        assert (test["score"], test["status"]) == ((1, "passed") if result["passed"] else (0, "failed"))
        assert (test["name"], test["output"]) == (result["title"], result["words"])


def test_a_file_that_is_no_sheet_is_named_and_the_others_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sheet = SHEETS[0]
    Path("helper.py").write_text("one = 1")
    Path("sheet.py").write_text(fill(sheet.source, solution(sheet)))
    Path("fails.py").write_text('import os\nSHEET = "backprop"\nONE = os._exit(70)')
    Path("hex.py").write_text('# coding: hex\nSHEET = "backprop"\n')
    files = ["helper.py", "fails.py", "hex.py", "sheet.py", "none.py"]
    assert main(["course", "check", *files, "--json", "results.json", "--gradescope", "gradescope.json"]) == 1
    out, err = capsys.readouterr()
    assert "7 of 7 right" in out and "helper.py: neither its name" in err and "none.py: there is no" in err
    assert "fails.py: the check failed itself" in err and "hex.py: is damaged (LookupError" in err
    (report,) = json.loads(Path("results.json").read_text())
    assert report["file"] == "sheet.py" and report["passed"]
    content = json.loads(Path("gradescope.json").read_text())
    assert len(content["tests"]) == 7 and content["output"].splitlines()[0].startswith("helper.py: ")
    assert main(["course", "check", "helper.py", "--gradescope", "gradescope.json"]) == 1
    content = json.loads(Path("gradescope.json").read_text())
    assert content["score"] == 0 and not content["tests"] and "helper.py" in content["output"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json", "none/results.json"], "there is no such folder"),
        (["--json", "a.json", "--gradescope", "./a.json"], "--json and --gradescope are the same file"),
    ],
)
def test_where_results_cannot_be_written_is_said_before_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["course", "check", str(tmp_path / "none.py"), *words])
    assert said in capsys.readouterr().err


def test_results_have_titles_without_docstrings(run_python: Callable[..., Completed]) -> None:
    code = """
from pdnn.course.examine import checks_of, title
from pdnn.course.sheet import SHEETS
print(*(title(check) for sheet in SHEETS for check in checks_of(sheet)), sep="\\n")
"""
    titles = run_python(["-OO", "-c", code]).stdout.splitlines()
    assert "summed" in titles and all(titles)


def test_the_command_says_what_it_can_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["course"]) == 0 and "pdnn course check" in capsys.readouterr().out
    assert main(["course", "list"]) == 0 and "Backpropagation" in capsys.readouterr().out
    assert main(["course", "check"]) == 1 and "there is no sheet in this folder" in capsys.readouterr().err
    assert main(["course", "new", "none"]) == 1 and "the sheets are 1 backprop" in capsys.readouterr().err


def test_the_documentation_has_the_sheets_with_their_minutes(root: Path) -> None:
    text = (root / "docs" / "course.md").read_text()
    rows = re.findall(r"^\| (\d) (\w+) \|.*?\| (\d+) \|", text, re.MULTILINE)
    assert rows == [(str(sheet.number), sheet.name, str(sheet.minutes)) for sheet in SHEETS]


def test_without_a_file_those_are_checked_that_were_saved_last(tmp_path: Path) -> None:
    script, notebook = new(SHEETS[0], tmp_path)
    for late, early in [(script, notebook), (notebook, script)]:
        os.utime(late, (2e9, 2e9))
        os.utime(early, (1e9, 1e9))
        assert files_in(tmp_path) == [late]


SIGMOID = "return 1 / (1 + np.exp(-a))"
ENDINGS = [
    ("pool", "for _ in self.threads:\n            self.tasks.put", "self.tasks.put", "(thread.join())"),
    ("backprop", SIGMOID, "import os\n    os._exit(7)", "ended with code 7"),
    ("backprop", SIGMOID, "import os\n    os._exit(0)", "ended with code 0"),
    ("backprop", SIGMOID, "import os\n    os.write(2, b'Traceback')\n    os._exit(1)", "ended with code 1"),
    ("backprop", SIGMOID, "raise BaseException('mine')", "BaseException in `sigmoid`, line"),
    ("backprop", SIGMOID, "def endless():\n        while True: pass\n    endless()", "(while True: pass)"),
    (
        "backprop",
        "SHEET = ",
        "ONES = [1 for _ in iter(int, 1)]\nSHEET = ",
        "is in line 28 (ONES =",
    ),
]
LONG_ENDINGS = [
    ("pool", "except Exception as error", "except KeyError as error", "(results = sorted("),
    ("backprop", SIGMOID, "while True: pass", "(while True: pass)"),
    ("backprop", SIGMOID, "import re\n    re.match('(a+)+$', 'a' * 99 + 'b')", "held the interpreter"),
    ("backprop", SIGMOID, "import sys\n    sys.exit()", "ends the program, line"),
    ("backprop", SIGMOID, "return (", "this is no Python"),
]


@pytest.mark.parametrize(
    ("name", "before", "after", "words"),
    [*ENDINGS, *(pytest.param(*ending, marks=pytest.mark.long) for ending in LONG_ENDINGS)],
)
def test_what_never_ends_or_ends_the_process_is_told(
    tmp_path: Path, name: str, before: str, after: str, words: str
) -> None:
    sheet = find(name)
    path = tmp_path / f"{sheet.stem}.py"
    path.write_text(plant(fill(sheet.source, solution(sheet)), before, after))
    report = check(path, seconds=1.0)
    wrong = next(result for result in report.results if not result.passed)
    assert words in wrong.words
    assert len(report.results) == len(checks_of(sheet))


def test_the_command_takes_another_time_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "1_backprop.py"
    path.write_text(plant(fill(SHEETS[0].source, solution(SHEETS[0])), SIGMOID, "while True: pass"))
    assert main(["course", "check", str(path), "--time-limit", "0.25"]) == 1
    assert "did not end within 0.25 s: " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["course", "check", str(path), "--time-limit", "0"])
    assert "'0' is not a number above 0" in capsys.readouterr().err


def test_a_time_limit_may_be_longer_than_any_timer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "1_backprop.py"
    path.write_text(fill(SHEETS[0].source, solution(SHEETS[0])))
    assert check(path, seconds=1e12).passed
    assert capfd.readouterr() == ("", "")


def test_each_check_has_the_time_limit_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "1_backprop.py"
    path.write_text("")
    begun = Submission(path)
    dog = examine_module._Watchdog(60.0, print)
    timers = []
    for each in checks_of(SHEETS[0])[:3]:
        dog.start(each, begun)
        assert dog._timer is not None
        timers.append(dog._timer)
    dog.stop()
    for timer in timers:
        timer.join(30)
        assert not timer.is_alive()


def test_an_error_of_the_check_itself_is_told_with_its_traceback(
    tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    code = "import sys; from pdnn.course.examine import run; run(*sys.argv[1:])"
    child = run_python(["-c", code, "a.py", "none", "1", str(tmp_path / "results")], check=False)
    assert child.returncode == examine_module.FAILED
    assert "ValueError: there is no sheet 'none'" in child.stdout


def checked(tmp_path: Path, before: str, after: str, name: str = "backprop") -> Report:
    """The command's report of a solution with a change."""
    path = tmp_path / f"{find(name).stem}.py"
    path.write_text(plant(fill(find(name).source, solution(find(name))), before, after))
    return check(path)


def test_a_worker_may_change_its_gradient_in_place(tmp_path: Path) -> None:
    step = "step = gradient(params, batch)\n        step *= rate\n        params -= step"
    sheet = find("averaging")
    found = results(tmp_path, sheet, plant(solution(sheet), "params -= rate * gradient(params, batch)", step))
    assert [result for result in found if not result.passed] == []


def test_a_process_that_the_code_forks_writes_no_results(tmp_path: Path) -> None:
    fork = 'if not hasattr(np, "once"):\n        np.once = 1\n        import os\n        os.fork()\n    '
    report = checked(tmp_path, SIGMOID, fork + SIGMOID)
    assert [result.passed for result in report.results] == [True] * 7


def test_nothing_that_the_code_starts_is_left(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    words = f"import subprocess\n    with open({str(pipe)!r}, 'w') as pipe:\n        "
    words += "subprocess.Popen(['sh', '-c', 'echo; exec sleep 60'], stdout=pipe)\n    "
    assert checked(tmp_path, SIGMOID, words + SIGMOID).passed
    try:
        said = b""
        while select([reader], [], [], 30)[0] and (more := os.read(reader, 100)):
            said += more
        assert said.strip() == b"" and said
        assert select([reader], [], [], 0)[0], "one who could write is still there"
    finally:
        os.close(reader)


def test_the_code_reads_no_standard_input(tmp_path: Path) -> None:
    with standard_input(b"0\n" * 9):
        report = checked(tmp_path, SIGMOID, f"input()\n    {SIGMOID}")
    assert report.results[0].words.startswith("EOFError in `sigmoid`")


def test_the_code_starts_no_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a teacher's environment asks for it."""
    monkeypatch.setenv("PDNN_MPI", "1")
    words = "import sys\n    assert pdnn.world().size == 1 and 'mpi4py' not in sys.modules\n    "
    assert checked(tmp_path, SIGMOID, words + SIGMOID).passed


def test_the_check_goes_on_where_nobody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Closed())
    assert checked(tmp_path, SIGMOID, f"print('a word')\n    {SIGMOID}").passed


def test_the_innermost_of_the_students_lines_is_told(tmp_path: Path) -> None:
    report = checked(tmp_path, SIGMOID, f"[1][int(a.size)]\n    {SIGMOID}")
    wrong = [result.words for result in report.results if not result.passed]
    assert len(wrong) > 1
    assert all("IndexError in `sigmoid`, line" in words and "([1][int(a.size)])" in words for words in wrong)


def test_a_send_has_not_ended_before_the_other_rank_receives(tmp_path: Path) -> None:
    """However often it is asked: over MPI it may wait for that."""
    polled = "    while not request.test():\n            pass\n        "
    report = checked(tmp_path, "        mine = chunks[", f"    {polled}mine = chunks[", "ring")
    assert "did not end within 2.5 s: rank 0 is in line" in report.results[0].words


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (SIGMOID, "raise ValueError('x' * 5_000_000)", "x …"),
        (SIGMOID, "return pdnn.nn.Module().forward(a)", "NotImplementedError in `sigmoid`"),
        (SIGMOID, "class Mute(Exception):\n        __str__ = None\n    raise Mute", "whose __str__ fails"),
        ("def sigmoid(a)", "Words = str\n\n\ndef sigmoid(a: Words)", "`Words` is not defined, line"),
        ("SHEET = ", "import broken_helper\nSHEET = ", "'(' was never closed (broken_helper.py, line 3)"),
    ],
)
def test_an_error_is_told_in_its_own_words(tmp_path: Path, before: str, after: str, words: str) -> None:
    (tmp_path / "broken_helper.py").write_text("a = 1\nb = 2\nz = (\n")
    report = checked(tmp_path, before, after)
    wrong = next(result.words for result in report.results if not result.passed)
    assert words in wrong and len(wrong) < 3000


def test_text_and_complex_numbers_are_no_numbers() -> None:
    for got in ("0.5", np.array([1 + 2j, 2])):
        with pytest.raises(Wrong, match="not an array of numbers"):
            same("a", got, np.ones(2) if isinstance(got, np.ndarray) else 0.5)


@pytest.mark.parametrize(
    ("got", "words"),
    [
        ([1, 2, 4.5], "a: 1 of 3 elements are wrong; the first, [2] is 4.5, not 3"),
        ([0, 0, 0], "a: 3 of 3 elements are wrong; the first, [0] is 0, not 1"),
        ([1 / 3, 2 / 3, 1], "a is 1/3 × what it should be, in every element"),
        ([2.5e-3, 5e-3, 7.5e-3], "a is 1/400 × what it should be, in every element"),
        ([1.5e-4, 3e-4, 4.5e-4], "a is 0.00015 × what it should be, in every element"),
    ],
)
def test_how_an_array_is_wrong_is_told(got: list[float], words: str) -> None:
    with pytest.raises(Wrong) as wrong:
        same("a", got, np.array([1.0, 2, 3]))
    assert str(wrong.value) == words


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([0, -1, 2], "rows have row -1, but there are only rows 0 to 2"),
        ([0, 1.5, 2], "rows are no row numbers: shape (3,)"),
        ([[0, 1, 2]], "rows are no row numbers: shape (1, 3)"),
        ([0, 0, 2], "rows: missing row 1 of 3; more than once row 0"),
        ([2, 0, 1, 2], "rows: more than once row 2"),
        ([1, 0], "rows: the last row of each epoch is dropped (row 2)"),
        ([0, 0], "rows: the last 2 rows of each epoch are dropped (rows 1 to 2); more than once row 0"),
        (range(0, 14, 2), "rows: missing rows 1, 3, 5, 7, 9 … of 13"),
    ],
)
def test_which_rows_are_wrong_is_told(rows: Sequence[object], words: str) -> None:
    with pytest.raises(Wrong) as wrong:
        all_rows("rows", rows, 13 if len(rows) == 7 else 3)
    assert str(wrong.value) == words


def test_cells_of_notebooks_have_any_line_ends_and_what_they_import_from_the_future(tmp_path: Path) -> None:
    cells = [
        "print?\r\nfrom __future__ import annotations\r\n",
        "def f(x: Unknown): return x\n",
        "-" * 20_000 + "1",
    ]
    kept = [{"cell_type": "code", "source": [cell]} for cell in cells]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": kept[:2]}))
    assert Submission(tmp_path / "a.ipynb").f(3) == 3
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": kept}))
    with pytest.raises(Wrong):
        Submission(tmp_path / "a.ipynb")


def test_a_function_with_other_arguments_is_told(tmp_path: Path) -> None:
    sheet = find("backprop")
    path = tmp_path / f"{sheet.stem}.py"
    path.write_text(
        plant(fill(sheet.source, solution(sheet)), "def cross_entropy(y, t)", "def cross_entropy(y)")
    )
    (wrong,) = (result for result in check(path).results if not result.passed)
    assert (
        "`cross_entropy` must keep the arguments that it has in the sheet: cross_entropy() takes 1"
        in wrong.words
    )


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.parametrize("name", ["scatter", "averaging", "ddp", "pipeline", "ring"])
def test_a_solution_runs_over_mpi(tmp_path: Path, run_python: Callable[..., Completed], name: str) -> None:
    sheet = find(name)
    path = tmp_path / f"{sheet.stem}.py"
    source = plant(fill(sheet.source, solution(sheet)), 'BACKEND = "threads"', 'BACKEND = "mpi"')
    path.write_text(plant(source, "    draw()", f"    draw(**{SMALL[name]})"))
    run_python([path], cwd=tmp_path, env={"MPLBACKEND": "Agg"})
    assert (tmp_path / f"{sheet.stem}.png").exists()


EVEN_FIRST = """
    for step in range(2 * (ranks - 1)):
        add = step < ranks - 1
        gone, come = chunks[(rank - step) % ranks], chunks[(rank - step - 1) % ranks]
        new = np.empty_like(come)
        if rank % 2 == 0:
            comm.send(gone, after, check=False)
            comm.recv(before, out=new, check=False)
        else:
            comm.recv(before, out=new, check=False)
            comm.send(gone, after, check=False)
        come[:] = come + new if add else new
"""
POLLED = """
    for step in range(2 * (ranks - 1)):
        gone, come = chunks[(rank - step) % ranks], chunks[(rank - step - 1) % ranks]
        new = np.empty_like(come)
        receive = comm.start_recv(before, 0, new, check=False)
        send = comm.start_send(gone, after, check=False)
        while not (receive.test() and send.test()):
            pass
        come[:] = come + new if step < ranks - 1 else new
"""


@pytest.mark.parametrize("loop", [EVEN_FIRST, POLLED])
def test_other_rings_that_cannot_deadlock_are_right(tmp_path: Path, loop: str) -> None:
    sheet, solved = find("ring"), solution(find("ring"))
    begin, end = solved.index("    for step in"), solved.index("def ring_bytes")
    found = results(tmp_path, sheet, solved[:begin] + loop.lstrip("\n") + "\n\n" + solved[end:])
    assert [result for result in found if not result.passed] == []


@pytest.mark.parametrize("log", ["np.log(y + 1e-12)", "np.log(np.clip(y, 1e-12, 1))"])
def test_another_least_probability_is_right(tmp_path: Path, log: str) -> None:
    sheet = find("backprop")
    solved = plant(solution(sheet), "np.log(np.maximum(y, 1e-300))", log)
    assert [result for result in results(tmp_path, sheet, solved) if not result.passed] == []


def test_shares_may_be_a_zip(tmp_path: Path) -> None:
    sheet = find("pool")
    solved = solution(sheet)
    begin, end = solved.index("def pieces("), solved.index("\ndef ", solved.index("def pieces(") + 1)
    zipped = """def pieces(n, k):
    ends = np.cumsum([n // k + (number < n % k) for number in range(k)])
    return zip([0, *ends[:-1]], ends)


"""
    found = results(tmp_path, sheet, solved[:begin] + zipped + solved[end:])
    assert found[0].passed, found[0]


def test_a_sheet_is_not_replaced_by_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sheet = tmp_path / "1_backprop.py"
    sheet.write_text("work")
    with pytest.raises(SystemExit, match="2"):
        main(["course", "check", str(sheet), "--json", str(sheet)])
    assert "and --json are the same file" in capsys.readouterr().err
    assert sheet.read_text() == "work"


@pytest.mark.parametrize("name", ["backprop", "1", "1_backprop"])
def test_a_sheet_is_checked_by_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["course", "check", name]) == 1
    assert f"no 1_backprop.py or 1_backprop.ipynb here; pdnn course new {name}" in capsys.readouterr().err
    script = Path("1_backprop.py")
    script.write_text("raise ValueError('the script')\n")
    assert main(["course", "check", name, "--time-limit", "5"]) == 1
    assert "1_backprop.py" in capsys.readouterr().out


def test_a_check_ends_with_the_process_that_asked_for_it(tmp_path: Path) -> None:
    """Code that holds the interpreter would go on for ever: its own watchdog cannot bark."""
    place = tmp_path / "pid"
    held = f"import os; open({str(place)!r}, 'w').write(str(os.getpid())); sum(iter(int, 1))\n    "
    sheet = tmp_path / "1_backprop.py"
    sheet.write_text(solution(SHEETS[0]).replace(SIGMOID, held + SIGMOID))
    words = [sys.executable, "-m", "pdnn", "course", "check", str(sheet), "--time-limit", "50"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as parent:
        try:
            until = time.monotonic() + 60
            while not (place.exists() and place.read_text()) and time.monotonic() < until:
                time.sleep(0.05)
            child = int(place.read_text())
        finally:
            parent.kill()
    while _alive(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _alive(child)


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_sheet_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pdnn.course.sheet.to_notebook", full)
    with pytest.raises(OSError, match="No space left"):
        new(SHEETS[0], tmp_path)
    assert list(tmp_path.iterdir()) == []
