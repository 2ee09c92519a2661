# %% [markdown]
# # Sheet 2: A thread pool
#
# The threads of a process see the same memory. That makes it easy to share work between them, and easy to
# get wrong. You divide the rows of a batch among tasks, let a pool of threads do the tasks, add up what they
# have computed so that the result is the same every time, and at last write the pool yourself.
#
# Python threads compute at the same time only while they are outside of the interpreter. pdnn's
# `model.gradient` and `model.predict`, like NumPy's large products, release it.
#
# Replace each `raise NotImplementedError` by your code, save, and run `pdnn course check` with the name of
# this file. The check reads imports, functions, classes and constants in CAPITALS. It finds races not by
# luck, but by the rows that each task was given and the rows that it wrote.

# %%
import os
import queue
import threading
import time

import numpy as np

import pdnn
from pdnn import nn

SHEET = "pool"

# %% [markdown]
# ## Pieces
#
# n rows in k pieces, none lost, no two of which differ by more than one row: the first n % k pieces get one
# row more.


# %%
def pieces(n, k):
    """For each piece the pair (begin, end) of its rows, in order."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## Tasks that write
#
# `pool.map(function, items)` calls the function once for each item, several at a time, and returns the list
# of results when all are done. Here each task predicts a piece of x and writes it into the same rows of
# `out`. No two tasks may write one row: then it does not matter which of them comes first.


# %%
def pool_predict(pool, predict, x, k, out):
    """Fills out (n, classes) with predict(x), in k tasks. predict takes any rows of x, and only reads."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## Tasks whose results are added up
#
# `gradient(x, t)` returns the mean loss over the rows x, and its gradient. The gradient of the whole batch is
# a sum over the pieces i of mᵢ rows each:
#
#     g = Σ (mᵢ / n) gᵢ
#
# The pieces are not equal, so the plain mean of the gᵢ is another number. And `total += …` in every task is a
# race: it reads, adds and writes, and between its read and its write another thread may have written. So task
# i writes (mᵢ / n) gᵢ into row i of `out`, which is its alone, and when all are done one thread adds up the
# rows. That is also always the same order: the same bits, whichever thread was faster.


# %%
def pool_gradient(pool, gradient, x, t, k, out):
    """The gradient of the mean loss over all rows, in k tasks. out: (k, parameters), a row for each task."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## How fast can it be?
#
# Some work stays with one thread: cutting, adding up, the update. If that is the part s of the time of one
# thread, p threads need s + (1 − s) / p of it (Amdahl, 1967).


# %%
def speedup(s, threads):
    """By which factor `threads` threads are faster than one."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## A pool of your own
#
# The standard library has the parts. A `queue.Queue` passes things between threads: `put` adds one, `get`
# waits until there is one. A `threading.Thread(target=f)` runs f after `start()`, and `join()` waits for its
# end.
#
# * Each thread runs a loop: get a task, do it, tell that it is done.
# * `map` puts one task for each item, waits for all of them, and returns the results in the order of items,
#   not in the order in which they became done. So a task has to carry its number.
# * A task may raise. Then its thread must go on, and `map` must not wait forever for a result that never
#   comes: catch the exception, keep it as the result, and let `map` raise it when all tasks are done.
# * `close` ends the threads. A thread that waits in `get` can't see that nothing will come: put a word that
#   means "end", **one for each thread**, because each thread takes one. Then join them.


# %%
class Pool:
    """Threads that do tasks."""

    def __init__(self, threads):
        """Starts so many threads."""
        raise NotImplementedError("TODO")

    def map(self, function, items):
        """[function(item) for item in items], several at a time; raises what a task has raised."""
        raise NotImplementedError("TODO")

    def close(self):
        """Ends the threads; returns when they have ended."""
        raise NotImplementedError("TODO")


# %% [markdown]
# ## The picture
#
# How much faster the gradient of 2,000 digits becomes with more threads of your pool. The line is Amdahl's
# law with the part that stays with one thread, as measured here. The points follow it up to the number of
# cores, and no further; how closely depends on the machine and on what else it does.


# %%
def measure(model, x, t, threads, k=16):
    """Seconds of `pool_gradient`, and of its last part, the sum over pieces; each the best of five."""
    out = np.empty((k, model.flat_parameters.size))
    pool = Pool(threads)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        pool_gradient(pool, lambda x, t: model.gradient(x, t, nn.CrossEntropyLoss()), x, t, k, out)
        between = time.perf_counter()
        out.sum(axis=0)
        seconds.append((between - began, time.perf_counter() - between))
    pool.close()
    return np.min(seconds, axis=0)


def draw(n=2000, most=4):
    """Measures, and draws the speedup."""
    import matplotlib.pyplot as plt

    x, labels = pdnn.datasets.mnist_mini(train=True)[:n].gather(dtype="float64")
    model = pdnn.models.mlp([784, 256, 10], "sigmoid", dtype="float64", seed=1)
    numbers = range(1, most + 1)
    seconds = [measure(model, x, np.eye(10)[labels], threads) for threads in numbers]
    s = seconds[0][1] / seconds[0][0]
    figure, axes = plt.subplots(figsize=(6, 4), dpi=110)
    axes.plot(numbers, [speedup(s, threads) for threads in numbers], label=f"Amdahl, s = {s:.3f}")
    axes.plot(numbers, [seconds[0][0] / each for each, _ in seconds], "o", label="your pool")
    axes.axvline(os.cpu_count(), color="gray", ls=":", label="cores of this machine")
    axes.set(xlabel="threads", ylabel="times as fast as one thread", xticks=numbers, ylim=0)
    axes.legend()
    figure.savefig("2_pool.png")


# %%
if __name__ == "__main__":
    draw()
