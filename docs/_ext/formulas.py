"""Formulas as MathML, which browsers draw without a program from elsewhere."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

logger = logging.getLogger(__name__)


def mathml(node: nodes.Element, display: str) -> str:
    """A formula; a warning if a command or a column of LaTeX is left in it."""
    text = node.astext().replace("{aligned}", "{align*}")  # the same columns, under the name that is known
    formula = convert(text, display=display)
    if "\\" in formula or "<mi>&<" in formula:
        logger.warning("no MathML for a part of this formula: %s", text, location=node)
    return formula


def in_a_line(writer: Any, node: nodes.Element) -> None:
    """Writes a formula among words."""
    writer.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def of_its_own(writer: Any, node: nodes.Element) -> None:
    """Writes a formula between paragraphs, which a narrow screen scrolls."""
    writer.body.append(f'<div class="formula">{mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Joins Sphinx."""
    app.add_html_math_renderer("mathml", (in_a_line, None), (of_its_own, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
