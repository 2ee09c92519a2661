# Sourced by run.sh and test.sh from the repository's root: makes .venv, or takes it up again, and installs pdnn into it.

die() {
  printf 'pdnn: %s\n' "$*" >&2
  exit 1
}

# The first Python of at least 3.10 on the path.
find_python() {
  local name
  for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python3.10}; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  die "no Python of at least 3.10 found${PYTHON:+ in PYTHON=$PYTHON}; install one, or name it: PYTHON=/path/to/python3 bash $0"
}

enter_venv() {
  if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    local python
    python=$(find_python) || exit 1
    echo "Making .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv || die "$python cannot make environments (Debian, Ubuntu: apt install python3-venv)"
  fi
  export VIRTUAL_ENV="$PWD/.venv" PATH="$PWD/.venv/bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1
  unset PYTHONHOME PYTHONPATH
  local compiler=${CXX:-c++}
  command -v "$compiler" >/dev/null || command -v "${compiler%% *}" >/dev/null ||
    die "no C++ compiler (${CXX:-c++}) found (Debian, Ubuntu: apt install g++)"
}

# One number for all that pip install builds from.
sources() {
  find pyproject.toml CMakeLists.txt cpp/pdnn cpp/bindings python -type f \
    ! -name '*.pyc' ! -name '*.so' -print | LC_ALL=C sort | xargs cat | cksum
}

# Installs pdnn with pip install's further arguments, and notes what from.
install_pdnn() {
  rm -f .venv/pdnn-sources
  python -m pip install --quiet "$@" || die "the installation failed; the reason is above"
  sources >.venv/pdnn-sources
}

installed() {
  [ "$(cat .venv/pdnn-sources 2>/dev/null)" = "$(sources)" ]
}
