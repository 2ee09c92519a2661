"""Whether a training step takes as long after many steps as at first: ResNet9, with Adam and weight decay.

python benchmarks/long_run.py [--steps 3000] [--every 300] [--dtype bfloat16] [--json FILE]

Weights that no gradient reaches shrink under weight decay, and so do their moments, until they are subnormal
numbers, with which processors are slow. The sides train in turns, each in its own process, on one core: so
many steps, of which the last few are timed. PyTorch runs as it is, and with `torch.set_flush_denormal`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec

import images
import measure
import pytorch
import workers
from workers import Runner, Side


def torch_side(flush: bool) -> Runner:
    """PyTorch in eager mode, in its faster memory format."""
    return pytorch.torch_steps(images.RESNET9, lambda: images.torch_network(images.RESNET9, True), 1, flush)


def sides(dtype: str) -> list[Side]:
    """pdnn, and PyTorch if it is installed."""
    found = [Side("pdnn", images.pdnn_side, (images.RESNET9, "serial", dtype))]
    if find_spec("torch"):
        found.append(Side("PyTorch", torch_side, (False,)))
        found.append(Side("PyTorch, flushed", torch_side, (True,)))
    return found


def main(arguments: Sequence[str]) -> None:
    """The program; see the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps", type=measure.count, default=3000, metavar="N", help="of each side (default 3000)"
    )
    parser.add_argument("--every", type=int, default=300, metavar="N", help="steps a line (default 300)")
    parser.add_argument("--dtype", default="", metavar="DTYPE", help="of pdnn's model (default float32)")
    parser.add_argument("--json", type=measure.destination, metavar="FILE", help="write everything measured")
    options = parser.parse_args(arguments)
    block = images.RESNET9.steps
    if options.every < block or options.every % block or options.steps < options.every:
        parser.error(f"--every is a multiple of {block} steps, and --steps not less")
    report = measure.begin()
    started = {side.name: workers.start(side) for side in sides(options.dtype)}
    try:
        print(f"\n{images.RESNET9.name}, Adam, weight decay, 1 core; µs a step")
        print(f"{'steps':>8}" + "".join(f"{name:>20}" for name in started))
        for steps in range(options.every, options.steps + 1, options.every):
            untimed = options.every // block - 1
            times = {name: 1e6 * worker.run(untimed)[0] for name, worker in started.items()}
            report["results"].append({"steps": steps, "microseconds": times})
            print(f"{steps:>8}" + "".join(f"{time:>20,.0f}" for time in times.values()), flush=True)
    finally:
        for worker in started.values():
            worker.stop()
    measure.write(report, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
