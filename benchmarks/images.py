"""Training steps of two convolutional networks, by pdnn and by PyTorch: a block is a pass over some batches.

Both sides start from the same parameters and take the same batches in the same order. PyTorch's images lie
in the memory format that is asked for, ready as tensors; pdnn gets them as (n, channels, height, width) and
turns each batch as it gathers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import peers
from peers import Network, fitted, pdnn_trainer
from pytorch import TorchJob, torch_compiled, torch_steps
from workers import Runner

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Images:
    """A convolutional network, and batches for it.

    Parameters
    ----------
    name : str
    model : "lenet" or "resnet9"
        The parallel-SGD exercise's network with plain SGD, or ResNet9 with Adam and L2.
    channels, batch : int
        Images are 32x32.
    flop : int
        Floating-point operations of a step's products, without the taps on the padding.
    dtype : str
    steps : int
        Batches in a block.
    """

    name: str
    model: str
    channels: int
    batch: int
    flop: int
    dtype: str = "float32"
    steps: int = 4

    def data(self) -> tuple[Array, Array]:
        """Images (steps · batch, channels, 32, 32) and classes (steps · batch,), int64."""
        rng = np.random.default_rng(1)
        rows = self.steps * self.batch
        x = rng.standard_normal((rows, self.channels, 32, 32), dtype=np.float32).astype(self.dtype)
        return x, rng.integers(0, 10, rows)

    def build(self, sync: bool = False, dtype: str = "") -> Any:
        """The network by pdnn; without dropout, whose draws differ between libraries.

        `sync`: ranks normalize over the whole batch, as PyTorch's do not on CPUs.
        """
        import pdnn

        if self.model == "lenet":
            return pdnn.exercises.lenet_psgd(dropout=0, dtype=dtype or self.dtype, seed=0)
        return pdnn.models.ResNet9(sync=sync, dtype=dtype or self.dtype, seed=0)


LENET = Images("parallel-SGD CNN, batch 256", "lenet", 1, 256, 2_593_000_000)
RESNET9 = Images("ResNet9, batch 128", "resnet9", 3, 128, 377_000_000)


def make_trainer(
    images: Images, strategy: Any, comm: Any = None, sync: bool = False, dtype: str = ""
) -> tuple[Any, Any]:
    """A Trainer of pdnn's, and its data set in memory; `dtype`: the model's, if not the data's."""
    import pdnn
    from pdnn import nn, optim

    model = images.build(sync, dtype)
    if images.model == "lenet":
        loss: Any = nn.NLLLoss()
        optimizer: Any = optim.SGD(model.parameters(), lr=0.01)
    else:
        loss = nn.CrossEntropyLoss()
        optimizer = optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-3)
    trainer = pdnn.Trainer(model, loss, optimizer, strategy=strategy, comm=comm)
    return trainer, pdnn.data.Dataset(*images.data())


def trainer_of(network: Network | Images, strategy: Any) -> tuple[Any, Any]:
    """A Trainer of whichever kind of network, and its data set in memory."""
    if isinstance(network, Images):
        return make_trainer(network, strategy)
    return peers.make_trainer(network, strategy)


def pdnn_side(
    network: Network | Images, strategy: Any, dtype: str = "", comm: Any = None, sync: bool = False
) -> Runner:
    """`Trainer.fit` of whichever kind of network, rows in order; its own seconds of the epoch, a step.

    `dtype`: of pdnn's model, where it isn't the network's. `sync`: see `make_trainer`.
    """
    if isinstance(network, Images):
        trainer, data = make_trainer(network, strategy, comm, sync, dtype)
        return fitted(trainer, data, network.batch)
    return pdnn_trainer(network, strategy, False, comm=comm, dtype=dtype)


def torch_network(images: Images, channels_last: bool) -> TorchJob:
    """A convolutional network and PyTorch's fused optimizer, images in one of its two memory formats."""
    import torch

    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = _lenet(torch.nn) if images.model == "lenet" else _resnet9(torch.nn)
    model = model.to(getattr(torch, images.dtype))
    state = images.build().state_dict(format="torch")
    model.load_state_dict(
        {name: torch.from_numpy(np.array(value)) for name, value in state.items()}, strict=False
    )
    model = model.to(memory_format=layout)
    if images.model == "lenet":
        criterion = torch.nn.NLLLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    else:
        criterion = torch.nn.CrossEntropyLoss()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-3, fused=True)
    x, y = (torch.from_numpy(array) for array in images.data())
    batches = [
        (part.contiguous(memory_format=layout), labels)
        for part, labels in zip(x.split(images.batch), y.split(images.batch), strict=True)
    ]
    return TorchJob(model, criterion, optimizer, batches)


def torch_images(images: Images, threads: int, channels_last: bool) -> Runner:
    """PyTorch in eager mode."""
    return torch_steps(images, lambda: torch_network(images, channels_last), threads)


def torch_images_compiled(images: Images, threads: int, half: bool) -> Runner:
    """PyTorch's compiled step, images in its faster format; `half`: bfloat16 by autocast."""
    return torch_compiled(images, lambda: torch_network(images, True), threads, half)


def _lenet(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Dropout(0),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 512),
        nn.ReLU(),
        nn.Linear(512, 256),
        nn.Linear(256, 10),
        nn.LogSoftmax(1),
    )


def _resnet9(nn: Any) -> Any:
    def block(inputs: int, outputs: int, kernel: int, stride: int) -> list[Any]:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

    class Residual(nn.Module):  # type: ignore[misc]
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.fn = nn.Sequential(*block(channels, channels, 3, 1), *block(channels, channels, 3, 1))

        def forward(self, x: Any) -> Any:
            return x + self.fn(x)

    return nn.Sequential(
        *block(3, 16, 7, 4),
        *block(16, 32, 3, 2),
        Residual(32),
        *block(32, 64, 3, 2),
        *block(64, 128, 3, 2),
        Residual(128),
        nn.Flatten(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
