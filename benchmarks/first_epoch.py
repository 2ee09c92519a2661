"""From the start of a program to the end of its first epoch of digits: imports, data, compilation and all.

python benchmarks/first_epoch.py [--quick] [--blocks 5] [--peers torch,jax] [--json FILE]

Each side is this program with `--run`, in a process of its own: it imports its library, reads an array of
bytes and one of classes, builds 784-256-10 with sigmoid, and trains for an epoch in batches of 105 rows, in
order, by SGD. The seconds are those from the start of the process until it tells the mean loss; the sides
take turns, and the median of theirs counts. PyTorch's compiler finds nothing in its cache, or, in a side of
its own, what it has made before. The digits are MNIST's if PDNN_DATA names the folder that has it in mnist/,
otherwise those that are part of pdnn.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

SIZES, BATCH, RATE = (784, 256, 10), 105, 0.01
OWN = {"pdnn": "float32", "pdnn, bfloat16": "bfloat16"}
"""pdnn's sides, and the number type of the model."""
CACHED = "PyTorch, compiled before"


def arrays(folder: str) -> tuple[Any, Any, list[tuple[Any, Any]]]:
    """Bytes (n, 784), classes (n,), and the parameters that all sides begin with."""
    import numpy as np

    rng = np.random.default_rng(2)
    layers = [
        (rng.uniform(-1, 1, (a, b)).astype(np.float32) / np.float32(np.sqrt(a)), np.zeros(b, np.float32))
        for a, b in pairwise(SIZES)
    ]
    return np.load(f"{folder}/x.npy"), np.load(f"{folder}/y.npy"), layers


def run_pdnn(folder: str, dtype: str) -> float:
    """`Trainer.fit` on bytes; all cores that this process may use, as "auto" finds them to pay."""
    import pdnn

    x, y, layers = arrays(folder)
    model = pdnn.models.mlp(SIZES, "sigmoid", dtype=dtype, seed=0)
    values = [value for layer in layers for value in layer]
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.data = value
    sgd = pdnn.optim.SGD(model.parameters(), lr=RATE)
    trainer = pdnn.Trainer(model, pdnn.nn.CrossEntropyLoss(), sgd)
    data = pdnn.data.Dataset(x, y, scale=1 / 255)
    return trainer.fit(data, 1, BATCH, shuffle=False, verbose=False).history["loss"][-1]


def run_torch(folder: str, compiled: bool) -> float:
    """A loop as in its tutorials; `compiled`: over a compiled step."""
    import torch

    x, y, layers = arrays(folder)
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    model = torch.nn.Sequential(torch.nn.Linear(*SIZES[:2]), torch.nn.Sigmoid(), torch.nn.Linear(*SIZES[1:]))
    with torch.no_grad():
        for linear, (w, b) in zip((model[0], model[2]), layers, strict=True):
            linear.weight.copy_(torch.from_numpy(w.T.copy()))
            linear.bias.copy_(torch.from_numpy(b))
    criterion, sgd = torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=RATE)
    samples, classes = torch.from_numpy(x).float() / 255, torch.from_numpy(y).long()

    def step(x: Any, y: Any) -> Any:
        sgd.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        sgd.step()
        return loss.detach()

    step = torch.compile(step) if compiled else step
    pairs = zip(samples.split(BATCH), classes.split(BATCH), strict=True)
    return sum(float(step(x, y)) * len(x) for x, y in pairs) / len(samples)


def run_jax(folder: str) -> float:
    """The whole batches as one compiled loop, and a step of what is left."""
    import jax
    from jax import numpy as jnp

    x, y, layers = arrays(folder)
    samples, classes = jnp.asarray(x, jnp.float32) / 255, jnp.asarray(y, jnp.int32)

    def mean_loss(layers: Any, x: Any, y: Any) -> Any:
        (w1, b1), (w2, b2) = layers
        out = jax.nn.log_softmax(jax.nn.sigmoid(x @ w1 + b1) @ w2 + b2)
        return -jnp.take_along_axis(out, y[:, None], axis=1).mean()

    def step(layers: Any, batch: Any) -> Any:
        loss, gradients = jax.value_and_grad(mean_loss)(layers, *batch)
        return jax.tree.map(lambda p, g: p - RATE * g, layers, gradients), loss

    rows = len(x) // BATCH * BATCH
    batches = samples[:rows].reshape(-1, BATCH, SIZES[0]), classes[:rows].reshape(-1, BATCH)
    state = jax.tree.map(jnp.asarray, layers)
    state, losses = jax.jit(lambda state: jax.lax.scan(step, state, batches))(state)
    total = float(losses.sum()) * BATCH
    if rows < len(x):
        total += float(jax.jit(step)(state, (samples[rows:], classes[rows:]))[1]) * (len(x) - rows)
    return total / len(x)


