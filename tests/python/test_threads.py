"""Threads that the system or the user gets in the way of: forks, refused threads, Ctrl-C."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pdnn
from pdnn import nn
from processes import Completed


def test_a_forked_process_starts_a_team_of_its_own(run_python: Callable[..., Completed]) -> None:
    code = """
import os, sys
import numpy as np
import pdnn
from pdnn import models, nn, optim

model = models.mlp([8, 40, 3], seed=1)
trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), 0.1), strategy="team:3")
x = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)
want = trainer.predict(x)
children = []
for work in (lambda: trainer.predict(x), lambda: want):  # a child may also leave the team alone
    if (child := os.fork()) == 0:
        sys.exit(0 if np.array_equal(work(), want) else 3)
    children.append(child)
for child in children:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert np.array_equal(trainer.predict(x), want)
"""
    run_python(["-W", "ignore", "-c", code], timeout=60)


def test_a_forked_process_does_not_wait_for_the_threads_of_its_parent(
    run_python: Callable[..., Completed],
) -> None:
    code = """
import os, signal, sys, threading
import numpy as np
import pdnn
from pdnn import models, nn, optim

model, x, y = models.mlp([8, 256, 256, 3], seed=1), np.ones((2560, 8), np.float32), np.zeros(2560, int)
loss, sgd = nn.CrossEntropyLoss(), optim.SGD(model.parameters(), 0.1)
trainer = pdnn.Trainer(model, loss, sgd, strategy="serial")
begun, ended, parent = threading.Event(), threading.Event(), os.getpid()

def backward():
    loss(model(x[:9]), y[:9]).backward()

def repeat(call):
    while not ended.is_set():
        call()

def backward_in_parts():
    hook = next(model.parameters()).register_hook(wait)
    backward()
    hook.remove()

def wait(gradient):
    if os.getpid() == parent:
        begun.set()
        ended.wait()

for theirs, ours in (
    (lambda: repeat(lambda: trainer.predict(x)), lambda: trainer.predict(x[:2])),
    (lambda: repeat(lambda: model.step(x, y, loss, sgd)), lambda: model.step(x[:2], y[:2], loss, sgd)),
    (backward_in_parts, backward),
):
    ours()
    begun.clear()
    ended.clear()
    thread = threading.Thread(target=theirs, daemon=True)
    thread.start()
    begun.wait(0.05)
    for _ in range(4):
        begun.wait(0.004)
        if (child := os.fork()) == 0:
            signal.alarm(8)
            ours()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ended.set()
    thread.join()
"""
    run_python(["-W", "ignore", "-c", code], timeout=60)


def test_a_thread_that_cannot_be_started_is_an_error_and_no_end(run_python: Callable[..., Completed]) -> None:
    code = """
import resource
import threading
import numpy as np
import pdnn
from pdnn import _core

size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
unlimited = resource.getrlimit(resource.RLIMIT_AS)
a = np.ones((4, 4), np.float32)

def refused(call):
    resource.setrlimit(resource.RLIMIT_AS, (size + (256 << 20), unlimited[1]))  # 8 MiB or so a thread
    try:
        call()
    except RuntimeError as error:
        assert "could not be started" in str(error) and "ulimit -u" in str(error), error
    else:
        raise AssertionError("started")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, unlimited)

refused(lambda: _core.float32.matmul(a, a, threads=1000))
assert (_core.float32.matmul(a, a, threads=3) == 4).all()
threading.stack_size(64 << 20)  # so that what is too little for one more leaves enough for those that run
refused(lambda: pdnn.run(lambda: pdnn.world().barrier(), ranks=1000, backend="threads"))
assert pdnn.run(lambda: pdnn.world().rank, ranks=3, backend="threads") == [0, 1, 2]
"""
    run_python(["-c", code], timeout=60)


class Array(np.ndarray):  # type: ignore[type-arg]
    """With weak references."""


def test_what_a_failed_rank_had_is_gone_with_its_error() -> None:
    had: list[weakref.ref[object]] = []

    def rank() -> None:
        comm, sent = pdnn.world(), np.ones(10_000).view(Array)
        had.extend([weakref.ref(comm.core), weakref.ref(sent)])
        if comm.rank == 0:
            comm.all_reduce(sent, check=False)
        time.sleep(0.05)  # rank 0 waits
        raise KeyError(str(comm))

    gc.disable()
    try:
        with contextlib.suppress(KeyError):
            pdnn.run(rank, ranks=2, backend="threads")
        assert had
        assert [each for each in had if each() is not None] == []
    finally:
        gc.enable()


@pytest.mark.parametrize(("times", "least"), [(1, 1.0), (2, 0.3)])
def test_ctrl_c_ends_ranks_that_are_threads(
    run_python: Callable[..., Completed], times: int, least: float
) -> None:
    code = """
