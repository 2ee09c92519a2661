# %% [markdown]
# # Sheet 4: Averaging and Hogwild
#
# Two ways to train without an exchange of gradients in each step. *Averaging*: each rank trains a model of
# its own on its rows, and now and then all models become their average. *Hogwild*: the threads of one
# process change one model, and nobody waits for anybody.
#
# Both train a bit differently from one process. Both go wrong in ways that show no error, only a bad model.
#
# `comm.rank` is this rank's number, `comm.size` how many there are. `comm.all_reduce(a)` replaces the array
# a on every rank, in place, by the sum over all ranks; a number goes as an array, `np.array([float(rows)])`.
# `comm.broadcast(a, 0)` replaces it by the one of rank 0.
#
# **All ranks have to make the same calls**: one that stays away makes the others wait forever.
#
# Replace each `raise NotImplementedError` by your code, save, and run `pdnn course check` with the name of
# this file. The check reads imports, functions and constants in CAPITALS.

# %%
import threading

import numpy as np

import pdnn
from pdnn import nn, optim

SHEET = "averaging"
RANKS = 4
BACKEND = "threads"  # ranks are threads of this process; "mpi" makes them processes

# %% [markdown]
# ## Which rows are mine?
#
# All ranks shuffle the n rows **alike**, with `np.random.default_rng([seed, epoch]).permutation(n)`, and
# rank r takes every size-th row of that order, beginning with the r-th. So each row belongs to one rank, in
# every epoch to another one. If each rank shuffled with a seed of its own, some rows would come twice and
# others never; without the epoch, each epoch would have the same order.


# %%
def rows_of_epoch(n, rank, size, seed, epoch):
    """The row numbers of a rank in an epoch: an array."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## The average
#
# Rank r has trained on m_r rows since the last average. The average of the models w_r is
#
#     w = Σ m_r w_r / Σ m_r
#
# A model is a list of arrays: its parameters, and its buffers, like the running mean of a batch
# normalization, which are as much a part of it. A rank may have had no rows, m_r = 0. It must take part all
# the same: its weight is 0, but the others wait for it, and it gets the average.


# %%
def average(comm, arrays, rows):
    """Replaces each of the arrays, in place, by the ranks' average, weighted by their numbers of rows."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## Training apart
#
# 1. All ranks begin with rank 0's arrays. Networks that start apart stay apart: hidden unit 3 of one has
#    nothing to do with hidden unit 3 of another, and their average is worth nothing. (A published solution
#    of this exercise forgot it, and measured 40 % where 90 % were possible.)
# 2. `step(batch)` trains this rank's arrays on a batch, in place, and returns how many rows it had.
# 3. After every `every` steps the ranks average, weighted by the rows **since the last average**.
# 4. After the last step they average too, unless they have just done it. All ranks have equally many
#    batches.


# %%
def train(comm, arrays, step, batches, every):
    """Trains this rank's arrays on its batches, with averages; all ranks end with the same arrays."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## How good is it?
#
# Each rank counts the correct predictions among its share of the test rows. Shares are not equal, and the
# mean of the ranks' accuracies is not the accuracy: add up counts, divide once.


# %%
def accuracy(comm, correct, rows):
    """The share of correct predictions over the rows of all ranks; a number, the same on every rank."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## Hogwild
#
# Several threads run this function at once, on **one** array of parameters, without a lock. `gradient(w,
# batch)` takes its time, and meanwhile the others change the parameters. So
#
# * take each gradient at the parameters as they are **now**, not as they were when the epoch began. A
#   gradient at old parameters is stale, and the older the worse
# * **add** to what is there at the end of your computation: `params -= …`, in place. Whoever keeps a copy,
#   changes it and writes the copy back, undoes all that the others did in between: lost updates. (Between
#   the read and the write of a single element another thread may still slip in; Hogwild bets that this is
#   rare.)


