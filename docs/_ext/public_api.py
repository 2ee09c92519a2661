"""Which names of pdnn are public, their pages, and the links to them from the prose of docstrings."""

from __future__ import annotations

import inspect
import pkgutil
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

PUBLIC_BASES = (
    "Module, Loss, Optimizer, LRScheduler, Strategy, Codec, Callback, Protocol, Exception, tuple, dict, "
    "ClassifierMixin, RegressorMixin, BaseEstimator"
)
"""What a class inherits from one of these is on the page of the base alone."""

PAGE = Path(__file__).parents[1] / "api.md"


def listed_modules() -> list[str]:
    """The modules that docs/api.md lists."""
    return re.findall(r"^   (pdnn[\w.]*)$", PAGE.read_text(), re.MULTILINE)


def public_modules() -> set[str]:
    """Every module that says what it offers, and those that it offers."""
    pdnn = import_module("pdnn")
    found, waiting = set[str](), ["pdnn"]
    for module in pkgutil.iter_modules(pdnn.__path__):
        text = Path(pdnn.__path__[0], module.name, "__init__.py")
        if module.name.startswith("_"):
            continue
        if text.exists() and re.search(r"^__all__ =", text.read_text(), re.MULTILINE):
            waiting.append(f"pdnn.{module.name}")
    while waiting:
        found.add(name := waiting.pop())
        module = import_module(name)
        offered = [getattr(module, member) for member in getattr(module, "__all__", ())]
        waiting += {thing.__name__ for thing in offered if isinstance(thing, ModuleType)} - found
    return found


def public_names(module: str) -> list[str]:
    """What a module offers beside modules: what it lists, or else the functions and classes defined in it."""
    room = import_module(module)
    own = [name for name, thing in vars(room).items() if getattr(thing, "__module__", "") == module]
    listed = getattr(room, "__all__", [name for name in own if not name.startswith("_")])
    return [name for name in listed if not isinstance(getattr(room, name), ModuleType)]


def file_names() -> dict[str, str]:
    """Other files for pages that would differ from an earlier one in upper and lower case alone."""
    taken, found = set[str](), {}
    for module in listed_modules():
        for name in public_names(module):
            page = f"{module}.{name}"
            if page.lower() in taken:
                kind = "class" if inspect.isclass(getattr(import_module(module), name)) else "function"
                found[page] = f"{page}-{kind}"
            taken.add(page.lower())
    return found


@cache
def pages() -> dict[str, str]:
    """The page of each public class and function, by the names under which the code knows it."""
    found: dict[str, str] = {}
    for module in listed_modules():
        for name in public_names(module):
            thing = getattr(import_module(module), name)
            if inspect.isclass(thing) or inspect.isroutine(thing):
                found.setdefault(f"{thing.__module__}.{thing.__qualname__}", f"{module}.{name}")
                found.setdefault(name, f"{module}.{name}")
    return found


def elsewhere(name: str) -> bool:
    """Whether a name has its entry in the index under a module that stands earlier in docs/api.md."""
    module, _, last = name.rpartition(".")
    thing = getattr(import_module(module), last)
    known = pages().get(f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}", name)
    return known.rpartition(".")[0] != module


def fold(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """The sidebar opens only where the reader is; with all of the API it would be most of every page."""
    if whole := context.get("toctree"):
        context["toctree"] = lambda **options: whole(**{**options, "collapse": True})


def link(app: Any, env: Any, node: Any, content: Any) -> Any:
    """A link by another name: a class by the file that defines it, or its last part alone."""
    if node.get("refdomain") == "cpp" or re.match(
        r"(class|struct|namespace|group)\w*pdnn", node["reftarget"]
    ):
        return content  # in the C++ contracts, what has no entry there
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    short = re.sub(r"^.*?\b(?=[A-Z]\w*\.\w+$|\w+$)", "", target)  # Class.method, or a name
    for name in (target, short):
        owner, _, member = name.partition(".") if name == short else (name, "", "")
        if owner in pages():
            page = pages()[owner] + (f".{member}" if member else "")
            domain = env.get_domain("py")
            found = domain.resolve_xref(env, node["refdoc"], app.builder, "obj", page, node, content)
            if found is not None:
                return found
    wrong = node["reftype"] == "obj" and target.startswith("pdnn.")
    return None if wrong else content  # other words are code, or types of other packages


def leave_plain_types(app: Any, doctree: Any) -> None:
    """Types of one small word, such as bytes, are Python's, and no attribute that has the same name."""
    from sphinx import addnodes  # the tests read this file without Sphinx

    for node in list(doctree.findall(addnodes.pending_xref)):
        if node.get("reftype") == "class" and re.fullmatch(r"[a-z_]+", node["reftarget"]):
            node.replace_self(node.children)


def check(app: Any, error: Exception | None) -> None:
    """Every public name has its page."""
    names = [f"{module}.{name}" for module in listed_modules() for name in public_names(module)]
    pages, files = Path(app.outdir, "docs", "api"), file_names()
    missing = [name for name in names if not (pages / f"{files.get(name, name)}.html").exists()]
    if error is None and app.builder.format == "html" and missing:
        from sphinx.errors import ExtensionError

        raise ExtensionError(f"no page for {', '.join(missing)}")


def setup(app: Any) -> dict[str, bool]:
    """Joins Sphinx."""
    app.config.autosummary_context = {
        "public_names": public_names,
        "public_bases": PUBLIC_BASES,
        "elsewhere": elsewhere,
    }
    app.config.autosummary_filename_map = file_names()
    app.connect("html-page-context", fold, priority=400)  # before the theme's
    app.connect("doctree-read", leave_plain_types)
    app.connect("missing-reference", link)
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
