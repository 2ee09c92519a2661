def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def softmax(s):
    powers = np.exp(s - s.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def forward(x, w1, b1, w2, b2):
    z = sigmoid(x @ w1 + b1)
    return softmax(z @ w2 + b2), z


def cross_entropy(y, t):
    return -(t * np.log(np.maximum(y, 1e-300))).sum(axis=1).mean()


def backward(x, t, y, z, w2):
    delta = (y - t) / len(x)
    epsilon = delta @ w2.T * z * (1 - z)
    return x.T @ epsilon, epsilon.sum(axis=0), z.T @ delta, delta.sum(axis=0)


def minibatches(n, size):
    return [slice(begin, min(begin + size, n)) for begin in range(0, n, size)]


def train_epoch(x, t, params, size, rate):
    for part in minibatches(len(x), size):
        y, z = forward(x[part], *params)
        gradients = backward(x[part], t[part], y, z, params[2])
        for parameter, gradient in zip(params, gradients):
            parameter -= rate * gradient


def step_with(optimizer, model, x, t):
    params = [parameter.data for parameter in model.parameters()]
    y, z = forward(x, *params)
    for parameter, gradient in zip(model.parameters(), backward(x, t, y, z, params[2])):
        parameter.grad[...] = gradient
    optimizer.step()
