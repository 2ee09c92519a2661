def rows_of_epoch(n, rank, size, seed, epoch):
    return np.random.default_rng([seed, epoch]).permutation(n)[rank::size]


def average(comm, arrays, rows):
    total = comm.all_reduce(np.array([float(rows)]))[0]
    for array in arrays:
        array *= rows / total
        comm.all_reduce(array)


def train(comm, arrays, step, batches, every):
    for array in arrays:
        comm.broadcast(array, 0)
    rows = 0
    for number, batch in enumerate(batches, 1):
        rows += step(batch)
        if number % every == 0 or number == len(batches):
            average(comm, arrays, rows)
            rows = 0


def accuracy(comm, correct, rows):
    correct, rows = comm.all_reduce(np.array([float(correct), float(rows)]))
    return correct / rows


def hogwild_worker(params, gradient, batches, rate):
    for batch in batches:
        params -= rate * gradient(params, batch)
