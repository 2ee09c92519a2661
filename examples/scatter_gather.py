"""Batch gradient descent driven by rank 0: scatter the rows, gather the gradients, broadcast the weights.

    mpiexec -n 2 python examples/scatter_gather.py           # 1000 iterations
    mpiexec -n 2 python examples/scatter_gather.py --fast    # 60, and small measurements

A network of 400-25-10 sigmoids learns 5,000 handwritten digits, all of them in every step. The step is
written out in scatter_gather_job.py, and each of its phases timed; then `pdnn.Trainer` does the same job with
its strategy "scatter-gather", and the costs are compared. Then one rank is timed beside all of them, and last
come the matrix products (NumPy's, pdnn's, Eigen's) and the link between two ranks.
"""

# ruff: noqa: E402  NumPy is imported after its number of threads is set

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # a rank computes on one core

import numpy as np
import scatter_gather_job as job
import scatter_gather_measure as measure

import pdnn
from pdnn.cli.values import can_draw
from pdnn.data import Dataset
from pdnn.exercises import published


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder of the exercise's files (else looked for, or the digits made from MNIST)",
    )
    parser.add_argument(
        "--embedded", action="store_true", help="other digits, from the small set that is in pdnn"
    )
    parser.add_argument("--iterations", type=int, help="steps of gradient descent (1000; fast: 60)")
    parser.add_argument("--learning-rate", type=float, default=2.0, help="(%(default)s)")
    parser.add_argument(
        "--scatter",
        choices=("every", "once"),
        default="every",
        help="every: rows travel in each iteration, as in the exercise; once: in the first (%(default)s)",
    )
    parser.add_argument(
        "--product", choices=measure.PRODUCTS, default="numpy", help="what multiplies matrices (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first weights (%(default)s)")
    parser.add_argument("--fast", action="store_true", help="few iterations, small measurements")
    parser.add_argument("--out", type=Path, default=Path("out/scatter_gather"), help="folder (%(default)s)")
    chosen = parser.parse_args()
    if chosen.iterations is None:
        chosen.iterations = 60 if chosen.fast else 1000
    if chosen.iterations < 1:
        parser.error(f"--iterations {chosen.iterations}; at least 1 is needed")
    can_draw(parser)
    return chosen


def load_digits(folder: Path | None, embedded: bool = False) -> tuple[Dataset, str]:
    """5,000 digits of 20 x 20 pixels, and what they are; a folder that was named must have them."""
    if not embedded:
        return pdnn.exercises.ex4(folder, train=True), "the exercise's digits"
    mini = pdnn.datasets.mnist_mini(train=True, image=True)[:5000]
    inner = mini.x[:, 0, 4:24, 4:24].transpose(0, 2, 1)  # where MNIST's digits are, column by column
    x = inner.reshape(len(mini), job.INPUTS) / 255
    return Dataset(x, (mini.y + 9) % 10), "digits embedded in pdnn, not the exercise's"


def report_pretrained(folder: Path | None, digits: Dataset) -> None:
    """What the exercise's trained weights cost, if they are there."""
    try:
        thetas = pdnn.exercises.ex4_weights(folder)
    except FileNotFoundError as error:
        print(f"pretrained weights: left out ({error})")
        return
    cost, *_ = job.cost_and_gradients(*thetas, digits.x, digits.y, np.matmul, job.Timer())
    precision = job.precision(*thetas, digits.x, digits.y)
    print(f"pretrained weights: cost {cost / len(digits):.6f}, precision {precision:.4f}")
    print(f"published: cost {published.EX4_COST.value}, precision {published.EX4_ACCURACY.value}")


def published_lines(learning_rate: float, costs: Sequence[float]) -> list[str]:
    """The exercise's figures beside the costs here, where it trained at this rate for so long."""
    if learning_rate == 0.1 and len(costs) == 60:
        return [f"published: precision {published.SCATTER_GATHER_SLOW_ACCURACY.value:.2f}"]
    if learning_rate != 2:
        return []
    lines = []
    for count, precision in published.SCATTER_GATHER_ACCURACY.value.items():
        if count <= len(costs):
            cost = published.SCATTER_GATHER_COST.value.get(count)
            theirs = f"precision {precision:.2f}" + (f", cost {cost:.3f}" if cost else "")
            lines.append(f"after {count:4d} iterations: cost {costs[count - 1]:.3f}; published: {theirs}")
    return lines


def try_wrong_order(comm: pdnn.comm.Communicator, x: job.Array) -> str:
    """What pdnn says to a matrix that lies by columns, as MATLAB's do, and would arrive scrambled."""
    try:
        comm.broadcast(np.asfortranarray(x[:4]) if comm.rank == 0 else np.empty((4, job.INPUTS)))
    except ValueError as error:
        return str(error)
    raise AssertionError("a Fortran-ordered array went through")


