"""Settings: the arguments of `Trainer.fit`, and what they allow."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from pdnn.checks import flag, integer, number
from pdnn.data import PadCropFlip
from pdnn.data.images import check_augment
from pdnn.training import Training

LEAST = {"epochs": 0, "batch_size": 1, "every": 1, "every_steps": 1, "keep": 1, "elastic": 0}
"""The least that counts of `Settings` may be."""


class Settings(NamedTuple):
    """The arguments of `Trainer.fit`, but for the data and the callbacks."""

    epochs: int
    batch_size: int
    shuffle: bool
    augment: PadCropFlip | None
    checkpoint: str | os.PathLike[str] | None
    every: int
    every_steps: int | None
    every_seconds: float | None
    keep: int
    resume: bool
    timeline: bool
    verbose: bool
    elastic: int | None

    def checked(self, training: Training) -> Settings:
        """The same, with Python's integers; TypeError or ValueError if one does not fit."""
        counts: dict[str, Any] = {
            name: integer("fit", name, getattr(self, name), least)
            for name, least in LEAST.items()
            if not (name in ("every_steps", "elastic") and getattr(self, name) is None)
        }
        if self.every_seconds is not None:
            number("fit", "every_seconds", self.every_seconds, "a number from 0", lambda found: found >= 0)
        check_augment("fit", self.augment)
        for name in ("shuffle", "resume", "timeline"):
            flag("fit", name, getattr(self, name))
        wanted = {
            "resume=True": self.resume,
            "every=": self.every != 1,
            "keep=": self.keep != 1,
            "every_steps=": self.every_steps is not None,
            "every_seconds=": self.every_seconds is not None,
        }
        for name, given in wanted.items():
            if given and self.checkpoint is None:
                raise ValueError(f"fit: {name} needs checkpoint=, the directory of the checkpoint")
        if self.checkpoint is not None and not os.fspath(self.checkpoint):
            raise ValueError(
                'fit: checkpoint="" is no path; expected the directory of the checkpoint, or None'
            )
        if any(parameter.hooks or parameter.post_hooks for parameter in training.model.parameters()):
            raise ValueError(
                "fit: the model has hooks, which only backward passes by hand run; remove them, or write the "
                "loop by hand"
            )
        if self.timeline and not training.strategy.has_pipeline:
            raise ValueError(f'fit: timeline=True is for pipelines, strategy "{training.strategy}" has none')
        return self._replace(**counts)
