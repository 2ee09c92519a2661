"""How long the stages of a pipeline idle, measured beside the formula and the simulator.

python benchmarks/pipeline.py [--stages 2] [--micros 1,2,4,8] [--simulate 4,8] [--backend threads]
                              [--json FILE] [--plot measured.png] [--trace FILE]

A network of equal wide layers, one thread a stage. The bubble is the share of all stages' time in a step in
which they compute nothing. Ranks that wait yield their core, and another program that is ready to run then
has it for milliseconds: steps in which a message was noticed late are left out, if not all of them are, and
of the others the median of the fastest quarter is taken. Beside it (p - 1) / (m + p - 1), which is for equal
stages and free messages, and the simulator's, with the times that the stages and the messages took in the
same steps; then that for more stages than were measured, each like one of them. Needs a core for each
measured stage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

import pdnn
from measure import count, destination, machine
from pdnn import models, optim
from pdnn.strategies import Pipeline, Timeline, schedule

LATE = 0.001
"""Seconds; a message that takes longer to be noticed was there while another program had the core."""


class Keep(pdnn.callbacks.Callback):
    """Keeps the timeline of every epoch."""

    def __init__(self) -> None:
        self.timelines: list[Timeline] = []

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        """After every epoch."""
        assert trainer.history.timeline is not None
        self.timelines.append(trainer.history.timeline)


def measure(strategy: Pipeline, width: int, layers: int, rows: int, steps: int) -> list[Timeline]:
    """Steps of a pipeline; the first are left out."""
    model = models.mlp([width] * (layers + 1), "relu", seed=1)
    sgd = optim.SGD(model.parameters(), lr=1e-6)
    trainer = pdnn.Trainer(model, pdnn.nn.MSELoss(), sgd, strategy=strategy)
    rng = np.random.default_rng(0)
    x = rng.random((2 * rows, width), dtype=np.float32)
    keep = Keep()
    trainer.fit((x, x), steps + 2, rows, timeline=True, verbose=False, callbacks=[keep])
    return keep.timelines[2:]


def traveled(timeline: Timeline) -> list[float]:
    """Seconds from the start of a send until the receiver, who was waiting for it, went on.

    Ranks begin a step, and their clocks, together to some microseconds, which a message may seem to gain.
    """
    sent = {(e.what, rank, e.micro): e.begin for rank, lane in enumerate(timeline.lanes) for e in lane}
    found = []
    for rank, lane in enumerate(timeline.lanes):
        for event in lane:
            if event.what in ("recv_x", "recv_dy"):
                what, sender = ("send_y", rank - 1) if event.what == "recv_x" else ("send_dx", rank + 1)
                if event.begin < (began := sent[what, sender, event.micro]):
                    found.append(event.end - began)
    return found


@dataclass
class Times:
    """Seconds that a micro-batch took in each stage, and a message from one to the next."""

    forward: list[float]
    backward: list[float]
    message: float

    @classmethod
    def of(cls, timeline: Timeline) -> Times:
        """Means over the micro-batches of a step; the median of the messages that were waited for."""
        passes = {
            what: [fmean(e.end - e.begin for e in lane if e.what == what) for lane in timeline.lanes]
            for what in ("forward", "backward")
        }
        return cls(**passes, message=max(0.0, median(traveled(timeline) or [0.0])))

    def of_stages(self, stages: int) -> Times:
        """Of a pipeline of so many stages, each like one of these by turns."""
        turns = [stage % len(self.forward) for stage in range(stages)]
        return Times([self.forward[i] for i in turns], [self.backward[i] for i in turns], self.message)

    def simulated(self, name: str, micros: int) -> Timeline:
        """A step that takes these times."""
        return schedule(name, len(self.forward), micros).simulate(self.forward, self.backward, self.message)


def bubble(stages: int, micros: int) -> float:
    """The formula's."""
    return (stages - 1) / (micros + stages - 1)


