#!/usr/bin/env bash
# Tests pdnn for arm64 on a machine of another kind: compiles it with a cross compiler and runs it in an emulator.
#   bash scripts/arm64.sh                    the C++ tests, with the generic kernels and with those for NEON
#   bash scripts/arm64.sh fingerprints       ten trainings in Python, which must have the bits that pdnn has here
#   bash scripts/arm64.sh CTEST-ARGUMENT...  some of the C++ tests
# All but comm/missing_test.cpp, which looks at other processes as the emulator does not show them.
# Debian, Ubuntu: apt install g++-aarch64-linux-gnu qemu-user
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh

tree=$PWD/build/arm64
for tool in aarch64-linux-gnu-g++ qemu-aarch64 cmake ninja; do
  command -v $tool >/dev/null || die "scripts/arm64.sh: no $tool found (Debian, Ubuntu: apt install" \
    "g++-aarch64-linux-gnu qemu-user cmake ninja-build)"
done

# wheels DIRECTORY PACKAGE...: unpacks them there, as they are for arm64.
wheels() {
  [ -e "$1" ] || python3 -m pip install --quiet --only-binary=:all: --target "$1" \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 "${@:2}"
}

# Debian's Python for arm64, which may lie beside the machine's own.
python_of_debian() {
  [ -e "$1/usr/bin/python3.11" ] && return
  local packages="libbz2-1.0 libc6 libcrypt1 libexpat1 libffi8 libgcc-s1 liblzma5 libpython3.11-minimal libpython3.11-stdlib
    libssl3 libstdc++6 libuuid1 python3.11-minimal zlib1g"
  mkdir -p "$1/packages"
  (cd "$1/packages" && apt-get download $(printf '%s:arm64 ' $packages)) ||
    die "scripts/arm64.sh: Debian 12 has these packages after dpkg --add-architecture arm64 && apt update"
  for package in "$1"/packages/*.deb; do dpkg -x "$package" "$1"; done
}

build() { # TARGET CMAKE-ARGUMENT...
  cmake --preset arm64 "${@:2}" >/dev/null && cmake --build --preset arm64 --target "$1"
}

wheels "$tree/boost" cmeel-boost cmeel-eigen
if [ "${1:-}" != fingerprints ]; then
  build all
  ctest --preset arm64 "$@"
  exit
fi

python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || die "scripts/arm64.sh: this part needs Python 3.11"
python3 -c 'import pdnn' 2>/dev/null || die "scripts/arm64.sh: this part compares with pdnn here: pip install ."
python_of_debian "$tree/root"
wheels "$tree/site" cloudpickle matplotlib mpi4py numpy pooch tqdm
wheels "$tree/pybind11" pybind11
# A cross compilation does not look for headers beside the machine's own Python; those of 64-bit Linuxes are the same.
build _core -DPDNN_BINDINGS=ON -Dpybind11_DIR="$tree/pybind11/pybind11/share/cmake/pybind11" \
  -DPython_INCLUDE_DIR="$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')"
rm -rf "$tree/site/pdnn"
cp -r python/pdnn "$tree/site"
rm -f "$tree"/site/pdnn/*.so
cp "$tree"/_core.*.so "$tree/site/pdnn/_core.so"
for isa in v2 v3; do
  PDNN_ISA=$isa python3 scripts/fingerprints.py --save "$tree/$isa.json" >/dev/null
done
for isas in v2:v2 neon:v3; do # this machine's v3 has the bits of neon
  PDNN_ISA=${isas%:*} PYTHONPATH=$tree/site PYTHONWARNINGS=ignore qemu-aarch64 -L "$tree/root" \
    "$tree/root/usr/bin/python3.11" scripts/fingerprints.py --compare "$tree/${isas#*:}.json"
done
