# Sourced by test.sh --all: what a reviewer should not have to look for.

part ruff-format ruff format --check .
part ruff ruff check .
part mypy mypy
part stubs python -m mypy.stubtest pdnn._core pdnn._mpi.openmpi --ignore-missing-stub --allowlist scripts/stubtest-allowlist.txt
part clang-format sh -c 'git ls-files "cpp/*.cpp" "cpp/*.hpp" | xargs clang-format --dry-run -Werror'
part workflows check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
part issue-forms check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
part citation check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
part clang-tidy python scripts/tidy.py
