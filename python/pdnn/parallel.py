"""The former name of `pdnn.strategies`, kept for one release, with what has moved to other places."""

from pdnn.comm import cores_of_rank as cores_of_rank
from pdnn.ddp import Closeness as Closeness
from pdnn.ddp import check_parameter_closeness as check_parameter_closeness
from pdnn.exercises import matmul as matmul
from pdnn.exercises import matmul_by_reduction as matmul_by_reduction
from pdnn.exercises import matmul_by_rows as matmul_by_rows
from pdnn.strategies import *  # noqa: F403
from pdnn.strategies import ModelAveraging, specs

Average = ModelAveraging
SPECS = specs()
