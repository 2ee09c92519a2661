# %% [markdown]
# # Sheet 7: A ring, and a schedule of your own
#
# Data parallel adds up a gradient over all ranks: an all-reduce. A pipeline decides which micro-batch goes
# through which stage when: a schedule. You write both, and pdnn trains with them, in place of its own.
#
#     comm.start_send(a, dest, check=False)         sends an array; returns a request; request.wait() ends it
#     comm.recv(source, out=b, check=False)         waits for the next array from a rank, into b
#
# `comm.rank` is this rank's number, `comm.size` how many ranks there are. With `check=False` only the array
# travels; otherwise a header of 512 bytes goes before it. Until `request.wait()` has returned, the array that
# is sent must not change.
#
# Replace each `raise NotImplementedError` by your code, save, and run `pdnn course check` with the name of
# this file. The check reads imports, functions and constants in CAPITALS. It counts your messages and bytes.

# %%
import numpy as np

import pdnn
from pdnn import nn, optim, strategies

SHEET = "ring"
RANKS = 4
BACKEND = "threads"  # ranks are threads of this process; "mpi" makes them processes

# %% [markdown]
# ## All-reduce in a ring
#
# The p ranks stand in a ring: rank r sends to rank r + 1 only, and receives from rank r − 1 only, modulo p.
# Cut the array into p chunks, `np.array_split(array, p)`; its parts are views: filling one fills the array.
# Chunks may be empty, when the array has fewer elements than there are ranks.
#
# 1. **Reduce-scatter**, p − 1 steps. In step s = 0, 1, … rank r sends chunk (r − s) mod p, and adds what it
#    receives to chunk (r − s − 1) mod p. Afterwards rank r has the sum of chunk (r + 1) mod p.
# 2. **All-gather**, p − 1 steps. In step s rank r sends chunk (r + 1 − s) mod p, and stores what it receives
#    as chunk (r − s) mod p.
#
# If every rank received before it sends, all would wait. So they may if every rank sends first, because a
# send may last until the other rank receives. Start the send, receive, then wait for the send.


# %%
def ring_all_reduce(comm, array):
    """Leaves in the one-dimensional array its sum over the ranks, in place."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## How many bytes
#
# How many bytes does one rank send, if the array has n float64 values (8 bytes each) and n is a multiple of
# p? A rank that sent its whole array to all others would send 8 n (p − 1).


# %%
def ring_bytes(n, ranks):
    """The bytes that each rank sends in `ring_all_reduce` of n float64 values."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## A pipeline schedule
#
# p stages, one behind another; m micro-batches. Stage i can go forward with a micro-batch after stage i − 1,
# and backward after stage i + 1. Between its forward and its backward pass a micro-batch takes memory.
#
# If every stage goes forward with all micro-batches before it goes backward ("GPipe"), stage 0 holds all m.
# Better: stage i first goes forward with the micro-batches that fill the stages behind it, min(m, p − i − 1)
# of them; then one forward and one backward pass by turns, as long as there are forward passes; then the
# backward passes that are left. So it holds at most min(m, p − i), in the same time ("1F1B").
#
# Micro-batches go forward, and backward, in the order 0, 1, …, m − 1, because gradients are added up in it.


# %%
def schedule(stages, micro_batches):
    """For each stage the list of its passes, ("forward", k) or ("backward", k), in order."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## The picture
#
# Left: the loss of 2,000 digits during each epoch, on four ranks that add up their gradients by your ring.
# The circles are pdnn's own all-reduce: your line must go through all of them. Right: your schedule of four
# stages and eight micro-batches, if a backward pass takes twice as long as a forward pass. It is idle for
# (p − 1) / (m + p − 1) of the time.


# %%
def digits(n):
    """n digits of 20 x 20 pixels: x (n, 400), and their labels."""
    data = pdnn.datasets.mnist_mini(train=True, image=True)[:n]
    return data.x[:, 0, 4:24, 4:24].reshape(n, 400) / 255, np.asarray(data.y)


def job(n, epochs, strategy, all_reduce):
    """What each rank runs: the loss of each epoch."""
    x, labels = digits(n)
    model = pdnn.models.mlp([400, 25, 10], "sigmoid", dtype="float64", seed=1)
    optimizer = optim.SGD(model.parameters(), lr=2.0)
    registered = all_reduce and pdnn.comm.register("all_reduce", all_reduce)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy=strategy)
    losses = trainer.fit((x, labels), epochs, 500, verbose=False).history["loss"]
    if registered:
        registered.remove()
    return losses


def draw(n=2000, epochs=10):
    """Trains by the ring and by pdnn's own all-reduce, and draws losses and the schedule."""
    import matplotlib.pyplot as plt

    losses = pdnn.run(job, n, epochs, "ddp", ring_all_reduce, ranks=RANKS, backend=BACKEND)[0]
    expected = pdnn.run(job, n, epochs, "ddp", None, ranks=RANKS, backend=BACKEND)[0]
    times = strategies.Pipeline(4, schedule=schedule(4, 8)).plan().simulate(forward=1, backward=2)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), dpi=110, layout="constrained")
    numbers = np.arange(1, epochs + 1)
    left.plot(numbers, losses, label="your ring")
    left.plot(numbers, expected, "o", mfc="none", label="pdnn's all-reduce")
    left.set(xlabel="epoch", ylabel="loss")
    left.legend()
    colors = {"forward": "tab:blue", "backward": "tab:orange"}
    for stage, lane in enumerate(times.lanes):
        for event in lane:
            if event.what in colors:
                width = event.end - event.begin
                right.barh(stage, width, left=event.begin, color=colors[event.what], edgecolor="white")
                right.text(event.begin + width / 2, stage, event.micro, ha="center", va="center", size=7)
    right.set(xlabel="time (forward passes)", ylabel="stage", yticks=range(4), ylim=(3.5, -0.5))
    right.set_title(f"forward blue, backward orange; {times.bubble:.0%} idle", size="medium")
    figure.savefig("7_ring.png")


# %%
if __name__ == "__main__":
    draw()
