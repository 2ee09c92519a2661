"""How long the stages of a pipeline idle, measured beside the formula and the simulator.

python benchmarks/pipeline.py [--stages 2] [--micros 1,2,4,8] [--backend threads] [--plot measured.png]

A network of equal wide layers, one thread a stage. The bubble is the share of all stages' time in a step in
which they compute nothing, the median of some steps; beside it (p - 1) / (m + p - 1), which is for equal
stages and free messages, and the simulator's, with the times that the stages took in the same step. Needs a
core for each stage.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np

import pdnn
from pdnn import models, optim
from pdnn.parallel import Pipeline, Timeline, schedule


class Keep(pdnn.callbacks.Callback):
    """Keeps the timeline of every epoch."""

    def __init__(self) -> None:
        self.timelines: list[Timeline] = []

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        """After every epoch."""
        assert trainer.history.timeline is not None
        self.timelines.append(trainer.history.timeline)


def measure(strategy: Pipeline, width: int, layers: int, rows: int, epochs: int) -> list[Timeline]:
    """Steps of a pipeline; the first are left out."""
    model = models.mlp([width] * (layers + 1), "relu", seed=1)
    sgd = optim.SGD(model.parameters(), lr=1e-6)
    trainer = pdnn.Trainer(model, pdnn.nn.MSELoss(), sgd, strategy=strategy)
    rng = np.random.default_rng(0)
    x = rng.random((3 * rows, width), dtype=np.float32)
    keep = Keep()
    trainer.fit((x, x), epochs + 2, rows, timeline=True, verbose=False, callbacks=[keep])
    return keep.timelines[2:]


def simulated(timeline: Timeline, name: str, stages: int, micros: int) -> float:
    """The bubble of stages that take as long as these took, without messages."""
    times = {
        what: [
            statistics.mean(event.end - event.begin for event in lane if event.what == what)
            for lane in timeline.lanes
        ]
        for what in ("forward", "backward")
    }
    return schedule(name, stages, micros).simulate(**times).bubble


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--micros", default="1,2,4,8")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=16, help="a multiple of the stages")
    parser.add_argument("--rows", type=int, default=512, help="of a step")
    parser.add_argument("--epochs", type=int, default=9, help="steps that are measured")
    parser.add_argument("--backend", default="threads", choices=["threads", "mpi"])
    parser.add_argument("--plot", help="picture of the last measured step")
    options = parser.parse_args()
    stages = options.stages
    cut = tuple(
        2 * options.layers * stage // stages for stage in range(1, stages)
    )  # each has its ReLU behind it
    print("schedule  micro-batches  measured  formula  simulated  seconds a step")
    for name in ("gpipe", "1f1b"):
        for micros in map(int, options.micros.split(",")):
            strategy = Pipeline(stages, micros, name, cut)
            timelines = pdnn.run(
                measure,
                strategy,
                options.width,
                options.layers,
                options.rows,
                options.epochs,
                ranks=stages,
                backend=options.backend,
            )[0]
            bubble = statistics.median(timeline.bubble for timeline in timelines)
            expected = statistics.median(simulated(line, name, stages, micros) for line in timelines)
            seconds = statistics.median(timeline.seconds for timeline in timelines)
            formula = (stages - 1) / (micros + stages - 1)
            print(
                f"{name:8} {micros:14} {bubble:9.3f} {formula:8.3f} {expected:10.3f} {seconds:15.4f}",
                flush=True,
            )
    if options.plot:
        timelines[-1].plot(options.plot)


if __name__ == "__main__":
    main()
