# %% [markdown]
# # Sheet 6: A pipeline, and fewer bytes
#
# A network may be too large for one rank. So each rank gets some of its layers, a *stage*. A batch goes
# through the stages one after another, and while one rank works the others would be idle; therefore the batch
# is cut into *micro-batches*, and a rank passes each on as soon as it is ready. What passes between the
# stages can be sent in fewer bytes. You write a step of a pipeline from messages, and a codec, with which
# pdnn's own pipeline then trains.
#
#     comm.send(array, dest)        sends an array to a rank
#     comm.recv(source)             waits for the next array from a rank, and returns it
#
# `comm.rank` is this rank's number, `comm.size` how many ranks there are; every rank runs the same program.
# Arrays from one rank arrive in the order in which it sent them. A send may last until the other
# rank receives.
#
# Replace each `raise NotImplementedError` by your code, save, and run `pdnn course check` with the name of
# this file. The check reads imports, functions, classes and constants in CAPITALS. It counts your messages.

# %%
import numpy as np

import pdnn
from pdnn import nn, optim, strategies

SHEET = "pipeline"
RANKS = 2
BACKEND = "threads"  # ranks are threads of this process; "mpi" makes them processes

# %% [markdown]
# ## A step
#
# Rank r is stage r. First all micro-batches go forward, 0, 1, …, m − 1: rank 0 takes `xs[k]`, the others what
# comes from rank r − 1; `stage.forward(k, x)` returns y, which goes to rank r + 1. On the last rank y is the
# output: `loss(y, ts[k])` returns the mean loss of the micro-batch and its gradient dy. Then all go backward,
# in the same order: `stage.backward(k, dy)` adds to the gradients of the stage's parameters, and returns dx,
# which is the dy of rank r − 1. Rank 0 sends its dx to nobody.
#
# The gradient must be that of the mean over all n rows of the batch. A micro-batch with m_k rows counts
# m_k / n: the loss, and dy before it goes backward. The last micro-batch may have fewer rows.


# %%
def pipeline_step(comm, stage, micro_batches, xs, ts, n, loss):
    """A step of `micro_batches` micro-batches, with n rows together.

    xs is there on rank 0, ts on the last rank, None elsewhere. Returns the mean loss over all rows on the
    last rank, None on the others.
    """
    raise NotImplementedError("TODO")


# %% [markdown]
# ## Filling and draining
#
# With p stages that all take as long, and m micro-batches, the last stage waits for p − 1 stages before its
# first micro-batch, and as long again at the end. For which part of the time is a rank idle? More
# micro-batches make it less; one alone leaves p − 1 of p ranks idle.


# %%
def idle(stages, micro_batches):
    """The part of its time, 0 to 1, in which a rank has nothing to do."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## A codec
#
# One byte for a value instead of four or eight. Let s be the largest magnitude of the values. A value v
# becomes the whole number round(127 v / s), which is in −127 … 127 and fits an int8; s is sent too, as a
# float32. So n values take n + 4 bytes, and each comes back with an error of at most s / 254. If all values
# are 0, do not divide by s.
#
# Arrays have `.astype`, `.tobytes()` and `.view(dtype)`, which reads the same bytes as another type.


# %%
class EightBits(pdnn.codec.CustomCodec):
    """A byte for each value, and one scale: 4 bytes, then the bytes of the values."""

    def encode_values(self, values):
        """The bytes of an array of floats (n,)."""
        raise NotImplementedError("TODO")

    def decode_values(self, data, count):
        """The values again, from an array of uint8."""
        raise NotImplementedError("TODO")


# %% [markdown]
# ## Error feedback
#
# A gradient that is encoded in every step loses something in every step, and always the same small values.
# So remember what was lost, e, and add it to the next gradient before that is encoded:
#
#     send the code of g + e;    e ← g + e − what that code is decoded to
#
# Then everything gets there in the end: the sum of all that was decoded is the sum of all gradients, minus
# the last e.


# %%
def feed_back(codec, gradient, error):
    """The pair (code, new error): what to send in this step, and e for the next one.

    `codec.encode(array)` returns the code, `codec.decode(code, array.shape, array.dtype.name)` the array.
    Neither array is changed.
    """
    raise NotImplementedError("TODO")


# %% [markdown]
# ## The picture
#
# Left: the loss of 2,000 digits during each epoch, by pdnn's pipeline on two ranks with your codec between
# them; the circles are the same without a codec. Right: how long ranks are idle, by your formula; the circles
# are pdnn's schedules.


# %%
def digits(n):
    """n digits of 20 x 20 pixels: x (n, 400), and their labels."""
    data = pdnn.datasets.mnist_mini(train=True, image=True)[:n]
    return data.x[:, 0, 4:24, 4:24].reshape(n, 400) / 255, np.asarray(data.y)


def job(n, epochs, codec):
    """What each rank runs: the loss of each epoch."""
    x, labels = digits(n)
    model = pdnn.models.mlp([400, 25, 10], "sigmoid", dtype="float64", seed=1)
    optimizer = optim.SGD(model.parameters(), lr=2.0)
    pipeline = strategies.Pipeline(RANKS, 4, codec=codec)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy=pipeline)
    return trainer.fit((x, labels), epochs, 500, verbose=False).history["loss"]


def draw(n=2000, epochs=10):
    """Trains with and without the codec, and draws losses and idle times."""
    import matplotlib.pyplot as plt

    losses = pdnn.run(job, n, epochs, EightBits(), ranks=RANKS, backend=BACKEND)[0]
    expected = pdnn.run(job, n, epochs, None, ranks=RANKS, backend=BACKEND)[0]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), dpi=110, layout="constrained")
    numbers, micro_batches = np.arange(1, epochs + 1), np.arange(1, 33)
    left.plot(numbers, losses, label="with your codec")
    left.plot(numbers, expected, "o", mfc="none", label="without a codec")
    left.set(xlabel="epoch", ylabel="loss", xticks=numbers)
    left.legend()
    for stages in (2, 4, 8):
        lines = right.plot(micro_batches, [idle(stages, m) for m in micro_batches], label=f"{stages} stages")
        bubbles = [strategies.schedule("gpipe", stages, m).bubble for m in (1, 4, 8, 16, 32)]
        right.plot((1, 4, 8, 16, 32), bubbles, "o", mfc="none", color=lines[0].get_color())
    right.set(xlabel="micro-batches", ylabel="part of the time that ranks are idle", ylim=(0, 1))
    right.legend()
    figure.savefig("6_pipeline.png")


# %%
if __name__ == "__main__":
    draw()
