"""The same steps by PyTorch: as its tutorials write them, and the whole step compiled as one graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peers import LEARNING_RATE, Network, Stepped, timed
from workers import Runner


@dataclass(frozen=True)
class TorchJob:
    """What PyTorch trains: a module, a loss, an optimizer over the module's parameters, and batches."""

    model: Any
    criterion: Any
    optimizer: Any
    batches: list[tuple[Any, Any]]


def torch_mlp(network: Network, fused: bool) -> TorchJob:
    """A multilayer perceptron and SGD; `fused`: PyTorch's fused form of it."""
    import torch

    modules: list[torch.nn.Module] = []
    for w, b in network.parameters():
        inputs, outputs = w.shape
        linear = torch.nn.Linear(inputs, outputs, bias=b is not None, dtype=getattr(torch, network.dtype))
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(w.T.copy()))
            if b is not None:
                linear.bias.copy_(torch.from_numpy(b))
        modules += [linear, torch.nn.Tanh() if network.activation == "tanh" else torch.nn.Sigmoid()]
    model = torch.nn.Sequential(*modules[:-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, fused=fused or None)
    batches = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in network.batches()]
    return TorchJob(model, torch.nn.CrossEntropyLoss(), optimizer, batches)


def torch_pass(job: TorchJob) -> Any:
    """A step for each batch, as PyTorch's tutorials write it; returns the batches' losses, a tensor."""
    import torch

    losses = []
    for x, y in job.batches:
        job.optimizer.zero_grad()
        loss = job.criterion(job.model(x), y)
        loss.backward()
        job.optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def torch_steps(network: Stepped, make: Callable[[], TorchJob], threads: int, flush: bool = True) -> Runner:
    """Passes in eager mode by one process with so many threads; `flush`: see `take_threads`."""
    take_threads(threads, flush)
    job = make()
    return timed(network, lambda: float(torch_pass(job).mean()))


def torch_eager(network: Network, threads: int, fused: bool) -> Runner:
    """PyTorch in eager mode."""
    return torch_steps(network, lambda: torch_mlp(network, fused), threads)


def torch_graph(network: Network, threads: int, half: bool) -> Runner:
    """The whole step as one compiled graph. `half`: its products in bfloat16, by autocast."""
    import torch

    take_threads(threads)
    job = torch_mlp(network, False)
    parameters = {name: parameter.detach() for name, parameter in job.model.named_parameters()}

    def mean_loss(parameters: Any, x: Any, y: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            return job.criterion(torch.func.functional_call(job.model, parameters, (x,)), y)

    def step(parameters: Any, x: Any, y: Any) -> Any:
        gradients, loss = torch.func.grad_and_value(mean_loss)(parameters, x, y)
        for name, parameter in parameters.items():
            parameter.sub_(LEARNING_RATE * gradients[name])
        return loss

    step = torch.compile(step, fullgraph=True)
    return timed(network, lambda: float(torch.stack([step(parameters, x, y) for x, y in job.batches]).mean()))


def torch_compiled(network: Stepped, make: Callable[[], TorchJob], threads: int, half: bool) -> Runner:
    """A compiled step of any module, cut into graphs where PyTorch cuts it: around `backward`."""
    import torch

    take_threads(threads)
    job = make()

    def step(x: Any, y: Any) -> Any:
        job.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = job.criterion(job.model(x), y)
        loss.backward()
        job.optimizer.step()
        return loss.detach()

    step = torch.compile(step)
    return timed(network, lambda: float(torch.stack([step(x, y) for x, y in job.batches]).mean()))


def take_threads(threads: int, flush: bool = True) -> None:
    """Sets PyTorch's threads. `flush`: subnormal numbers, with which processors are slow, are 0 in them."""
    import torch

    torch.set_flush_denormal(flush)  # of this thread; those that it starts have its mode
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
