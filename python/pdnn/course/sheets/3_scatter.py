# %% [markdown]
# # Sheet 3: Scatter and gather
#
# Rank 0 has the data and the parameters. In every step it deals the rows out to all ranks, each computes the
# gradient of its rows, and rank 0 collects these and makes the update. You write this from the two simplest
# messages there are:
#
#     comm.send(array, dest)        sends an array to a rank
#     comm.recv(source)             waits for the next array from a rank, and returns it
#
# `comm.rank` is this rank's number, `comm.size` how many ranks there are; every rank runs the same program.
# A send needs a receive on the other rank: a receive without a send waits forever, and so may a send without
# a receive.
#
# Replace each `raise NotImplementedError` by your code, save, and run `pdnn course check` with the name of
# this file. The check reads imports, functions and constants in CAPITALS. It counts your messages and bytes.

# %%
import numpy as np

import pdnn
from pdnn import nn, optim

SHEET = "scatter"
RANKS = 3
BACKEND = "threads"  # ranks are threads of this process; "mpi" makes them processes

# %% [markdown]
# ## Shares
#
# n rows for p ranks: 5,000 is not divisible by 3. The first n % p ranks get one row more, so that no two
# shares differ by more than one row and none is lost.


# %%
def shares(n, ranks):
    """For each rank the pair (begin, end) of its rows, in order."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## Three collective calls
#
# All ranks call them together. Any rank may be the `root`; do not write 0 where root belongs. The root sends
# itself nothing: it has its part already. So a scatter takes p − 1 messages. A slice of rows, `a[3:5]`, can
# be sent as it is; receive with `comm.recv(root)`.


# %%
def scatter(comm, a, root):
    """This rank's rows of the root's array a, as `shares` deals them. On the other ranks a is None."""
    raise NotImplementedError("TODO")


def gather(comm, part, root):
    """At the root the list of all ranks' arrays, in the order of ranks; None on the others."""
    raise NotImplementedError("TODO")


def broadcast(comm, a, root):
    """Fills a on every rank with the root's values, in place: `a[...] = …`. All have the same shape."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## A step of gradient descent
#
# `gradient(theta, x, t)` returns the mean loss over the rows x, and its gradient, a vector like theta. At the
# beginning theta is the same on all ranks; x and t are there on the root only.
#
# 1. scatter x and t; each rank computes the loss and the gradient of its rows
# 2. gather the gradients and the losses. A rank sends `np.append(gradient, loss)`: one message instead of two
# 3. the root takes the mean over **all n rows**. With shares of 4, 3 and 3 rows it is
#    (4 g₀ + 3 g₁ + 3 g₂) / 10, and not (g₀ + g₁ + g₂) / 3: the mean of means is another number
# 4. the root updates theta in place, `theta -= rate * mean`
# 5. broadcast theta: the others have computed with it, and will again


# %%
def step(comm, theta, x, t, gradient, rate, root):
    """One step; changes theta in place, alike on all ranks.

    Returns the loss over all rows on the root, None on the others.
    """
    raise NotImplementedError("TODO")


# %% [markdown]
# ## How many bytes
#
# Values are float64, 8 bytes each. x is (n, features), t is (n, classes), theta has `params` values. How many
# bytes does the root send in one step, when the shares are those of `shares` and the root is rank 0? The rows
# of all other ranks, and theta to each of them.


# %%
def bytes_of_step(n, features, classes, params, ranks):
    """The bytes that rank 0, the root, sends in one step."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## Once is enough
#
# The rows never change, so sending them in every step is a waste. Write the training again: scatter x and t
# once, before the first step. Everything else stays; the result is the same.


# %%
def train_once(comm, theta, x, t, gradient, rate, root, steps):
    """`steps` steps with rows that were scattered once. Returns the list of losses on the root, else None."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## The picture
#
# Left: the loss of 5,000 digits before each step, on three ranks. The circles are pdnn's own strategy
# "scatter-gather" on three ranks: your line must go through all of them. Right: what rank 0 sends in a step,
# if it scatters every time and if it scatters once.
#
# With `BACKEND = "mpi"` the ranks are processes, and the same code sends its messages through MPI.


# %%
def digits(n):
    """n digits of 20 x 20 pixels: x (n, 400), and their labels."""
    data = pdnn.datasets.mnist_mini(train=True, image=True)[:n]
    return data.x[:, 0, 4:24, 4:24].reshape(n, 400) / 255, np.asarray(data.y)


def network():
    """pdnn's network 400-25-10, the same each time."""
    return pdnn.models.mlp([400, 25, 10], "sigmoid", dtype="float64", seed=1)


def your_job(n, steps, rate):
    """What each rank runs: losses and bytes, with a scatter in every step and then once."""
    comm = pdnn.world()
    model = network()

    def gradient(theta, x, t):
        model.flat_parameters[:] = theta
        return model.gradient(np.ascontiguousarray(x), np.ascontiguousarray(t), nn.CrossEntropyLoss())

    x, labels = digits(n) if comm.rank == 0 else (None, None)
    t = np.eye(10)[labels] if comm.rank == 0 else None
    theta, before = network().flat_parameters.copy(), comm.traffic.bytes
    losses = [step(comm, theta, x, t, gradient, rate, 0) for _ in range(steps)]
    every, theta = comm.traffic.bytes - before, network().flat_parameters.copy()
    train_once(comm, theta, x, t, gradient, rate, 0, steps)
    return losses, every / steps, (comm.traffic.bytes - before - every) / steps


def pdnns_job(n, steps, rate):
    """The same training by pdnn."""
    x, labels = digits(n)
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=rate)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy="scatter-gather")
    return trainer.fit(pdnn.data.Dataset(x, labels), epochs=steps, batch_size=n, verbose=0).history["loss"]


def draw(n=5000, steps=40, rate=1.0):
    """Trains both ways, and draws losses and bytes."""
    import matplotlib.pyplot as plt

    losses, every, once = pdnn.run(your_job, n, steps, rate, ranks=RANKS, backend=BACKEND)[0]
    expected = pdnn.run(pdnns_job, n, steps, rate, ranks=RANKS, backend=BACKEND)[0]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), dpi=110, layout="constrained")
    numbers = np.arange(1, steps + 1)
    left.plot(numbers, losses, label="your training")
    left.plot(numbers[::3], expected[::3], "o", mfc="none", label="pdnn's scatter-gather")
    left.set(xlabel="step", ylabel="loss over all rows")
    left.legend()
    bars = right.bar(["every step", "once"], [every / 1e6, once / 1e6], log=True)
    right.bar_label(bars, fmt="%.2f")
    right.set(xlabel="rows are scattered", ylabel="sent by rank 0 in a step (MB)")
    figure.savefig("3_scatter.png")


# %%
if __name__ == "__main__":
    draw()