@dataclass(frozen=True)
class Program:
    """A side: what it runs, the peer that must be installed, and the interpreter, if not this one."""

    run: Callable[..., float]
    arguments: tuple[Any, ...] = ()
    peer: str = ""
    python: str = sys.executable


def programs() -> dict[str, Program]:
    """All sides by name."""
    found = {name: Program(run_pdnn, (dtype,)) for name, dtype in OWN.items()}
    found["PyTorch eager"] = Program(run_torch, (False,), "torch")
    found["PyTorch, compiled"] = Program(run_torch, (True,), "torch")
    found[CACHED] = Program(run_torch, (True,), "torch")
    found["JAX, jit and scan"] = Program(run_jax, (), "jax")
    old = Path(__file__).parents[1] / "build" / "jax-0.4.31" / "bin" / "python"
    found["JAX 0.4.31, jit and scan"] = Program(run_jax, (), "jax-0.4.31", str(old))
    return found


def timed(name: str, program: Program, folder: str, cache: str) -> tuple[float, float]:
    """Seconds until the program tells its loss, and the loss.

    Raises
    ------
    RuntimeError
        If it tells none.
    """
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache, "PYTHONWARNINGS": "ignore"}
    if program.python != sys.executable:
        environment.pop("PYTHONPATH", None)  # it is this interpreter's
    words = [program.python, __file__, "--run", name, folder]
    start = perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = perf_counter() - start
    if process.returncode or not line:
        raise RuntimeError(f"{name}: ended with code {process.returncode}")
    return seconds, float(line)


def measured(sides: Mapping[str, Program], rounds: int, cores: int) -> list[dict[str, Any]]:
    """Rows of the table."""
    from measure import check_same
    from workers import pinned

    seconds: dict[str, list[float]] = {name: [] for name in sides}
    losses: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="pdnn-first-") as folder, pinned(cores):
        store(folder)
        if CACHED in sides:
            timed(CACHED, sides[CACHED], folder, f"{folder}/kept")
        for number in range(rounds):
            for name, program in sides.items():
                cache = f"{folder}/kept" if name == CACHED else f"{folder}/{number}"
                took, losses[name] = timed(name, program, folder, cache)
                seconds[name].append(took)
    check_same("mean loss", [(name, loss, 1e-2) for name, loss in losses.items()])
    first = median(next(iter(seconds.values())))
    return [
        {"side": name, "seconds": median(took), "ratio": median(took) / first, "fastest": min(took)}
        for name, took in seconds.items()
    ]


def store(folder: str) -> None:
    """Writes the digits as every side reads them."""
    import numpy as np

    import pdnn
    from digits import mnist_folder

    where = mnist_folder()
    data = pdnn.datasets.mnist(where, train=True) if where else pdnn.datasets.mnist_mini(True)
    np.save(Path(folder, "x.npy"), data.x)
    np.save(Path(folder, "y.npy"), data.y)


def main(arguments: Sequence[str]) -> None:
    """The program; of its side, with --run."""
    if arguments[:1] == ["--run"]:
        program = programs()[arguments[1]]
        print(program.run(arguments[2], *program.arguments), flush=True)
        return
    import measure
    import peers
    from digits import mnist_folder

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="1 core, each side once: rough figures")
    parser.add_argument("--blocks", type=measure.count, help="runs of each side (default 5; quick: 1)")
    peers.add_peers(parser, "torch,jax,jax-0.4.31")
    parser.add_argument("--json", type=measure.destination, metavar="FILE", help="write everything measured")
    options = parser.parse_args(arguments)
    wanted = peers.found(options.peers)
    sides = {name: each for name, each in programs().items() if each.peer in ("", *wanted)}
    report = measure.begin()
    what = "MNIST, 60,000 digits" if mnist_folder() else "10,500 digits, as PDNN_DATA names no others"
    for cores in [1] if options.quick or len(os.sched_getaffinity(0)) == 1 else [1, 2]:
        rows = measured(sides, options.blocks or (1 if options.quick else 5), cores)
        report["results"].append({"what": what, "cores": cores, "sides": rows})
        print(f"\n{what}, {cores} core{'s'[: cores > 1]}")
        print(f"{'':28} {'seconds':>8} {'× pdnn':>7} {'fastest':>8}")
        for row in rows:
            print(
                f"{row['side']:28} {row['seconds']:8.2f} {row['ratio']:7.1f} {row['fastest']:8.2f}",
                flush=True,
            )
    measure.write(report, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
