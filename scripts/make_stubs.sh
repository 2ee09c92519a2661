#!/usr/bin/env bash
# Writes the types of the compiled modules, python/pdnn/_core and python/pdnn/_mpi, from the modules that Python finds.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for module in pdnn._core pdnn._mpi; do
  python -m pybind11_stubgen "$module" --output-dir "$out" --root-suffix "" --numpy-array-use-type-var --exit-code
done
python scripts/one_width.py "$out/pdnn/_core"
for name in _core _mpi; do
  rm -rf "python/pdnn/$name" "python/pdnn/$name.pyi"
  cp -r "$out/pdnn/$name"* python/pdnn/
done
