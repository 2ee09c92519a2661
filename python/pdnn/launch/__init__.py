"""Starting ranks: a program on N ranks (`launch`), or a function (`run`); this process does not start MPI."""

from pdnn.launch.call import run
from pdnn.launch.program import launch

__all__ = ["launch", "run"]
