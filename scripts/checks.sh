# Sourced by test.sh --all: what a reviewer should not have to look for.

part ruff-format ruff format --check .
part ruff ruff check .
part mypy mypy
part stubs python -m mypy.stubtest pdnn._core pdnn._mpi --ignore-missing-stub --allowlist scripts/stubtest-allowlist.txt
part clang-format sh -c 'git ls-files "cpp/*.cpp" "cpp/*.hpp" | xargs clang-format --dry-run -Werror'
part clang-tidy python scripts/tidy.py
