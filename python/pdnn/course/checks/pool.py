"""Sheet 2: tasks that share memory, and a pool of threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from pdnn import nn, optim
from pdnn.course.checks.shares import check_shares
from pdnn.course.compare import Array, read_only, returned, rows_in_words, same
from pdnn.course.submission import Submission, Wrong
from pdnn.data import Dataset
from pdnn.models import mlp
from pdnn.trainer import Trainer

N, FEATURES, HIDDEN, CLASSES, PIECES = 100, 6, 5, 3, 4
UNEVEN = 11  # rows that PIECES does not divide
MARK = 1.25  # is in out before a task writes into it


class OneByOne:
    """A pool that does one task after the other, and sees which rows of an array each of them writes.

    Parameters
    ----------
    out : array
    last_first : bool
        Whether the tasks run from the last to the first.

    Attributes
    ----------
    written : list of arrays
        The rows that each task has written.
    asked : list of int
        Of how many rows the student's code has asked, in each call of a function that `counts`.
    outside : str
        The name of that function, if it was called outside of the tasks.
    """

    def __init__(self, out: Array, last_first: bool = False) -> None:
        self.out, self.last_first = out, last_first
        self.written: list[Array] = []
        self.asked: list[int] = []
        self.outside = ""
        self._in_task = False

    def counts(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which tasks alone should call; its first argument are the rows to compute."""

        def counted(x: Array, *rest: Any) -> Any:
            if not self._in_task:
                self.outside = name
            self.asked.append(len(x))
            return function(x, *rest)

        return counted

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """As the sheet describes it."""
        tasks = list(items)
        results: list[Any] = [None] * len(tasks)
        written: list[Array] = [np.empty(0, np.int64)] * len(tasks)
        order = reversed(range(len(tasks))) if self.last_first else range(len(tasks))
        for number in order:
            before = self.out.copy()
            self.out += MARK  # so that a task which writes what was there before is seen, too
            marked = self.out.copy()
            self._in_task = True
            results[number] = function(tasks[number])
            self._in_task = False
            changed = (self.out != marked).reshape(len(self.out), -1).any(axis=1)
            self.out[~changed] = before[~changed]
            written[number] = np.flatnonzero(changed)
        self.written += written
        return results


def _check_tasks(what: str, pool: OneByOne, tasks: int, n: int) -> None:
    """Checks that so many tasks wrote, no two of them the same row, and computed so many rows together."""
    written = pool.written
    if not written:
        raise Wrong(f"{what} never calls pool.map: all the work is done by the calling thread")
    if len(written) != tasks:
        raise Wrong(f"{what} gives pool.map {len(written)} tasks, not {tasks}")
    if pool.outside:
        raise Wrong(
            f"{what} calls {pool.outside} before pool.map or after it, in one thread: call it in the tasks"
        )
    for number, rows in enumerate(written):
        for other, others in enumerate(written[:number]):
            both = np.intersect1d(rows, others)
            if len(both):
                raise Wrong(
                    f"a race: in {what}, tasks {other} and {number} both write {rows_in_words(both)} of out"
                )
    for number, rows in enumerate(written):
        if not len(rows):
            raise Wrong(
                f"in {what}, task {number} writes nothing into out; if the tasks add to one total instead, "
                "that is a race: += reads, adds and writes, and another thread may write between"
            )
    if sum(pool.asked) != n:
        raise Wrong(
            f"in {what}, the tasks compute {sum(pool.asked)} rows together, not {n}: each computes the rows "
            "of its piece, once"
        )


def _model() -> nn.Sequential:
    return mlp([FEATURES, HIDDEN, CLASSES], "sigmoid", dtype="float64", seed=3)


def _rows(n: int) -> tuple[Array, Array, Array]:
    """Samples, labels, and these as rows with a one."""
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, n)
    return read_only(random.normal(size=(n, FEATURES))), labels, read_only(np.eye(CLASSES)[labels])


def _gradient(model: nn.Sequential) -> Callable[[Array, Array], tuple[float, Array]]:
    return lambda x, t: model.gradient(x, t, nn.CrossEntropyLoss())


@contextlib.contextmanager
def _pool(student: Submission, threads: int) -> Iterator[Any]:
    """A pool of the student's that is closed whatever happens: its threads would wait forever."""
    pool = student.Pool(threads)
    try:
        yield pool
    except BaseException:
        with contextlib.suppress(Exception):
            pool.close()
        raise
    pool.close()


def cut(student: Submission) -> str:
    """Pieces differ by one row at most, and none is lost."""
    return check_shares("pieces", student.pieces)


def predicted(student: Submission) -> str:
    """Predictions: every row is written, by one task."""
    model, words = _model(), ""
    for n in (N, UNEVEN):
        x, _, _ = _rows(n)
        out = np.zeros((n, CLASSES))
        pool = OneByOne(out)
        student.pool_predict(pool, pool.counts("predict", model.predict), x, PIECES, out)
        _check_tasks("pool_predict", pool, PIECES, n)
        words = same("out after pool_predict", out, model.predict(x))
    return words


