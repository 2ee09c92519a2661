# %% [markdown]
# # Sheet 1: Backpropagation
#
# You write the training of a small network in NumPy: the forward pass, the loss, the backward pass, the cut
# into minibatches, and the loop. Your gradient then works inside pdnn: it drives one of its optimizers.
#
# Replace each `raise NotImplementedError` by your code. Keep the names and arguments of the functions. A
# function changes an array that it is given only if its text says "in place". When you want to know how far
# you are, save this file and run, in a terminal, `pdnn course check` and its name. The check reads imports,
# functions and constants in CAPITALS; the cells between them are for you.
#
# **The network.** A row x of 784 pixels becomes 10 probabilities y:
#
#     a = x W1 + b1        (n, 784) (784, 32) + (32,)
#     z = σ(a)             σ(a) = 1 / (1 + exp(−a)), elementwise
#     s = z W2 + b2        (n, 32) (32, 10) + (10,)
#     y = softmax(s)       y_k = exp(s_k) / Σ_j exp(s_j), in each row
#
# All n rows of a minibatch go through at once, as the rows of a matrix. The check uses other sizes than 784,
# 32 and 10: read them off the arrays.

# %%
import numpy as np

import pdnn
from pdnn import nn

SHEET = "backprop"


def one_hot(labels, classes=10):
    """Labels (n,) as rows of zeros with a one at the place of the label: (n, classes)."""
    return np.eye(classes)[labels]


# %% [markdown]
# ## Forward
#
# `exp(1000)` is too large for a float64. Softmax does not change when the same number is subtracted from all
# s of a row; so subtract the largest, and the largest argument of exp is 0.


# %%
def sigmoid(a):
    """1 / (1 + exp(−a)), elementwise; of the shape of a."""
    raise NotImplementedError("TODO")


def softmax(s):
    """The probabilities of each row of s, shape (n, classes); also where s has values like ±1000."""
    raise NotImplementedError("TODO")


def forward(x, w1, b1, w2, b2):
    """The pair (y, z): probabilities (n, 10) and hidden values (n, 32) of the rows x (n, 784)."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## Loss
#
# The cross-entropy of a row is −Σ_k t_k log y_k, where t is its label as a row of zeros and a one. The loss
# of a minibatch is the **mean** over its n rows, so that it does not depend on how many there are. A y may be
# 0, and 0 · log 0 must count as 0: use `np.log(np.maximum(y, 1e-300))`.


# %%
def cross_entropy(y, t):
    """The mean over the rows of −Σ_k t_k log y_k: a number. y, t: (n, 10)."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## Backward
#
# Softmax and cross-entropy have, together, a simple derivative. With δ for the derivative of the loss by s:
#
#     δ = (y − t) / n                      the n of the mean
#     dW2 = zᵀ δ,  db2 = Σ over rows of δ
#     ε = (δ W2ᵀ) ⊙ z (1 − z)              back through W2, then through σ: σ' = σ (1 − σ)
#     dW1 = xᵀ ε,  db1 = Σ over rows of ε
#
# Each gradient has the shape of what it is the gradient of. That alone excludes most mistakes.


# %%
def backward(x, t, y, z, w2):
    """The gradients (dW1, db1, dW2, db2) of `cross_entropy(y, t)`, where y and z are what forward gave."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## Minibatches
#
# An epoch is one pass over all n rows. Rows 0 to size − 1 are the first minibatch, and so on. If size does
# not divide n, the last minibatch is smaller. It must not be left out: without shuffling its rows would never
# be seen.


# %%
def minibatches(n, size):
    """A list of slices, in order, that cover the rows 0 … n − 1."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## The loop
#
# Gradient descent subtracts the gradient times the learning rate from each parameter, **in place**
# (`w -= rate * dw`, not `w = w - rate * dw`, which would make a new array that nobody else knows). The
# gradient of the next minibatch is taken at the parameters after this step.


# %%
def train_epoch(x, t, params, size, rate):
    """One pass over the rows, in minibatches of `size`; changes params = [W1, b1, W2, b2] in place."""
    raise NotImplementedError("TODO")


# %% [markdown]
# ## Inside pdnn
#
# `model.parameters()` of pdnn's model are W1, b1, W2, b2. The array `.data` of each is the model's own
# memory, not a copy: training it in place trains the model. So pdnn can say how good your training is. And
# an optimizer of pdnn reads `.grad`: write your gradient into it, and Adam works with it.


# %%
def step_with(optimizer, model, x, t):
    """One step of a pdnn optimizer: your gradient goes into `.grad` of the parameters, in place."""
    raise NotImplementedError("TODO: forward, backward, p.grad[...] = gradient for each, optimizer.step()")


# %% [markdown]
# ## The picture
#
# Accuracy on 1,000 digits that were not trained with, after each epoch. The circles are pdnn's own training,
# with the same minibatches: your line must go through all of them.


# %%
def new_model():
    """pdnn's network 784-32-10, with the same first parameters each time."""
    return pdnn.models.mlp([784, 32, 10], "sigmoid", dtype="float64", seed=1)


def pdnn_epoch(model, x, labels, size, rate):
    """The same epoch by pdnn: `train_epoch` to compare with."""
    for begin in range(0, len(x), size):
        part = slice(begin, begin + size)
        _, gradient = model.gradient(x[part], labels[part], nn.CrossEntropyLoss())
        model.flat_parameters[:] -= rate * gradient


def draw(epochs=8, size=100, rate=0.5):
    """Trains both ways, and draws the accuracy."""
    import matplotlib.pyplot as plt

    train, test = pdnn.datasets.mnist_mini()
    x, labels = train[:3000].gather(dtype="float64")
    x_test, labels_test = test[:1000].gather(dtype="float64")
    yours, pdnns = new_model(), new_model()
    params = [parameter.data for parameter in yours.parameters()]
    curves = {"yours": [], "pdnn's": []}
    for _ in range(epochs):
        train_epoch(x, one_hot(labels), params, size, rate)
        pdnn_epoch(pdnns, x, labels, size, rate)
        for name, model in [("yours", yours), ("pdnn's", pdnns)]:
            curves[name].append((model.predict(x_test).argmax(axis=1) == labels_test).mean())
    figure, axes = plt.subplots(figsize=(6, 4), dpi=110)
    numbers = range(1, epochs + 1)
    axes.plot(numbers, curves["yours"], label="your training")
    axes.plot(numbers, curves["pdnn's"], "o", mfc="none", label="pdnn's training")
    axes.set(xlabel="epoch", ylabel="accuracy on 1,000 new digits", xticks=numbers)
    axes.legend()
    figure.savefig("1_backprop.png")


# %%
if __name__ == "__main__":
    draw()
