#!/usr/bin/env bash
# Writes the types of the compiled modules, python/pdnn/_core and python/pdnn/_mpi/openmpi.pyi, from the modules that
# Python finds.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for module in pdnn._core pdnn._mpi.openmpi; do
  python -m pybind11_stubgen "$module" --output-dir "$out" --root-suffix "" --numpy-array-use-type-var --exit-code
done
python scripts/one_width.py "$out/pdnn/_core"
rm -rf python/pdnn/_core
cp -r "$out/pdnn/_core" python/pdnn/
cp "$out/pdnn/_mpi/openmpi.pyi" python/pdnn/_mpi/
cp "$out/pdnn/_mpi/openmpi.pyi" python/pdnn/_mpi/mpich.pyi # which has the same source