def main() -> None:
    args = arguments()
    comm = pdnn.world()
    say = print if comm.rank == 0 else lambda _: None
    if comm.rank == 0:
        args.out.mkdir(parents=True, exist_ok=True)
    digits, origin = load_digits(args.data, args.embedded)
    thetas = job.initial_thetas(args.seed)
    product = measure.PRODUCTS[args.product]
    options = {
        "iterations": args.iterations,
        "learning_rate": args.learning_rate,
        "once": args.scatter == "once",
    }
    say(f"{origin}; ranks: {comm.size}, product: {args.product}, scatter: {args.scatter}")

    run = job.train(comm, digits, thetas, **options, product=product, log=say)
    say(f"precision: {job.precision(run.theta1, run.theta2, digits.x, digits.y):.4f}")
    costs = job.train_by_pdnn(digits, thetas, **options)
    if comm.rank == 0:
        if not args.embedded:
            for line in published_lines(args.learning_rate, run.costs):
                print(line)
            report_pretrained(args.data, digits)
        report_run(args.out, run, costs, args.scatter)
        report_products(args.out, comm.size, args.fast)
    report_plans(args.out, comm, digits, thetas, product, args.fast)
    say(f"by columns? {try_wrong_order(comm, digits.x)}")
    if comm.size > 1:
        report_link(args.out, comm, [2**k for k in range(10, 21 if args.fast else 27, 2)])
    say(f"files in {args.out}")
    comm.barrier()  # no rank leaves before rank 0 has measured


def report_run(out: Path, run: job.Run, trainer_costs: list[float], scatter: str) -> None:
    """Costs of each iteration, and where its time goes."""
    difference = float(np.abs(np.subtract(run.costs, trainer_costs)).max())
    print(f"pdnn.Trainer's costs differ by {difference:.1e} at most")
    rows = zip(range(1, len(run.costs) + 1), run.costs, trainer_costs, run.seconds, strict=True)
    measure.write_table(out / "costs.csv", ["iteration", "cost", "cost by pdnn.Trainer", "seconds"], rows)

    phases = {phase: 1000 * seconds / len(run.costs) for phase, seconds in run.timer.seconds.items()}
    for phase, milliseconds in phases.items():
        print(f"{phase:>14} {milliseconds:8.3f} ms an iteration")
    measure.write_table(out / "phases.csv", ["phase", "ms an iteration"], phases.items())
    measure.draw(out / "phases.png", lambda axes: measure.draw_phases(axes, {f"scatter {scatter}": phases}))


def report_plans(
    out: Path,
    comm: pdnn.comm.Communicator,
    digits: Dataset,
    thetas: tuple[job.Array, job.Array],
    product: measure.Product,
    fast: bool,
) -> None:
    """One rank beside all of them, per phase and in all; collective."""
    count = {"iterations": 3, "rounds": 1} if fast else {"iterations": 50, "rounds": 5}
    plans = job.time_plans(comm, digits, thetas, product=product, **count)
    if comm.rank:
        return
    alone = sum(plans["1 rank"].values())
    for name, phases in plans.items():
        total = sum(phases.values())
        print(f"{name:>26} {total:8.3f} ms an iteration, speed-up {alone / total:.2f}")
    rows = [(plan, phase, ms) for plan, phases in plans.items() for phase, ms in phases.items()]
    measure.write_table(out / "plans.csv", ["plan", "phase", "ms an iteration"], rows)
    measure.draw(out / "plans.png", lambda axes: measure.draw_phases(axes, plans))


def report_products(out: Path, ranks: int, fast: bool) -> None:
    """Which product is the faster: at which size of squares, and in the products of the job."""
    products = measure.contestants(pdnn.comm.cores_of_rank(pdnn.comm.SELF))
    sizes = [2**k for k in range(3, 8 if fast else 11)]
    rounds = 3 if fast else 9
    rows = measure.time_products(measure.squares(sizes), products, rounds)
    for name in products:
        size = measure.crossover(rows, name, "numpy")
        if name != "numpy":
            print(
                f"{name}: "
                + (f"faster than numpy from n = {size}" if size else "nowhere clearly faster than numpy")
            )
    shapes = measure.products_of_the_job(5000 // ranks)
    of_job = measure.time_products(shapes.values(), products, rounds)
    for product in products:
        times = [f"{1e6 * seconds:.0f}" for _, name, seconds in of_job if name == product]
        print(f"{product}: {' + '.join(times)} µs for the products of {5000 // ranks} rows")
    table = [(*shape, name, seconds) for shape, name, seconds in [*rows, *of_job]]
    measure.write_table(out / "products.csv", ["m", "k", "n", "product", "seconds"], table)
    measure.draw(out / "products.png", lambda axes: measure.draw_products(axes, rows))
    measure.draw(out / "job_products.png", lambda axes: measure.draw_job_products(axes, of_job, list(shapes)))


def report_link(out: Path, comm: pdnn.comm.Communicator, sizes: list[int]) -> None:
    """MB/s between ranks 0 and 1; collective."""
    rows = measure.time_messages(comm, sizes)
    if comm.rank == 0:
        size, speed = max(rows, key=lambda row: row[1])
        print(f"link: {speed:.0f} MB/s at best, in messages of {size} bytes")
        measure.write_table(out / "bandwidth.csv", ["bytes", "MB/s"], rows)
        measure.draw(out / "bandwidth.png", lambda axes: measure.draw_messages(axes, rows))


if __name__ == "__main__":
    main()
