"""pdnn: neural networks trained on CPUs, parallel in every way a training step can be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy  # noqa: F401  # by _core, a lack of it or a Ctrl-C meanwhile were "initialization failed"

from pdnn import _core, callbacks, comm, data, models, nn, optim
from pdnn._core import CommunicationError, RankFailed
from pdnn.comm import world
from pdnn.deferred import deferred
from pdnn.models import load_model
from pdnn.nn import manual_seed
from pdnn.recording import no_grad
from pdnn.tensor import Tensor, cat
from pdnn.trainer import Trainer

if TYPE_CHECKING:
    from pdnn import checkpoint, codec, datasets, ddp, estimate, exercises, parallel, strategies
    from pdnn.launch import run

__version__: str = _core.build_info()["version"]

__all__ = [
    "CommunicationError",
    "RankFailed",
    "Tensor",
    "Trainer",
    "callbacks",
    "cat",
    "checkpoint",
    "codec",
    "comm",
    "data",
    "datasets",
    "ddp",
    "estimate",
    "exercises",
    "get_include",
    "load_model",
    "manual_seed",
    "models",
    "nn",
    "no_grad",
    "optim",
    "parallel",
    "run",
    "strategies",
    "world",
]


def get_include() -> str:
    """The folder of the C++ headers for layers of your own, for a compiler's -I."""
    return str(Path(_core.__file__).with_name("include"))


_LATER = ("checkpoint", "codec", "datasets", "ddp", "estimate", "exercises", "parallel", "strategies")

if not TYPE_CHECKING:
    __getattr__, __dir__ = deferred(__name__, {**dict.fromkeys(_LATER, ()), "launch": ["run"]})
