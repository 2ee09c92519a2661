"""Mistakes to plant in the solutions: what to replace, by what, and words that the check must say first."""

from __future__ import annotations

BUGS = {
    "backprop": [
        ("delta @ w2.T", "sum(delta @ params[2].T for _ in (1,))", "`backward` uses `params`, which is"),
        ("powers.sum(axis=1, keepdims=True)", "powers.sum()", "sum over each row, axis=1"),
        ("s - s.max(axis=1, keepdims=True)", "s", "overflows"),
        (".sum(axis=1).mean()", ".sum()", "it is the sum over the rows, not their mean: 23 × too large"),
        (".sum(axis=1).mean()", ".sum(axis=1).mean() * (1 + 2e-7)", "is 1.74996969, not 1.74996934"),
        (".sum(axis=1).mean()", ".mean()", "it is divided by all elements of y"),
        (
            "    return powers / powers.sum(axis=1, keepdims=True)",
            "    powers / powers.sum(axis=1, keepdims=True)",
            "softmax returned None: is a `return` missing?",
        ),
        (
            "np.maximum(y, 1e-300)",
            "y",
            "values that are not finite",
        ),
        ("(y - t) / len(x)", "y - t", "the 1/n is missing: every gradient is 23 × too large for 23 rows"),
        ("(y - t) / len(x)", "(t - y) / len(x)", "the sign is wrong"),
        (" * z * (1 - z)", "", "dW1: σ' is missing"),
        ("epsilon.sum(axis=0)", "epsilon.mean(axis=0)", "db1: it is the mean over the rows, not the sum"),
        ("z.T @ delta", "delta.T @ z", "dW2 has the shape (5, 7), not (7, 5)"),
        ("delta @ w2.T", "delta @ params[2].T", "`backward` uses `params`, which is neither an argument"),
        ("range(0, n, size)]", "range(0, n - size + 1, size)]", "the last 3 rows of each epoch are dropped"),
        (
            "slice(begin, min(begin + size, n))",
            "slice(begin, begin + size - 1)",
            "missing rows 4, 9, 14, 19 of 23",
        ),
        (
            """    for part in minibatches(len(x), size):
        y, z = forward(x[part], *params)
        gradients = backward(x[part], t[part], y, z, params[2])
""",
            """    first = [parameter.copy() for parameter in params]
    for part in minibatches(len(x), size):
        y, z = forward(x[part], *first)
        gradients = backward(x[part], t[part], y, z, first[2])
""",
            "every gradient was taken at the first parameters: stale",
        ),
        ("parameter -= rate * gradient", "parameter = parameter - rate * gradient", "in place"),
        ("parameter -= rate * gradient", "parameter += rate * gradient", "uphill"),
        (
            "parameter.grad[...] = gradient",
            "parameter.data[...] -= gradient",
            "3 steps of Adam",
        ),
        ("    return softmax(z @ w2 + b2), z\n", "    softmax(z @ w2 + b2), z\n", "returned NoneType"),
        (
            "    return 1 / (1 + np.exp(-a))",
            "    np.exp(-a, out=a)\n    return 1 / (1 + a)",
            "`sigmoid` writes into an array that it may only read, line",
        ),
        (
            "    delta = (y - t) / len(x)",
            "    y -= t\n    delta = y / len(x)",
            "`backward` writes into an array",
        ),
        (
            "    y, z = forward(x, *params)\n    for",
            "    x -= x.mean()\n    y, z = forward(x, *params)\n    for",
            "`step_with` writes into an array",
        ),
        ("range(0, n, size)]", "range(0, n, size)][::-1]", "minibatches(23, 5) are not in order"),
        (
            "[slice(begin, min(begin + size, n)) for begin in range(0, n, size)]",
            "[slice(a[0], a[-1] + 1) for a in np.array_split(np.arange(n), -(-n // size))]",
            "minibatches(23, 5) have [5, 5, 5, 4, 4] rows, not [5, 5, 5, 5, 3]",
        ),
        ("    return -(t * np.log", "    return (t * np.log", "cross_entropy(y, t): the sign is wrong"),
        ("z = sigmoid(x @ w1 + b1)", "z = x @ w1 + b1", "z of forward: the sigmoid is missing"),
        ("return softmax(z @ w2 + b2), z", "return z @ w2 + b2, z", "y of forward: the softmax is missing"),
        ("(y - t) / len(x)", "(y - t) / len(x) ** 2", "divided by n twice"),
        (" * z * (1 - z)", " * z", "dW1: σ' is z (1 − z), not z"),
        (
            "minibatches(len(x), size):",
            "minibatches(len(x) // size * size, size):",
            "the model after train_epoch: the last 3 rows of each epoch are dropped",
        ),
        (
            "parameter -= rate * gradient",
            "parameter -= rate * gradient * len(y)",
            "the gradients are sums over the rows, not means",
        ),
        ("    optimizer.step()", "    pass", "step_with changes nothing"),
        ("parameter.grad[...] = gradient", "parameter.grad[...] += gradient", "3 steps of Adam"),
    ],
    "pool": [
        (
            "pool.map(task, pieces(len(x), k))",
            "size = len(x) // k\n    pool.map(task, [(i * size, (i + 1) * size) for i in range(k)])",
            "the tasks compute 8 rows together, not 11",
        ),
        (
            """sorted((done.get() for _ in items), key=lambda result: result[0])
        for _, _, error in results:
            if error is not None:
                raise error
""",
            """[]
        for _ in items:
            results.append(done.get())
            if results[-1][2] is not None:
                raise results[-1][2]
        results.sort(key=lambda result: result[0])
""",
            "map raises while other tasks still run",
        ),
        (
            "out[begin:end] = predict(x[begin:end])",
            "out[begin:end] = predict(x)[begin:end]",
            "in pool_predict, the tasks compute 400 rows together, not 100",
        ),
        (
            """    def task(piece):
        begin, end = piece
        out[begin:end] = predict(x[begin:end])
""",
            """    y = predict(x)

    def task(piece):
        begin, end = piece
        out[begin:end] = y[begin:end]
""",
            "pool_predict calls predict before pool.map or after it",
        ),
        (" + min(i, n % k)", "", "the last 2 rows are dropped"),
        (
            "list(zip(ends[:-1], ends[1:]))",
            "[slice(a, b) for a, b in zip(ends, ends[1:])]",
            "can't be used: TypeError",
        ),
        ("list(zip(ends[:-1], ends[1:]))", "[(a, b + 1) for a, b in zip(ends, ends[1:])]", "have row 11"),
        (
            "[i * (n // k) + min(i, n % k) for i in range(k + 1)]",
            "np.linspace(0, n, k + 1).astype(int)",
            "pieces(11, 3) have [3, 4, 4] rows, not [4, 4, 3]",
        ),
        (
            "out[begin:end] = predict(x[begin:end])",
            "out[: end - begin] = predict(x[begin:end])",
            "a race: in pool_predict, tasks 0 and 1 both write rows 0 to 24 of out",
        ),
        (
            "out[begin:end] = predict(x[begin:end])",
            "out[begin : end + 1] = predict(x[begin : end + 1])",
            "tasks 0 and 1 both write row 25 of out",
        ),
        (
            "        out[begin:end] = predict(x[begin:end])",
            "        predict(x[begin:end])",
            "writes nothing",
        ),
        ("pool.map(task, pieces(len(x), k))", "list(map(task, pieces(len(x), k)))", "never calls pool.map"),
        (
            "        out[begin:end] = predict(x[begin:end])",
            "        rows = x[begin:end]\n        rows *= 2\n        out[begin:end] = predict(rows)",
            "`task` writes into an array that it may only read, line",
        ),
        ("out[i] = (end - begin)", "out[i] += (end - begin)", "the tasks add to what is in out before"),
        ("out[i] = (end - begin) / len(x) * own", "out[i] = own", "summed, not averaged"),
        ("out[i] = (end - begin) / len(x) * own", "out[i] = own / k", "plain mean over the pieces"),
        ("out[i] = (end - begin) / len(x) * own", "out[i] = (end - begin) * own", "1/n is missing"),
        (
            "out[i] = (end - begin) / len(x) * own",
            "out[0] += (end - begin) / len(x) * own",
            "a race: in pool_gradient, tasks 0 and 1 both write row 0 of out",
        ),
        ("1 / (s + (1 - s) / threads)", "threads", "the part s is shared"),
        ("key=lambda result: result[0]", "key=lambda result: 0", "in the order in which tasks end"),
        ("result = None, error", "result = error, None", "map hides the error of a task"),
        (
            """        for thread in self.threads:
            thread.join()
""",
            "",
            "close returns while",
        ),
        (
            "pool.map(task, pieces(len(x), k))",
            "pool.map(task, pieces(len(x), 2 * k))",
            "pool_predict gives pool.map 8 tasks, not 4",
        ),
        (
            "        for number, item in enumerate(items):\n",
            "        return [function(item) for item in items]\n        for number, item in []:\n",
            "in the thread that calls it, not in the pool's",
        ),
        (
            "target=self.work) for _ in range(threads)]",
            "target=self.work, daemon=True) for _ in range(1)]",
            "no two tasks of a map run at the same time",
        ),
        (
            "        results = sorted(",
            "        if not items:\n            return [None]\n        results = sorted(",
            "Pool.map of no items does not give []",
        ),
        (
            "target=self.work) for _ in range(threads)]",
            "target=self.work, daemon=True) for _ in range(threads + 1)]",
            "Pool(3) starts 4 threads",
        ),
        (
            "        for _, _, error in results:\n            if error is not None:\n",
            """        results = self.left = getattr(self, "left", []) + results
        for _, _, error in results:
            if error is None:
                self.left = []
            else:
                self.left = [result for result in results if result[2] is None]
""",
            "after an error map gives wrong results: something of the failed one is left over",
        ),
        (
            "[value for _, value, _ in results]",
            "[value for _, value, _ in results][:10]",
            "Pool.map of item · item gives",
        ),
    ],
    "scatter": [
        ("[(end - size, end) for", "[(n - end, n - end + size) for", "are not in the order of rows"),
        (
            "[part if rank == root else comm.recv(rank) for rank in range(comm.size)]",
            "np.concatenate([part if rank == root else comm.recv(rank) for rank in range(comm.size)])",
            "is no list of 3 arrays",
        ),
        ("n // ranks + (rank < n % ranks)", "n // ranks", "the last 2 rows are dropped (rows 9 to 10)"),
        ("[(end - size, end) for", "[(end - size, end + 1) for", "row 11, but there are only rows 0 to 10"),
        ("[(end - size, end) for", "[(max(end - size - 1, 0), end) for", "more than once rows 3, 7"),
        (
            """        return comm.recv(root)
    parts""",
            """        return comm.recv(0)
    parts""",
            "right with root 0, not with root 1",
        ),
        (
            """        if rank != root:
            comm.send(parts[rank], rank)
""",
            """        comm.send(parts[rank], rank)
""",
            "rank 0 waits until its send is received by itself, line",
        ),
        (
            "[part if rank == root else comm.recv(rank) for",
            "[comm.recv(rank) for",
            "waits in recv from itself",
        ),
        ("        comm.send(part, root)\n", "", "rank 0 waits in recv from rank 1, which has returned"),
        (
            "[part if rank == root else comm.recv(rank) for rank in range(comm.size)]",
            "[part] + [comm.recv(rank) for rank in range(comm.size) if rank != root]",
            "in the order of ranks 1, 0, 2",
        ),
        ("        a[...] = comm.recv(root)", "        a = comm.recv(root)", "rank 1 keeps its own values"),
        (
            "sum(size * each for size, each in zip(sizes, gathered)) / n",
            "sum(gathered) / comm.size",
            "mean of the ranks' means",
        ),
        (
            "sum(size * each for size, each in zip(sizes, gathered)) / n",
            "sum(gathered)",
            "summed, not averaged",
        ),
        ("size, each in zip(sizes, gathered)) / n", "size, each in zip(sizes, gathered))", "1/n is missing"),
        (
            "    broadcast(comm, theta, root)\n    return loss",
            "    return loss",
            "rank 1 still has the theta from before the step",
        ),
        ("theta -= rate * mean[:-1]", "theta += rate * mean[:-1]", "uphill"),
        (
            "theta -= rate * mean[:-1]",
            "theta = theta - rate * mean[:-1]",
            "theta on the root, rank 0: still that of before the step",
        ),
        ("(n - (end - begin))", "n", "the root sends itself nothing"),
        ("(ranks - 1) * params", "params", "to each of the other ranks"),
        (
            """    own_x, own_t = scatter(comm, x, root), scatter(comm, t, root)
    losses = []
    for _ in range(steps):
""",
            """    losses = []
    for _ in range(steps):
        own_x, own_t = scatter(comm, x, root), scatter(comm, t, root)
""",
            "rows are scattered in every step",
        ),
        (
            "    own_x, own_t = scatter(",
            "    root = 0\n    own_x, own_t = scatter(",
            "TypeError in `scatter`",
        ),
        ("n - (end - begin)", "n - round(n / ranks)", "bytes_of_step(13, 5, 2, 31, 4) is 1304, not 1248"),
        (
            "    return losses if comm.rank == root else None",
            "    return losses",
            "train_once returns a result on rank 0, too",
        ),
        (
            "len(x) if comm.rank == root else None, rate, root)",
            "len(x) if comm.rank == root else None, rate, root) or 0.0",
            "step returns a result on rank 1, too",
        ),
        (
            """        a[...] = comm.recv(root)
        return
    for rank in range(comm.size):
        if rank != root:
""",
            """        a[...] = comm.recv(root)
        a[...] = comm.recv(root)
        return
    for rank in range(comm.size):
        if rank != root:
            comm.send(a, rank)
""",
            "broadcast sends 4 messages on 3 ranks, not 2",
        ),
        (
            "    if comm.rank != root:\n        a[...] = comm.recv(root)\n",
            "    comm.broadcast(a, root)\n    if comm.size > 1:\n",
            "broadcast calls comm.broadcast: write it with send and recv",
        ),
        (
            "        comm.send(part, root)\n        return None\n",
            "        comm.send(part, root)\n        return part\n",
            "with root 0, rank 1 has a result too",
        ),
        (
            "    return [part if rank == root",
            "    [part if rank == root",
            "the root's result is None: is a `return` missing?",
        ),
        ("(ranks - 1) * params", "ranks * params", "theta goes to the other ranks only, not to all"),
        ("    return 8 * ((n", "    return 4 * ((n", "a float64 has 8 bytes, not 4"),
        ("    return 8 * ((n", "    return ((n", "it counts values, not bytes"),
        (
            "    return [(end - size, end) for end, size in zip(ends, sizes)]",
            "    [(end - size, end) for end, size in zip(ends, sizes)]",
            "shares(11, 3) is None: is a `return` missing?",
        ),
        (
            "    return [(end - size, end) for end, size in zip(ends, sizes)]",
            "    return [(end - size, end) for end, size in zip(ends, sizes)] + [(n, n)]",
            "shares(11, 3) has 4 pairs, not 3",
        ),
        (
            "    losses = []\n",
            "    losses = []\n    scatter(comm, t, root)\n",
            "in 4 steps, not",
        ),
        (
            "    loss, own = gradient(theta, scatter(",
            "    scatter(comm, t, root)\n    loss, own = gradient(theta, scatter(",
            "and the formula says",
        ),
        (
            "        return comm.recv(root)\n    parts",
            "        return comm.recv(9)\n    parts",
            "recv: rank 9 is not one of the 3 ranks",
        ),
        (
            "            comm.send(parts[rank], rank)",
            "            comm.send(parts[rank], rank, 1)",
            "waits until its send is received by rank 1, line",
        ),
    ],
    "averaging": [
        (
            "    for array in arrays:\n        comm.broadcast(array, 0)",
            "    comm.broadcast(arrays[0], 0)",
            "broadcast each of the arrays",
        ),
        ("np.random.default_rng([seed, epoch]).permutation(n)", "np.arange(n)", "the rows are not shuffled"),
        ("default_rng([seed, epoch])", "default_rng([seed, epoch, rank])", "do all ranks shuffle alike"),
        ("default_rng([seed, epoch])", "default_rng(seed)", "every epoch has the same order"),
        ("[rank::size]", "[rank + 1 :: size]", "do all ranks shuffle alike, and begin with the r-th row?"),
        ("[rank::size]", "[: n // size * size][rank::size]", "missing row"),
        (
            """    for array in arrays:
        array *= rows / total
        comm.all_reduce(array)
""",
            """    for i, array in enumerate(arrays):
        arrays[i] = comm.all_reduce(array * rows / total)
""",
            "parameters of rank 0: still those of before: each of the arrays is averaged, in place",
        ),
        ("array *= rows / total", "pass", "summed, not averaged"),
        ("array *= rows / total", "array /= comm.size", "plain mean over the ranks"),
        ("array *= rows / total", "array *= rows", "not divided by the rows of all ranks"),
        (
            "    for array in arrays:\n        array *=",
            "    for array in arrays[:1]:\n        array *=",
            "buffers of rank 0: still",
        ),
        (
            "    total = comm.all_reduce",
            "    if rows == 0:\n        return\n    total = comm.all_reduce",
            "waits in all_reduce #1, which rank 1 never entered",
        ),
        ("        comm.broadcast(array, 0)", "        pass", "each rank starts with its own arrays"),
        ("number % every == 0 or ", "", "one average only, at the end"),
        (" or number == len(batches)", "", "there is no average at the end"),
        ("            rows = 0\n", "", "all rows since the beginning"),
        ("number % every == 0 or", "(number - 1) % every == 0 or", "rank 0's array after 5 batches"),
        (
            "[float(correct), float(rows)]))",
            "[correct / rows, 1.0]))",
            "mean of the ranks' accuracies",
        ),
        (
            "        params -= rate * gradient(params, batch)",
            "        own = params.copy()\n        params[:] = own - rate * gradient(own, batch)",
            "lost updates",
        ),
        (
            """    for batch in batches:
        params -= rate * gradient(params, batch)""",
            """    own = params.copy()
    for batch in batches:
        params -= rate * gradient(own, batch)""",
            "the gradient of batch 1 is stale",
        ),
        ("params -= rate * gradient", "params = params - rate * gradient", "batch 1"),
        ("params -= rate * gradient", "params += rate * gradient", "uphill"),
        (
            "    for batch in batches:\n        params -= rate * gradient(params, batch)",
            "    params -= rate * sum(gradient(params, batch) for batch in batches)",
            "the gradient of batch 1 is taken before the step of batch 0 is made",
        ),
        (
            "[rank::size]",
            "[n * rank**2 // size**2 : n * (rank + 1) ** 2 // size**2]",
            "which differ by more than one",
        ),
        (
            "array *= rows / total",
            "array *= rows / comm.size",
            "weighted by rows, but divided by the number of ranks",
        ),
        (
            "        array *= rows / total\n        comm.all_reduce(array)\n",
            "        array *= rows / total\n",
            "this rank's own, times its weight",
        ),
        (
            "    for batch in batches:\n        params",
            "    for batch in batches[1:]:\n        params",
            "3 gradients were asked for",
        ),
        (
            "gradient(params, batch)",
            "gradient(params + 0.01, batch)",
            "is taken at other parameters than the shared ones",
        ),
        ("params -= rate * gradient", "params -= gradient", "the learning rate is missing"),
        (
            "    correct, rows = comm.all_reduce(np.array([float(correct), float(rows)]))\n",
            "",
            "accuracy on rank 0: it is this rank's own",
        ),
        (
            "    correct, rows = comm.all_reduce(np.array([float(correct), float(rows)]))\n",
            "    correct, rows = comm.all_reduce(np.array([correct / rows]))[0], 1\n",
            "it is the sum of the ranks' accuracies",
        ),
        (
            "[seed, epoch]).permutation(n)[rank::size]",
            "[seed, epoch]).permutation(n)[(rank + 1) % size :: size]",
            "begins one too late",
        ),
    ],
    "ddp": [
        (
            "order[self.rank :: self.ranks]",
            "np.array_split(order, self.ranks)[self.rank]",
            "are not those at the places r, r + p, r + 2p",
        ),
        (
            "default_rng((self.seed, self.epoch))",
            "default_rng((self.seed, self.rank, self.epoch))",
            "same on all",
        ),
        (
            "default_rng((self.seed, self.epoch))",
            "default_rng(self.seed)",
            "epochs 0 and 1 have the same order",
        ),
        ("default_rng((self.seed, self.epoch))", "default_rng()", "is the order the same on all ranks"),
        (
            "order[self.rank :: self.ranks]",
            "order[self.rank * (self.n // self.ranks) :][: self.n // self.ranks]",
            "len is 8, but it gives 7 rows",
        ),
        ("        gradient *= rows / all_rows\n", "", "the gradients are summed, not averaged"),
        ("rows / all_rows", "1 / comm.size", "the plain mean over the ranks"),
        (
            '        return comm.all_reduce(gradient, "sum")',
            "        return gradient",
            "part of the mean: all-reduce it",
        ),
        (
            "    def hook(gradient):\n",
            "    def hook(gradient):\n        return gradient\n",
            "own gradient: all-red",
        ),
        (
            """    comm.broadcast(model.flat_parameters)
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for x, t in loader:
            all_rows""",
            """    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for x, t in loader:
            all_rows""",
            "the ranks begin with other parameters each: broadcast",
        ),
        (
            "            optimizer.zero_grad()\n            loss(model(x), t).backward()\n            for",
            "            loss(model(x), t).backward()\n            for",
            "stale gradients: those of earlier steps",
        ),
        (
            "            for handle in handles:\n                handle.remove()\n",
            "",
            "32 hooks are still there after train",
        ),
        (
            "            all_rows = comm",
            "            if len(x) < 2:\n                continue\n            all_rows = comm",
            "which rank 2 never entered",
        ),
        ("flat_gradients * len(x), len(x))", "flat_gradients, 1)", "the plain mean over the ranks"),
        ("both[:-1] / both[-1]", "both[:-1]", "wrong"),
        (
            "            comm.all_reduce(both)\n",
            """            both[-1] = comm.all_reduce(both[-1:].copy())[0]
            comm.all_reduce(both[:-1])
""",
            "send the rows with the gradient",
        ),
        ("self.epoch = 0", "self.epoch = 1", "not that of epoch 0"),
        (
            "default_rng((self.seed, self.epoch))",
            "default_rng(self.epoch)",
            "seeds 5 and 6 give the same order",
        ),
        (
            "    return hook\n",
            "    return hook(np.ones(4))\n",
            "average_hook returned ndarray, not a function of the gradient",
        ),
        ("rows / all_rows", "rows", "the 1/n is missing: it is the sum over all rows"),
        (
            '        gradient *= rows / all_rows\n        return comm.all_reduce(gradient, "sum")',
            "        return comm.all_reduce(gradient * rows) / rows",
            "divided by this rank's rows instead of all rows",
        ),
        (
            "            hook = average_hook(",
            "            comm.all_reduce(np.zeros(1))\n            hook = average_hook(",
            "train makes 6 all-reduces in a step, not 5",
        ),
        (
            "        loader.set_epoch(epoch)\n        for x, t in loader:\n            all_rows",
            "        for x, t in loader:\n            all_rows",
            "call loader.set_epoch(epoch)",
        ),
        (
            "return len(range(self.rank, self.n, self.ranks))",
            "return self.n // self.ranks",
            "rank 0 of 3: len is 7, but it gives 8 rows",
        ),
    ],
    "pipeline": [
        (
            "        dx = stage.backward(k, dy)\n",
            "        dx = stage.backward(k, dy) if k == 0 or not first else None\n",
            "rank 0 never goes backward with micro-batch 1, 2, 3",
        ),
        ("weight = len(ys[k]) / n", "weight = 1", "the means of the micro-batches are summed, not averaged"),
        ("weight = len(ys[k]) / n", "weight = 1 / micro_batches", "the plain mean over the micro-batches"),
        ("total + weight * value", "total + value", "the loss on the last rank: the means of the"),
        (
            "        if not first:\n            comm.send(dx, comm.rank - 1)\n",
            "",
            "waits in recv from rank 2, which has returned",
        ),
        (
            "    for k in range(micro_batches):\n        if last:",
            "    for k in range(micro_batches)[:: -1 if last else 1]:\n        if last:",
            "the order is wrong: rank 1 calls backward for micro-batch 0 with the dy of micro-batch 3",
        ),
        (
            "    ys, total = [], 0.0\n",
            "    ys, total, micro_batches = [], 0.0, micro_batches - 1\n",
            "rank 0 never goes forward with micro-batch 3",
        ),
        ("            comm.send(y, comm.rank + 1)", "            comm.send(y, comm.rank - 1)", "rank"),
        (
            "            comm.send(y, comm.rank + 1)\n    for k in range(micro_batches):\n",
            "            comm.send(y, comm.rank + 1)\n",
            "rank 0 goes backward when only 1 of 4 micro-batches have gone forward",
        ),
        (
            "        x = xs[k] if first else comm.recv(comm.rank - 1)",
            "        x = xs[k] if first else comm.recv((comm.rank + 1) % comm.size)",
            "a deadlock: ",
        ),
        ("(stages - 1) / (micro_batches + stages - 1)", "(stages - 1) / micro_batches", "the waits count"),
        ("np.rint(127 / s * values)", "127 / s * values", "round to the nearest number"),
        ("np.rint(127 / s * values)", "np.rint(128 / s * values)", "an int8 goes from −128 to 127"),
        (" if s > 0 else values", "", "zeros: FloatingPointError"),
        ("np.float32(np.abs(values).max())", "np.abs(values).max()", "1009 bytes for 1001 values, not 1005"),
        ("view(np.int8) * (", "view(np.uint8) * (", "signs stay"),
        ("wanted = gradient + error", "wanted = gradient", "e is not added before the gradient is encoded"),
        (
            "wanted = gradient + error",
            "gradient += error\n    wanted = gradient",
            "`feed_back` writes into an array that it may only read, line",
        ),
        (
            "return code, wanted - codec",
            "return code, gradient - codec",
            "without the old e: that is forgotten",
        ),
        ("return total if last else None", "return total", "rank 0 returns a loss, too"),
        ("return data[4:].view(np.int8) *", "return np.nan * data[4:].view(np.int8) *", "comes back as nan"),
        (
            "    ys, total = [], 0.0\n",
            """    ys, total = [], 0.0
    if first:
        comm.send(np.zeros(0), 1)
    elif comm.rank == 1:
        comm.recv(0)
""",
            "17 messages on 3 ranks, not 16",
        ),
        (
            "        y = stage.forward(k, x)\n",
            "        y = stage.forward(k, x)\n        y = stage.forward(k, x)\n",
            "rank 0 goes forward with micro-batch 0 twice",
        ),
        (
            "        y = stage.forward(k, x)\n",
            "        if last:\n            stage.backward(k, x)\n        y = stage.forward(k, x)\n",
            "rank 2 goes backward with micro-batch 0 before it went forward",
        ),
        (
            "        dx = stage.backward(k, dy)\n",
            "        dx = stage.backward(k, dy if last else dy * 0 + 1)\n",
            "gets as dy an array of no micro-batch",
        ),
        (
            "        dx = stage.backward(k, dy)\n",
            "        dx = stage.backward(k, dy if last else None)\n",
            "gets None as dy",
        ),
        ("wanted = gradient + error", "wanted = gradient - error", "e is subtracted, not added"),
        (
            "return code, wanted - codec.decode(code, wanted.shape, wanted.dtype.name)",
            "return code, codec.decode(code, wanted.shape, wanted.dtype.name) - wanted",
            "the sign is wrong",
        ),
        (
            "return code, wanted - codec.decode(code, wanted.shape, wanted.dtype.name)",
            "return code, 0 * wanted",
            "e is not kept",
        ),
        (
            "return code, wanted - codec.decode(code, wanted.shape, wanted.dtype.name)",
            "return code",
            "feed_back returned ndarray, not the pair",
        ),
        (
            "(stages - 1) / (micro_batches + stages - 1)",
            "stages / (micro_batches + stages)",
            "there are p − 1 waits, not p",
        ),
        (
            "(stages - 1) / (micro_batches + stages - 1)",
            "micro_batches / (micro_batches + stages - 1)",
            "it is the part in which it works",
        ),
    ],
    "ring": [
        ("        mine += comm.recv(", "        mine[:] = comm.recv(", "lacks the values of rank"),
        (
            "range(ranks - 1):\n        request = comm.start_send(chunks[(rank + 1",
            "range(ranks - 2):\n        request = comm.start_send(chunks[(rank + 1",
            "lacks the values of rank",
        ),
        (
            "chunks[(rank + 1 - step) % ranks]",
            "chunks[(rank - step) % ranks]",
            "changes after start_send, before",
        ),
        ("np.array_split(array, ranks)", "np.array_split(array.copy(), ranks)", "fill `array` in place"),
        (
            """        request = comm.start_send(chunks[(rank - step) % ranks], after, check=False)
        mine = chunks[(rank - step - 1) % ranks]
        mine += comm.recv(before, out=np.empty_like(mine), check=False)
        request.wait()
""",
            """        mine = chunks[(rank - step - 1) % ranks]
        mine += comm.recv(before, out=np.empty_like(mine), check=False)
        comm.send(chunks[(rank - step) % ranks], after, check=False)
""",
            "a deadlock: rank 0 waits in recv from rank 1",
        ),
        (
            """        request = comm.start_send(chunks[(rank + 1 - step) % ranks], after, check=False)
        comm.recv(before, out=chunks[(rank - step) % ranks], check=False)
        request.wait()
""",
            """        comm.send(chunks[(rank + 1 - step) % ranks], after, check=False)
        comm.recv(before, out=chunks[(rank - step) % ranks], check=False)
""",
            "a deadlock: rank 0 waits until its send is received by rank 1, line",
        ),
        (
            "chunks[(rank + 1 - step) % ranks], after, check=False)\n",
            "chunks[(rank + 1 - step) % ranks], after, check=False)\n        request.wait()\n",
            "a deadlock: rank 0 waits for a call that it has started, line",
        ),
        (
            """        mine += comm.recv(before, out=np.empty_like(mine), check=False)
        request.wait()
""",
            """        mine += comm.recv(before, out=np.empty_like(mine), check=False)
        chunks[(rank - step) % ranks][:] = 0
        request.wait()
""",
            "an array changes after start_send, before request.wait() has returned",
        ),
        (
            "out=chunks[(rank - step) % ranks], check=False)\n        request.wait()\n",
            "out=chunks[(rank - step) % ranks], check=False)\n",
            "rank 0 never waits for 1 of the sends that it started",
        ),
        (
            "out=chunks[(rank - step) % ranks], check=False)\n        request.wait()\n",
            "out=chunks[(rank - step) % ranks], check=False)\n        request.wait()\n    array /= ranks\n",
            "is averaged, not summed",
        ),
        (
            "    chunks = np.array_split(array, ranks)\n",
            "    array[:] = sum(comm.all_gather(array))\n    return\n    chunks = None\n",
            "calls comm.all_gather: write it with messages",
        ),
        ("8 * 2 * (ranks - 1) * n // ranks", "8 * (ranks - 1) * n", "that sends all to all"),
        ("8 * 2 * (ranks - 1) * n // ranks", "8 * 2 * n", "each phase has p − 1 steps, not p"),
        ("warm_up = min(micro_batches, stages - stage - 1)", "warm_up = 0", "is idle for 67% of the time"),
        (
            "warm_up = min(micro_batches, stages - stage - 1)",
            "warm_up = min(micro_batches, stage)",
            "a deadlock: stage 0 waits to go backward with micro-batch 0 until stage 1 has",
        ),
        (
            "warm_up = min(micro_batches, stages - stage - 1)",
            "warm_up = micro_batches",
            "holds 5 micro-batches",
        ),
        (
            "for k in range(micro_batches - warm_up, micro_batches)]",
            "for k in range(micro_batches - warm_up + 1, micro_batches)]",
            "stage 0 never goes backward with micro-batch",
        ),
        ("8 * 2 * (ranks - 1) * n // ranks", "4 * n * (ranks - 1)", "ring_bytes(24, 6) is 480, not 320"),
        (
            "    ranks, rank = comm.size, comm.rank\n",
            "    ranks, rank = comm.size, comm.rank\n    array[:] = np.nan\n",
            "is nan, which is no sum",
        ),
        ("8 * 2 * (ranks - 1) * n // ranks", "2 * (ranks - 1) * n // ranks", "it counts values, not bytes"),
        (
            "8 * 2 * (ranks - 1) * n // ranks",
            "8 * (ranks - 1) * n // ranks",
            "ring_bytes(24, 6): a float64 has 8 bytes, not 4",
        ),
        (
            "        passes.append(own)\n    return passes",
            "        passes.append(own)\n    return passes[:-1]",
            "schedule(1, 3) has 0 lists, not 1, one a stage",
        ),
        (
            "    for stage in range(stages):\n",
            "    micro_batches += 1\n    for stage in range(stages):\n",
            "has 4 micro-batches, not 3",
        ),
        ("    return passes", "    passes", "schedule returned None: is a `return` missing?"),
        (
            "    ranks, rank = comm.size, comm.rank\n",
            """    ranks, rank, given = comm.size, comm.rank, comm

    class comm:
        start_send = lambda a, to, check: given.start_send(a, to)
        recv = lambda of, out, check: given.recv(of, out=out)

""",
            "pass check=False, or a header goes before each message",
        ),
        (
            "    chunks = np.array_split(array, ranks)\n",
            """    others = [peer for peer in range(ranks) if peer != rank]
    sends = [comm.start_send(array.copy(), peer) for peer in others]
    array += sum(comm.recv(peer) for peer in others)
    return [send.wait() for send in sends]
    chunks = None
""",
            "rank 0 sends to rank 1, rank 2, rank 3; in the ring to rank 1 only",
        ),
        (
            "    chunks = np.array_split(array, ranks)\n",
            """    come = array.copy()
    for _ in range(ranks - 1):
        request = comm.start_send(come, after)
        come = comm.recv(before)
        array += come
        request.wait()
    return
    chunks = None
""",
            "rank 0 sends 480 bytes in 3 messages for 20 values on 4 ranks; the ring sends 240 in 6",
        ),
        (
            "    ranks, rank = comm.size, comm.rank\n",
            "    ranks, rank = comm.size, comm.rank\n    comm.start_send(array, (rank + 1) % ranks, 3)\n",
            "rank 0 sends rank 1 3 messages, which receives 2 of them",
        ),
    ],
}
