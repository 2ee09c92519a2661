"""Makes one stub of the core's two widths, and the protocol `Width` that both modules satisfy.

`scripts/make_stubs.sh` calls it.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path

HEAD = '''@typing.type_check_only
class Width(typing.Protocol):
    """
    The module float32 or float64: both hold the same names.
    """
'''


class _Qualified(ast.NodeTransformer):
    """The names of a module's classes with the module's before them."""

    def __init__(self, classes: set[str]) -> None:
        self._classes = classes

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Attribute(ast.Name("float32"), node.id) if node.id in self._classes else node


def main(folder: Path) -> None:
    """Writes float32.pyi for arrays of either width, float64.pyi as the same, and Width into __init__.pyi."""
    stubs = {name: folder / f"{name}.pyi" for name in ("float32", "float64")}
    text, twin = (
        re.sub(r"NDArray\[numpy\.float(32|64)\]", "NDArray[typing.Any]", stub.read_text())
        for stub in stubs.values()
    )
    if text != twin:
        sys.exit(f"{folder}: float32 and float64 differ in more than the type of arrays")
    stubs["float32"].write_text(text)
    stubs["float64"].write_text("from pdnn._core.float32 import *\n")
    nodes = ast.parse(text).body
    qualified = _Qualified({node.name for node in nodes if isinstance(node, ast.ClassDef)})
    members = []
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            members.append(f"@property\ndef {node.name}(self) -> type[float32.{node.name}]:\n    ...")
        elif isinstance(node, ast.FunctionDef):
            node.args.args.insert(0, ast.arg("self"))
            node.body = [ast.Expr(ast.Constant(...))]
            members.append(ast.unparse(qualified.visit(node)))
    body = "\n".join(members).replace("\n", "\n    ")
    with open(folder / "__init__.pyi", "a") as file:
        file.write(f"{HEAD}    {body}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="which holds the stubs of pdnn._core")
    main(parser.parse_args().folder)
