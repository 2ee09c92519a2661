"""Parts of pages that are made when the site is built: the help of every command, and the C++ contracts."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
XML = ROOT / "docs" / "_build" / "doxygen"
DOXYGEN = """
PROJECT_NAME = pdnn
INPUT = cpp/pdnn
FILE_PATTERNS = *.hpp
RECURSIVE = YES
STRIP_FROM_INC_PATH = cpp
OUTPUT_DIRECTORY = docs/_build/doxygen
GENERATE_XML = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
XML_PROGRAMLISTING = NO
JAVADOC_AUTOBRIEF = YES
MACRO_EXPANSION = YES
PREDEFINED = PDNN_API=
QUIET = YES
WARNINGS = NO
WARN_IF_UNDOCUMENTED = NO
WARN_IF_DOC_ERROR = NO
"""


def commands_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of a parser's commands, each followed by those of its own."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from commands_of(command)


class CommandHelp(SphinxDirective):
    """A section for each command of pdnn, with the help of its parser."""

    def run(self) -> list[nodes.Node]:
        """Of all commands, in the order of ``pdnn --help``."""
        from pdnn.cli import command_line

        os.environ["COLUMNS"] = "96"  # what argparse wraps at
        sections: list[nodes.Node] = []
        for parser in commands_of(command_line()):
            section = nodes.section(ids=[nodes.make_id(parser.prog)], names=[parser.prog])
            section += nodes.title(text=parser.prog)
            section += nodes.literal_block(text=parser.format_help(), language="text")
            sections.append(section)
        return sections


class Contracts(SphinxDirective):
    """Doxygen's reading of what the content lists of cpp/pdnn, by names; without Doxygen, a note."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """A section for each class, struct or function."""
        index = XML / "xml" / "index.xml"
        if not index.exists():
            text = "This copy of the site was built without Doxygen, and so without this page's content."
            return [nodes.note("", nodes.paragraph(text=text))]
        kinds = {
            each.findtext("name"): each.get("kind") for each in ElementTree.parse(index).iter("compound")
        }
        sections: list[nodes.Node] = []
        for name in self.content:
            kind = kinds.get(name, "function")
            members = "" if kind == "function" else "   :members:\n"
            section = nodes.section(ids=[nodes.make_id(name)], names=[name])
            section += nodes.title(text=name)
            text = f"```{{eval-rst}}\n.. doxygen{kind}:: {name}\n{members}```"
            section += self.parse_text_to_nodes(text)
            sections.append(section)
        return sections


def read_headers(app: Any) -> None:
    """Lets Doxygen read the headers, if the system has it."""
    shutil.rmtree(XML, ignore_errors=True)
    if shutil.which("doxygen") is None:
        print("No doxygen found: the site has no C++ pages (Debian, Ubuntu: apt install doxygen)")
        return
    XML.mkdir(parents=True)
    subprocess.run(["doxygen", "-"], input=DOXYGEN, text=True, cwd=ROOT, check=True)


def setup(app: Any) -> dict[str, bool]:
    """Joins Sphinx."""
    app.add_directive("command-help", CommandHelp)
    app.add_directive("cpp-contracts", Contracts)
    app.connect("builder-inited", read_headers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
