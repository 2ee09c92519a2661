#!/usr/bin/env bash
# All tests from a fresh clone: what failed, the seconds that each part took, and, on the last line, how many passed.
#   bash test.sh         the install and the tests: at most 6 minutes on two cores
#   bash test.sh --all   formatting, lint, types, sanitizers and the long tests too: at most 15, as continuous integration does
set -euo pipefail
cd "$(dirname "$0")"
. scripts/environment.sh

all=
for argument in "$@"; do
  case $argument in
    --all) all=--all ;;
    *) die "test.sh: unknown argument $argument, expected --all" ;;
  esac
done

reports=$PWD/build/reports # of each part: PART.passed or PART.failed, and PART.xml if it counts its tests
rm -rf "$reports"
mkdir -p "$reports"

# part NAME COMMAND...: runs it without input and goes on if it fails. The command may write a JUnit file at $report.
part() {
  local name=$1 began=$SECONDS verdict=passed
  shift
  report=$reports/$name.xml
  printf '\n--- %s\n' "$name"
  # `times` are those of all that its shell has waited for: here the command alone.
  ("$@" </dev/null && ended=0 || ended=$?; times >"$reports/$name.times"; exit $ended) || verdict=failed
  awk -F '[ms ]+' -v wall=$((SECONDS - began)) -v what="$name: $verdict" \
    'NR == 2 { printf "%6d s  %s (%d s of processor time)\n", wall, what, 60 * ($1 + $3) + $2 + $4 }' \
    "$reports/$name.times" >"$reports/$name.$verdict"
}

# The requirements of pdnn and of these extras of it, one a line.
requirements() {
  python - "$@" <<'END'
import sys
try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11; scikit-build-core brings it
    import tomli as tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
lists = [project["dependencies"], *map(project["optional-dependencies"].get, sys.argv[1:])]
print("\n".join(each for one in lists for each in one))
END
}

# What the tests need is fetched while pdnn is compiled.
install() {
  python -m pip install --quiet 'pip>=23.1' && python -m pip install --quiet -r requirements/build.txt || return
  rm -rf build/wheel
  python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel -Cbuild-dir="$tree" \
    -Cinstall.strip=false -Ccmake.define.PDNN_LIBRARY=ON -Ccmake.define.PDNN_WERROR=ON . &
  local wheel=$!
  requirements test ${all:+dev} >build/requirements.txt &&
    python -m pip install --quiet --no-compile -r build/requirements.txt
  local fetched=$?
  wait $wheel && [ $fetched = 0 ] && (install_pdnn --no-deps --force-reinstall build/wheel/*.whl)
}

# The instruction sets that this machine has and the library has all kernels of, the widest last.
whole_isas() { python -c 'import pdnn._core; print(*(isa for isa in pdnn._core.supported_isas() if "-" not in isa))'; }

# What is neither kernels nor layers is the same code on all instruction sets: it runs on the widest, else with --all.
cpp_tests() {
  local isas narrower=
  read -ra isas < <(whole_isas)
  [ -n "$all" ] || narrower=$(printf '|^%s_rest$' "${isas[@]::${#isas[@]}-1}")
  cmake -DPDNN_TESTS=ON "$tree" >/dev/null && cmake --build "$tree" &&
    ctest --test-dir "$tree" --exclude-regex "^\$$narrower" --parallel "$workers" --output-on-failure \
      --output-junit "$report"
}

# sanitizer PRESET INSTRUCTION-SETS TESTS. Compiled without numbers of lines in a seventh less time: the preset has them.
sanitizer() {
  cmake --preset "$1" -DPDNN_ISA="$2" -DCMAKE_CXX_FLAGS=-Og >/dev/null && cmake --build --preset "$1" &&
    ctest --preset "$1" --tests-regex "$3" --parallel "$workers" --output-junit "$report"
}

# The kernels of every instruction set that this machine has, and the rest with the widest; no threads depend on it.
sanitizers() {
  local isas widest
  isas=$(python -c 'import pdnn._core; print(*pdnn._core.supported_isas(), sep=";")')
  widest=$(whole_isas)
  widest=${widest##* }
  part asan sanitizer asan "$isas" "^kernels_|_nn|^${widest}_rest|fuzz_|library"
  part tsan sanitizer tsan "v2;$widest" "^${widest}_|library"
}

# The tests of a file stay together, so what they share is made once.
python_tests() { python -m pytest $all --numprocesses="$workers" --dist=loadfile --junitxml="$report" "$@"; }

enter_venv
unset PYTHONDONTWRITEBYTECODE # what tests import is compiled when first needed, and once
workers=$(python -c 'import os; print(min(4, len(getattr(os, "sched_getaffinity", lambda _: range(2))(0))))')
tree=$PWD/build/test-$(python -c 'import sys; print(sys.implementation.cache_tag)')
part install install
if [ -e "$reports/install.passed" ]; then
  set -m # beside what follows, in the time that it waits; as a group of processes, which ends with this script
  (
    renice -n 10 -p $BASHPID >/dev/null # tests of Python come first
    part cpp cpp_tests
    part architecture python_tests tests/test_architecture.py
    if [ -n "$all" ]; then
      . scripts/checks.sh
      sanitizers
    fi
  ) </dev/null >"$reports/beside.log" 2>&1 &
  beside=$!
  set +m
  trap 'kill -- -$beside 2>/dev/null || true' EXIT
  part python python_tests tests/python tests/course
  # Two at a time: each starts ranks or threads of its own, and waits for half of its time.
  workers=2 part mpi python_tests tests/mpi
  workers=2 part notebooks python_tests --dist=load tests/notebooks
  [ -z "$all" ] || part fuzz python scripts/fuzz.py --seconds 2
  tail -n +1 -f --pid=$beside "$reports/beside.log"
  wait $beside || echo '        beside: ended early' >"$reports/beside.failed"
fi

printf '\n'
python - "$reports" $SECONDS <<'END'
import sys
from pathlib import Path
from xml.etree import ElementTree

passed = failed = skipped = 0
verdicts = [*Path(sys.argv[1]).glob("*.passed"), *Path(sys.argv[1]).glob("*.failed")]
for verdict in sorted(verdicts, key=lambda verdict: verdict.stat().st_mtime):
    print(verdict.read_text(), end="")
    tests, wrong, left = 1, 0, 0
    if verdict.with_suffix(".xml").exists():
        suites = list(ElementTree.parse(verdict.with_suffix(".xml")).iter("testsuite"))
        tests, wrong, left = (
            sum(int(suite.get(name, 0)) for suite in suites for name in names)
            for names in (["tests"], ["failures", "errors"], ["skipped", "disabled"])
        )
    wrong = max(wrong, verdict.suffix == ".failed")
    passed, failed, skipped = passed + max(tests - wrong - left, 0), failed + wrong, skipped + left
print(f"{sys.argv[2]:>6} s  in all")
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(failed > 0)
END