def added_up(student: Submission) -> str:
    """Gradients: a row of out for each task, weighted, added up."""
    model, (x, _, t) = _model(), _rows(UNEVEN)
    gradient = _gradient(model)
    own = [gradient(x[part], t[part])[1] for part in np.array_split(np.arange(UNEVEN), PIECES)]
    known = {
        "the tasks add to what is in out before, which need not be 0: out[i] = …, not +=": (
            gradient(x, t)[1] + PIECES * MARK
        ),
        "the gradients of the pieces are summed, not averaged": sum(own),
        "it is the plain mean over the pieces, which counts the rows of small pieces more: weigh by mᵢ / n": (
            sum(own) / PIECES
        ),
        "the 1/n is missing: the pieces are weighted by mᵢ, not by mᵢ / n": UNEVEN * gradient(x, t)[1],
    }
    results: list[Array] = []
    for last_first in (False, True):
        out = np.zeros((PIECES, len(own[0])))
        pool = OneByOne(out, last_first)
        result = student.pool_gradient(pool, pool.counts("gradient", gradient), x, t, PIECES, out)
        _check_tasks("pool_gradient", pool, PIECES, UNEVEN)
        if last_first and not np.allclose(result, results[0]):
            raise Wrong("pool_gradient depends on the order in which the tasks run: here the last ran first")
        words = same("pool_gradient", result, gradient(x, t)[1], known)
        results.append(np.array(result))
    if (results[0] != results[1]).any():
        raise Wrong("the last bits depend on which task runs first: add up the rows of out in their order")
    return words


def law(student: Submission) -> str:
    """Amdahl's law."""
    for s, threads in [(0.2, 4), (0.0, 3), (1.0, 8)]:
        known = {
            "the part s is shared among the threads, too": float(threads),
            "it is the time; the speedup is one over it": s + (1 - s) / threads,
        }
        same(f"speedup({s}, {threads})", student.speedup(s, threads), 1 / (s + (1 - s) / threads), known)
    return "right: with s = 0.2 never more than 5"


def at_once(student: Submission) -> str:
    """Your pool: tasks run at the same time, results come in order."""
    with _pool(student, 3) as pool:
        _check_meeting(pool)
        _check_order(pool)
    return "also with more tasks than threads, and with none"


def _check_meeting(pool: Any) -> None:
    """Checks that two tasks run at the same time: each waits for the other."""
    meeting = threading.Barrier(2, timeout=1.5)

    def meet(_: int) -> int:
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait()
        return threading.get_ident()

    threads = returned("Pool.map", pool.map(meet, range(2)))
    if threading.get_ident() in threads:
        raise Wrong("Pool.map does the tasks in the thread that calls it, not in the pool's")
    if meeting.broken:
        raise Wrong("no two tasks of a map run at the same time: each waits for the one before it")


def _check_order(pool: Any) -> None:
    """Checks the results of tasks of which the last ends first, of many and of none."""
    gates = [threading.Event() for _ in range(3)]

    def last_first(number: int) -> int:
        if number < 2:
            gates[number + 1].wait(0.5)
        gates[number].set()
        return 10 * number

    results = list(pool.map(last_first, range(3)))
    if sorted(results) == [0, 10, 20] != results:
        raise Wrong(f"results come in the order in which tasks end: {results} for items 0, 1, 2")
    many = list(pool.map(lambda item: item * item, range(20)))
    if results != [0, 10, 20] or many != [item * item for item in range(20)]:
        raise Wrong(f"Pool.map of item · item gives {many} for the items 0 to 19")
    if list(pool.map(abs, [])) != []:
        raise Wrong("Pool.map of no items does not give []")


def raised(student: Submission) -> str:
    """Your pool: an error of a task is raised by map, and the pool works on."""
    ended: list[int] = []

    def task(item: int) -> float:
        if item % 3 == 0:
            raise ArithmeticError(f"planted by the check in item {item}")
        time.sleep(0.1)
        ended.append(item)
        return item / 2

    with _pool(student, 2) as pool:
        try:
            results = pool.map(task, range(7))
        except ArithmeticError:
            if len(ended) != 4:
                raise Wrong("map raises while other tasks still run: raise when all tasks are done") from None
        else:
            raise Wrong(f"map hides the error of a task: it returns {results}")
        if list(pool.map(abs, [-1, 2, -3])) != [1, 2, 3]:
            raise Wrong("after an error map gives wrong results: something of the failed one is left over")
    return "right"


def closed(student: Submission) -> str:
    """Your pool: close ends all threads."""
    before = set(threading.enumerate())
    pool = student.Pool(3)
    started = set(threading.enumerate()) - before
    if len(started) != 3:
        raise Wrong(f"Pool(3) starts {len(started)} threads")
    begun, gate = threading.Event(), threading.Event()

    def task(_: int) -> None:
        begun.set()
        gate.wait()

    threading.Thread(target=pool.map, args=(task, [0]), daemon=True).start()
    begun.wait()
    opener = threading.Timer(0.15, gate.set)
    opener.start()
    pool.close()
    alive = [thread for thread in started if thread.is_alive()]
    opener.join()
    if alive:
        raise Wrong(f"close returns while {len(alive)} of 3 threads still run: join them")
    return "all three"


def like_pdnn(student: Submission) -> str:
    """A step with your pool equals pdnn's strategy "pool"."""
    x, labels, t = _rows(N)
    model, right = _model(), _model()
    out = np.zeros((PIECES, model.flat_parameters.size))
    with _pool(student, 2) as pool:
        model.flat_parameters[:] -= 0.5 * student.pool_gradient(pool, _gradient(model), x, t, PIECES, out)
    trainer = Trainer(
        right, nn.CrossEntropyLoss(), optim.SGD(right.parameters(), lr=0.5), strategy=f"pool:2/{PIECES}"
    )
    trainer.fit(Dataset(x, labels), epochs=1, batch_size=N, verbose=False)
    return same("the model after a step", model.flat_parameters, right.flat_parameters)


CHECKS = [cut, predicted, added_up, law, at_once, raised, closed, like_pdnn]
