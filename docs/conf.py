"""The documentation site: the Markdown of this folder, the notebooks as stored, and the docstrings."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_ext"))

import pdnn  # noqa: E402

project = "pdnn"
author = "The pdnn developers"
project_copyright = author
version = release = pdnn.__version__

# The source folder is the repository, so that links work here as they do in a clone.
root_doc = "docs/index"
include_patterns = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "docs/**",
    "notebooks/*.ipynb",
]
suppress_warnings = [
    "config.cache",  # a function cannot be pickled
    "misc.highlighting_failure",  # cells with … or a magic are not quite Python
]
exclude_patterns = ["docs/_build", "docs/_templates", ".git", ".venv", "build", "out"]
templates_path = [str(DOCS / "_templates")]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "breathe",
    "sphinx_copybutton",
    "formulas",
    "public_api",
    "reference_pages",
]

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
nb_execution_mode = "off"  # scripts/notebooks.py tests that a full run shows what is stored

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_type_aliases = {
    **{name: name for name in ("Array", "Closure", "Columns", "Data", "Metrics", "Op", "Params", "Rows")},
    "npt.ArrayLike": "ArrayLike",
}
python_maximum_signature_line_length = 88
add_module_names = False
default_role = "py:obj"
napoleon_use_rtype = False
napoleon_use_ivar = True

breathe_projects = {"pdnn": str(DOCS / "_build" / "doxygen" / "xml")}  # by _ext/reference_pages.py
breathe_default_project = "pdnn"
breathe_domain_by_extension = {"hpp": "cpp"}

html_theme = "furo"
html_math_renderer = "mathml"  # by _ext/formulas.py
html_static_path = ["_static"]
html_css_files = ["site.css"]
pygments_dark_style = "github-dark"
html_title = f"pdnn {version}"
html_additional_pages = {"index": "to_the_first_page.html"}
html_copy_source = False
html_show_copyright = False
