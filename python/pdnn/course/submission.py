"""What a student wrote: the functions of a sheet, and errors in it in words, with their lines."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType, ModuleType
from typing import Any

from pdnn.course.notebook import code_cells


class Wrong(Exception):
    """What a check found to be wrong, in words."""


class Submission:
    """The definitions of a student's file, as attributes.

    Only imports, functions, classes and constants named in capitals are run, also in a try; the cells that
    train and draw are not. They are those of a module, which is there to import for what looks classes up in
    it.

    Parameters
    ----------
    path : Path
        The script or notebook.
    watch : callable, optional
        Gets this object before the definitions are run, which may never end.

    Raises
    ------
    Wrong
        If the file is no Python, or a definition fails.
    ValueError
        If it is neither a script nor a notebook.
    """

    def __init__(self, path: Path, watch: Callable[[Submission], object] = bool) -> None:
        self._places: dict[str, str] = {}  # of the names that code is compiled under
        watch(self)
        module = sys.modules["__sheet__"] = ModuleType("__sheet__")
        self._namespace: dict[str, Any] = vars(module)
        flags = 0  # of imports from __future__, which hold in the cells below, too
        for place, source in code_cells(path):
            name = f"<{path} {place}>" if place else str(path)
            self._places[name] = place
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
            try:
                code = compile(_definitions(source, name), name, "exec", flags, dont_inherit=True)
                flags |= code.co_flags & annotations.compiler_flag
                exec(code, self._namespace)
            except SyntaxError as error:
                if error.filename != name:  # of a file that it imports: its name is in the words
                    raise Wrong(self.explain(error) or str(error)) from error
                raise Wrong(
                    f"this is no Python: {error.msg}, {self._line(name, error.lineno or 1)}"
                ) from error
            except BaseException as error:  # SystemExit, too, or whatever else it raises
                raise Wrong(self.explain(error) or f"{type(error).__name__}: {error}") from error

    def __getattr__(self, name: str) -> Any:
        if name not in self._namespace:
            raise Wrong(
                f"there is no `{name}` that is a def, a class or a lambda: the sheet has it, and it must "
                "keep this name"
            )
        return self._namespace[name]

    def where(self, frames: Iterable[tuple[FrameType, int]]) -> str | None:
        """The innermost of these places, from the outermost, that is in the student's file, in words."""
        own = [(frame, line) for frame, line in frames if frame.f_code.co_filename in self._places]
        if not own:
            return None
        frame, line = own[-1]
        return self._line(frame.f_code.co_filename, line)

    def waits(self, frame: FrameType | None) -> str | None:
        """Where a thread is now, in words; None if nothing of the student's runs there."""
        return None if frame is None else self.where(reversed([*walk_stack(frame)]))

    def explain(self, error: BaseException) -> str | None:
        """An exception of the student's code in words; None if it does not come from there."""
        frames = list(walk_tb(error.__traceback__))
        place = self.where(frames)
        if place is None:
            called = str(error).partition("()")[0].partition(".")[0]
            if isinstance(error, TypeError) and called in self._namespace:
                return f"`{called}` must keep the arguments that it has in the sheet: {error}"
            return None
        names = [frame.f_code.co_name for frame, _ in frames if frame.f_code.co_filename in self._places]
        names = [name for name in names if not name.endswith(("comp>", "genexpr>"))] or names
        match error:
            case NotImplementedError() if frames[-1][0].f_code.co_filename in self._places:
                return f"`{names[-1]}` is still a TODO, {place}"
            case NameError(name=name) if name and names[-1] != "<module>":
                return (
                    f"`{names[-1]}` uses `{name}`, which is neither an argument nor defined in it, {place}; "
                    "a function that reads what other cells have set is wrong as soon as they set it anew"
                )
            case NameError(name=name) if name:
                return (
                    f"`{name}` is not defined, {place}; the check runs only imports, functions, classes and "
                    "constants in CAPITALS"
                )
            case ValueError() if "read-only" in str(error):
                return (
                    f"`{names[-1]}` writes into an array that it may only read, {place}; who passed it "
                    "needs its values later: make a new one, a = a - b, not a -= b"
                )
            case SystemExit():
                return f"`{names[-1]}` ends the program, {place}"
        return f"{type(error).__name__} in `{names[-1]}`, {place}: {error}"

    def _line(self, name: str, line: int) -> str:
        text = linecache.getline(name, line).strip()
        place = self._places[name]
        return f"{place}, line {line} ({text})" if place else f"line {line} ({text})"


def _definitions(source: str, name: str) -> ast.Module:
    """The module without what only runs: loops, calls, variables."""
    tree = ast.parse(source, name)
    tree.body = [statement for statement in tree.body if _defines(statement)]
    return tree


def _defines(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.ClassDef():
            return True
        case ast.Assign(targets=targets, value=value):
            names = [name for target in targets for name in _names(target)]
        case ast.AnnAssign(target=target, value=value):
            names = _names(target)
        case ast.Try(body=body):  # an import that may fail
            return all(_defines(each) for each in body)
        case _:
            return False
    return all(names) if isinstance(value, ast.Lambda) else all(name.isupper() for name in names)


def _names(target: ast.expr) -> list[str]:
    """What an assignment gives a value to; "" for what is no name."""
    match target:
        case ast.Name(id=name):
            return [name]
        case ast.Tuple(elts=targets):
            return [name for each in targets for name in _names(each)]
    return [""]