def compare(
    name: str, stages: int, micros: int, more: Sequence[int], timelines: list[Timeline]
) -> dict[str, Any]:
    """A line of the table, from measured steps; with the simulations of more stages."""
    kept = [line for line in timelines if max(traveled(line), default=0) < LATE]
    fastest = sorted(kept or timelines, key=lambda line: line.seconds)[: -(-len(kept or timelines) // 4)]
    times = [Times.of(line) for line in fastest]
    held = [max(counts) for counts in zip(*(line.in_flight for line in timelines), strict=True)]
    if held != schedule(name, stages, micros).in_flight:
        raise RuntimeError(f"{name}: ranks held {held} micro-batches, not what the schedule says")
    simulations = {
        count: median(own.of_stages(count).simulated(name, micros).bubble for own in times) for count in more
    }
    return {
        "schedule": name,
        "stages": stages,
        "micros": micros,
        "measured": median(line.bubble for line in fastest),
        "formula": bubble(stages, micros),
        "simulated": median(own.simulated(name, micros).bubble for own in times),
        "steps": len(timelines),
        "kept": len(kept),
        "of_all_steps": median(line.bubble for line in timelines),
        "in_flight": held,
        "milliseconds": 1e3 * median(line.seconds for line in fastest),
        "times": asdict(times[0]),
        "more_stages": simulations,
    }


def main(arguments: Sequence[str]) -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--micros", default="1,2,4,8")
    parser.add_argument("--schedules", default="gpipe,1f1b")
    parser.add_argument("--simulate", default="4,8", help="numbers of stages, by the measured times")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=16, help="a multiple of the stages")
    parser.add_argument("--rows", type=int, default=1024, help="of a step")
    parser.add_argument("--steps", type=count, default=20, help="that are measured")
    parser.add_argument("--backend", default="threads", choices=["threads", "mpi"])
    parser.add_argument("--json", type=destination, metavar="FILE", help="write everything measured")
    parser.add_argument("--plot", type=destination, help="picture of a measured step, the last line's")
    parser.add_argument(
        "--trace",
        type=destination,
        metavar="FILE",
        help="the same step's events, as Timeline.chrome_trace",
    )
    options = parser.parse_args(arguments)
    stages = options.stages
    if stages > len(os.sched_getaffinity(0)):
        parser.error(f"--stages {stages}; expected a core for each of them")
    more = [int(count) for count in options.simulate.split(",") if count]
    # Each stage ends with a ReLU.
    cut = tuple(2 * options.layers * stage // stages for stage in range(1, stages))
    size = options.width, options.layers, options.rows, options.steps
    results = []
    titles = [f"{count} stages" for count in more]
    print(
        "schedule  micro-batches  measured  formula  simulated  all steps   kept  ms a step  held   "
        + "  ".join(titles)
    )
    for name in options.schedules.split(","):
        for micros in map(int, options.micros.split(",")):
            strategy = Pipeline(stages, micros, name, cut)
            timelines = pdnn.run(measure, strategy, *size, ranks=stages, backend=options.backend)[0]
            line = compare(name, stages, micros, more, timelines)
            results.append(line)
            held = "+".join(map(str, line["in_flight"]))
            simulated = [
                f"{value:.3f}/{bubble(count, micros):.3f}".rjust(len(title))
                for (count, value), title in zip(line["more_stages"].items(), titles, strict=True)
            ]
            numbers = (
                f"{line['measured']:9.3f} {line['formula']:8.3f} {line['simulated']:10.3f} "
                f"{line['of_all_steps']:10.3f} {line['kept']:3}/{line['steps']:<3} "
                f"{line['milliseconds']:9.1f}"
            )
            print(f"{name:8} {micros:14} {numbers}  {held:6} " + "  ".join(simulated), flush=True)
    if options.json:
        report = {"machine": machine(), "results": results}
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    fastest = min(timelines, key=lambda line: line.seconds)
    if options.plot:
        fastest.plot(options.plot)
    if options.trace:
        fastest.chrome_trace(options.trace)


if __name__ == "__main__":
    main(sys.argv[1:])
