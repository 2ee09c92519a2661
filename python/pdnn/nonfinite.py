"""What is said of a step whose loss or gradient was not finite."""

from __future__ import annotations

from pdnn.data.source import Source
from pdnn.training import Training


def tell_nonfinite(training: Training, source: Source, ranks: int, step: int, element: int, rank: int) -> str:
    """Says which step was not finite, and where this was seen first.

    Parameters
    ----------
    training : Training
    source : Source
        The rows of the epoch.
    ranks : int
        How many there are.
    step : int
        Of the training.
    element : int
        Of the flat gradient; of an element less than 0 it was the loss, of one too large what a codec sent.
    rank : int
        That saw it; -1: all did.
    """
    what, end = "a gradient that a codec was to send", 0
    if element < 0:
        what = "the loss"
        if training.loss.core_name == "BCELoss":
            what += " (BCELoss is of probabilities, as nn.Sigmoid() gives; BCEWithLogitsLoss of others)"
    for name, parameter in training.model.named_parameters():
        end += parameter.size
        if 0 <= element < end:
            what = f'the gradient of "{name}", or the update made of it,'
            break
    whose = f" of rank {rank}" if rank >= 0 and ranks > 1 else ""
    return (
        f"fit: step {step} of the training, in epoch {training.epoch}, counted from 0{whose}: "
        f"{what} is NaN or infinite; this update was not made, those before it were. "
        f"{source.advice()}; "
        'on_nonfinite="skip" (--on-nonfinite skip) leaves such updates out'
    )
