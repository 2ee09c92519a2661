def shares(n, ranks):
    sizes = [n // ranks + (rank < n % ranks) for rank in range(ranks)]
    ends = [sum(sizes[: rank + 1]) for rank in range(ranks)]
    return [(end - size, end) for end, size in zip(ends, sizes)]


def scatter(comm, a, root):
    if comm.rank != root:
        return comm.recv(root)
    parts = [a[begin:end] for begin, end in shares(len(a), comm.size)]
    for rank in range(comm.size):
        if rank != root:
            comm.send(parts[rank], rank)
    return parts[root]


def gather(comm, part, root):
    if comm.rank != root:
        comm.send(part, root)
        return None
    return [part if rank == root else comm.recv(rank) for rank in range(comm.size)]


def broadcast(comm, a, root):
    if comm.rank != root:
        a[...] = comm.recv(root)
        return
    for rank in range(comm.size):
        if rank != root:
            comm.send(a, rank)


def combine(comm, theta, own, n, rate, root):
    gathered = gather(comm, own, root)
    loss = None
    if comm.rank == root:
        sizes = [end - begin for begin, end in shares(n, comm.size)]
        mean = sum(size * each for size, each in zip(sizes, gathered)) / n
        theta -= rate * mean[:-1]
        loss = mean[-1]
    broadcast(comm, theta, root)
    return loss


def step(comm, theta, x, t, gradient, rate, root):
    loss, own = gradient(theta, scatter(comm, x, root), scatter(comm, t, root))
    return combine(comm, theta, np.append(own, loss), len(x) if comm.rank == root else None, rate, root)


def bytes_of_step(n, features, classes, params, ranks):
    begin, end = shares(n, ranks)[0]
    return 8 * ((n - (end - begin)) * (features + classes) + (ranks - 1) * params)


def train_once(comm, theta, x, t, gradient, rate, root, steps):
    own_x, own_t = scatter(comm, x, root), scatter(comm, t, root)
    losses = []
    for _ in range(steps):
        loss, own = gradient(theta, own_x, own_t)
        n = len(x) if comm.rank == root else None
        losses.append(combine(comm, theta, np.append(own, loss), n, rate, root))
    return losses if comm.rank == root else None