# %%
def hogwild_worker(params, gradient, batches, rate):
    """For each batch a step of gradient descent on the shared array params, in place."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## The picture
#
# Accuracy on 1,000 new digits after one epoch over 6,000. The bars are yours, the circles those of pdnn's
# own strategies, which deal the rows in another order: they should differ by a few hundredths at most.
# Hogwild is a little different every time. The second bar is the trap: the same training from different
# first parameters.


# %%
def network(seed):
    """A network 784-64-10."""
    return pdnn.models.mlp([784, 64, 10], "sigmoid", dtype="float64", seed=seed)


def digits(n):
    """n digits to train with, and 1,000 to test."""
    train_set, test_set = pdnn.datasets.mnist_mini()
    return train_set[:n], test_set[:1000]


def your_average(n, same_start, rate=0.5, size=20):
    """What each rank runs: an epoch over its rows, averaged every 10 steps, or once from different starts."""
    comm = pdnn.world()
    train_set, test_set = digits(n)
    model = network(seed=1 if same_start else 1 + comm.rank)
    rows = rows_of_epoch(n, comm.rank, comm.size, seed=0, epoch=0)
    batches = [rows[begin : begin + size] for begin in range(0, n // comm.size, size)]

    def step(batch):
        x, labels = train_set.gather(batch, dtype="float64")
        _, gradient = model.gradient(x, labels, nn.CrossEntropyLoss())
        model.flat_parameters[:] -= rate * gradient
        return len(batch)

    if same_start:
        train(comm, [model.flat_parameters], step, batches, every=10)
    else:
        average(comm, [model.flat_parameters], sum(step(batch) for batch in batches))
    share = test_set[comm.rank :: comm.size].gather(dtype="float64")
    return accuracy(comm, (model.predict(share[0]).argmax(axis=1) == share[1]).sum(), len(share[1]))


def your_hogwild(n, rate=0.5, size=20, workers=2):
    """Threads that change one model."""
    train_set, test_set = digits(n)
    model = network(seed=1)

    def gradient(w, batch):
        own = network(seed=1)  # pdnn computes the gradient of a model, so the parameters go into one
        own.flat_parameters[:] = w
        return own.gradient(*train_set.gather(batch, dtype="float64"), nn.CrossEntropyLoss())[1]

    def work(worker):
        rows = rows_of_epoch(n, worker, workers, seed=0, epoch=0)
        batches = [rows[begin : begin + size] for begin in range(0, len(rows), size)]
        hogwild_worker(model.flat_parameters, gradient, batches, rate)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    x, labels = test_set.gather(dtype="float64")
    return (model.predict(x).argmax(axis=1) == labels).mean()


def pdnns(n, strategy, rate=0.5, size=20):
    """The accuracy of pdnn's own strategy."""
    train_set, test_set = digits(n)
    model = network(seed=1 + pdnn.world().rank)
    optimizer = optim.SGD(model.parameters(), lr=rate)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy=strategy)
    trainer.fit(train_set, epochs=1, batch_size=size, verbose=False)
    return trainer.evaluate(test_set)["accuracy"]


def draw(n=6000):
    """Trains in three ways, and draws the accuracies."""
    import matplotlib.pyplot as plt

    options = {"ranks": RANKS, "backend": BACKEND}
    names = ["averaged every\n10 steps", "averaged once,\ndifferent starts", "Hogwild,\n2 threads"]
    yours = [pdnn.run(your_average, n, same, **options)[0] for same in (True, False)] + [your_hogwild(n)]
    strategies = ("average:10", "average:end:own-init")
    expected = [pdnn.run(pdnns, n, strategy, **options)[0] for strategy in strategies]
    expected.append(pdnns(n, "hogwild:2"))
    figure, axes = plt.subplots(figsize=(6, 4), dpi=110)
    axes.bar_label(axes.bar(names, yours, label="yours"), fmt="%.2f", label_type="center")
    axes.plot(names, expected, "o", mfc="none", color="C1", label="pdnn's")
    axes.set(ylabel="accuracy on 1,000 new digits", ylim=(0, 1))
    axes.legend(loc="upper center")
    figure.savefig("4_averaging.png")


# %%
if __name__ == "__main__":
    draw()
