"""The course: sheets to solve, each a notebook and a script, and the check that says what is right and wrong.

On the command line: ``pdnn course list``, ``pdnn course new NAME`` and ``pdnn course check FILE``.
"""

from pdnn.course.results import Report, Result
from pdnn.course.run import check
from pdnn.course.sheet import SHEETS, Sheet, files_in, find, new, solved

__all__ = ["SHEETS", "Report", "Result", "Sheet", "check", "files_in", "find", "new", "solved"]
