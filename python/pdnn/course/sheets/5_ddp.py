# %% [markdown]
# # Sheet 5: Data parallel by hand, with hooks
#
# Every rank has the whole network. In each step each rank takes other rows of the batch and computes the
# gradient of its rows, and all ranks average their gradients: then they make the same update, and stay
# alike. You write a sampler, which deals out the rows, and hooks, which average each gradient as soon as it
# is there, while the backward pass goes on with the layers below. pdnn's loaders and models take both.
#
#     comm.all_reduce(a, "sum")     a becomes its sum over the ranks, in place; every rank must call it
#     comm.broadcast(a)             a becomes rank 0's, in place; every rank must call it
#
# `comm.rank` is this rank's number, `comm.size` how many ranks there are; every rank runs the same program.
# If one rank does not make a call that the others make, these wait forever.
#
# Replace each `raise NotImplementedError` by your code, save, and run `pdnn course check` with the name of
# this file. The check reads imports, functions, classes and constants in CAPITALS. It counts your calls.

# %%
import numpy as np

import pdnn
from pdnn import data, nn, optim

SHEET = "ddp"
RANKS = 3
BACKEND = "threads"  # ranks are threads of this process; "mpi" makes them processes

# %% [markdown]
# ## A sampler
#
# In each epoch the n rows get a new order, the same on all ranks: it may depend on the seed and the epoch
# only (`np.random.default_rng((seed, epoch))`). Of this order, rank r takes the places r, r + p, r + 2p, …
# So no row is lost or taken twice, also if p does not divide n. pdnn's `DataLoader` calls `set_epoch`,
# takes `__len__` as the number of rows, and goes through them.


# %%
class RankSampler:
    """This rank's row numbers of an epoch."""

    def __init__(self, n, rank, ranks, seed):
        """n rows in all; the first epoch is epoch 0."""
        raise NotImplementedError("TODO")

    def set_epoch(self, epoch):
        """Chooses the order of the next iterations."""
        raise NotImplementedError("TODO")

    def __iter__(self):
        """The row numbers, one after another."""
        raise NotImplementedError("TODO")

    def __len__(self):
        """How many rows this rank has."""
        raise NotImplementedError("TODO")


# %% [markdown]
# ## A hook
#
# `parameter.register_hook(f)` calls `f(gradient)` when the gradient of a parameter is there, and takes what
# it returns in its place. Each rank's loss is a mean over its own rows. The mean over all rows of the batch
# has the gradient
#
#     (m₀ g₀ + m₁ g₁ + …) / n,    with m_k rows on rank k, n = m₀ + m₁ + …
#
# That is (g₀ + g₁ + …) / p only if all ranks have as many rows; the last batch of an epoch is uneven.


# %%
def average_hook(comm, rows, all_rows):
    """A function that takes this rank's gradient and returns that of all rows, for a batch with so many rows
    on this rank, and on all ranks together."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## The loop
#
# 1. before the first step all ranks must have the same parameters: broadcast `model.flat_parameters`
# 2. in each epoch call `loader.set_epoch(epoch)`; each iteration gives this rank's x and t of a batch. All
#    ranks have as many batches, but the last one may have fewer rows on some of them
# 3. ask the other ranks how many rows there are: all-reduce `np.array([len(x)])`
# 4. register a hook for each of `model.parameters()`; each returns a handle
# 5. `optimizer.zero_grad()`, `loss(model(x), t).backward()`, `optimizer.step()`
# 6. take the hooks off, `handle.remove()`, or the next step has them twice


# %%
def train(comm, model, loss, optimizer, loader, epochs):
    """Trains so many epochs; afterwards all ranks have the same parameters."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## Fewer calls
#
# A call costs time however little it sends. The hooks make one for each parameter, and one more for the
# rows. `model.flat_gradients` is one array with all gradients behind one another. Write the loop without
# hooks, with a single all-reduce in each step: `np.append(model.flat_gradients * m, m)` is the sum and the
# number of rows in one array. Write the mean back with `model.flat_gradients[:] = …`.


# %%
def train_flat(comm, model, loss, optimizer, loader, epochs):
    """The same training with one all-reduce in each step."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## The picture
#
# Left: the loss of 2,000 digits after each epoch, on three ranks, trained by your hooks. The circles are
# one process that takes the same batches: your line must go through all of them. Right: the all-reduces of
# a step, by hooks and flat.


# %%
def digits(n):
    """n digits of 20 x 20 pixels as a data set."""
    mini = pdnn.datasets.mnist_mini(train=True, image=True)[:n]
    return data.Dataset(mini.x[:, 0, 4:24, 4:24].reshape(n, 400) / 255, np.asarray(mini.y))


class Counted:
    """A communicator that counts its all-reduces."""

    def __init__(self, comm):
        """Of another communicator."""
        self.comm, self.rank, self.size, self.calls = comm, comm.rank, comm.size, 0
        self.broadcast = comm.broadcast

    def all_reduce(self, *arguments, **options):
        """The other's."""
        self.calls += 1
        return self.comm.all_reduce(*arguments, **options)


def job(trains, n, epochs, alone):
    """What each rank runs: the loss before each epoch and at the end, and all-reduces in a step."""
    rows, comm, losses = digits(n), Counted(pdnn.comm.SELF if alone else pdnn.world()), []
    model = pdnn.models.mlp([400, 25, 10], "sigmoid", dtype="float64", seed=comm.rank)
    optimizer, loss = optim.SGD(model.parameters(), lr=1.0), nn.CrossEntropyLoss()

    class Watched(data.DataLoader):
        def set_epoch(self, epoch):
            super().set_epoch(epoch)
            losses.append(model.gradient(rows.x, rows.y, loss)[0])

    sampler = RankSampler(n, comm.rank, comm.size, seed=0)
    loader = Watched(rows, 99 // comm.size, sampler=sampler, dtype="float64")
    trains(comm, model, loss, optimizer, loader, epochs)
    losses.append(model.gradient(rows.x, rows.y, loss)[0])
    return losses, comm.calls / (epochs * len(loader))


def draw(n=2000, epochs=8):
    """Trains on ranks and alone, and draws losses and calls."""
    import matplotlib.pyplot as plt

    losses, hooked = pdnn.run(job, train, n, epochs, False, ranks=RANKS, backend=BACKEND)[0]
    _, flat = pdnn.run(job, train_flat, n, 1, False, ranks=RANKS, backend=BACKEND)[0]
    expected, _ = job(train, n, epochs, True)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), dpi=110, layout="constrained")
    numbers = np.arange(epochs + 1)
    left.plot(numbers, losses, label=f"{RANKS} ranks with your hooks")
    left.plot(numbers, expected, "o", mfc="none", label="one process")
    left.set(xlabel="epoch", ylabel="loss over all rows", xticks=numbers)
    left.legend()
    right.bar_label(right.bar(["hooks", "flat"], [hooked, flat]), fmt="%g")
    right.set(ylabel="all-reduces in a step")
    figure.savefig("5_ddp.png")


# %%
if __name__ == "__main__":
    draw()
