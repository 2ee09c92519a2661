"""Starting ranks: a program on N of them (`launch`), or a function (`run`); this process never starts MPI."""

from pdnn.launch.call import run
from pdnn.launch.program import launch

__all__ = ["launch", "run"]