import os, signal, sys, threading, time
import pdnn

def rank():
    try:
        begun.wait()
        while True:
            time.sleep(0.01)  # looks at nobody
    finally:
        ended.append(pdnn.world().rank)

def press():
    begun.wait()
    for _ in range(int(sys.argv[1])):
        time.sleep(0.3)
        heard.clear()
        pressed.append(time.monotonic())
        while not heard.is_set():  # one that comes just before Python begins to wait for a lock is not heard
            os.kill(os.getpid(), signal.SIGINT)
            heard.wait(2)

def hear(*_):
    heard.set()
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, hear)
begun, heard, ended, pressed = threading.Barrier(4), threading.Event(), [], []
threading.Thread(target=press, daemon=True).start()
try:
    pdnn.run(rank, ranks=3, backend="threads")
except KeyboardInterrupt:
    assert sorted(ended) == [0, 1, 2], ended
    print(time.monotonic() - pressed[0])
"""
    assert float(run_python(["-c", code, str(times)], timeout=30).stdout) >= least


@pytest.mark.parametrize("strategy", ["serial", "team:2", "pool:2/4", "hogwild:2"])
def test_a_daemon_thread_that_trains_does_not_delay_or_disturb_the_end(
    strategy: str, run_python: Callable[..., Completed]
) -> None:
    code = f"""
import threading, time, numpy as np, pdnn
from pdnn import models, nn, optim
model = models.mlp([20, 32, 5])
trainer = pdnn.Trainer(
    model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), 0.1), strategy={strategy!r}
)
x, y = np.ones((2000, 20), np.float32), np.arange(2000) % 5
train = lambda: trainer.fit(x, y, epochs=10**6, batch_size=64, verbose=False)
threading.Thread(target=train, daemon=True).start()
while not trainer.history.epochs:
    time.sleep(0.01)
print("over")
"""
    assert run_python(["-W", "ignore", "-c", code], timeout=30).stdout == "over\n"


def test_a_daemon_thread_may_wait_for_another_rank_after_the_end_of_python(
    run_python: Callable[..., Completed],
) -> None:
    code = """
import ctypes, sys, threading, time, pdnn

def rank():
    if pdnn.world().rank == 0:
        waits.set()
        time.sleep(60)
    pdnn.world().barrier()

waits = threading.Event()
ranks = lambda: pdnn.run(rank, ranks=2, backend="threads")
threading.Thread(target=ranks, daemon=True).start()
waits.wait()
libc = ctypes.CDLL(None)
libc.on_exit(ctypes.cast(libc.sleep, ctypes.c_void_p), None)  # sleeps for the status, when Python is no more
sys.exit(1)
"""
    ended = run_python(["-c", code], timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")


def test_an_object_may_predict_when_python_deletes_it_in_the_end(
    run_python: Callable[..., Completed],
) -> None:
    code = """
import numpy as np
from pdnn import models

class Last:
    def __init__(self):
        self.model, self.x, self.print = models.mlp([4, 3]), np.ones((4, 4), np.float32), print
        self.model.predict(self.x)  # imports what it needs

    def __del__(self):
        self.print(self.model.predict(self.x).shape)

last = Last()
"""
    assert run_python(["-c", code], timeout=30).stdout == "(4, 3)\n"


def test_threads_that_first_use_a_model_at_once_gather_it_once() -> None:
    x, y, criterion = np.ones((2, 3), np.float32), np.array([0, 1]), nn.CrossEntropyLoss()
    began = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change as often as they can
    try:
        with ThreadPoolExecutor(3) as pool:
            for _ in range(100):
                model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(8)), seed=0)
                together = threading.Barrier(3)

                def gradient(model: nn.Sequential = model, together: threading.Barrier = together) -> object:
                    together.wait()
                    return model.gradient(x, y, criterion)[1]

                first, *others = [task.result() for task in [pool.submit(gradient) for _ in range(3)]]
                assert all(np.array_equal(first, other) for other in others)
                assert all(np.shares_memory(own.data, model.core.params) for own in model.parameters())
    finally:
        sys.setswitchinterval(began)
