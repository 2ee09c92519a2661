class RankSampler:
    def __init__(self, n, rank, ranks, seed):
        self.n, self.rank, self.ranks, self.seed = n, rank, ranks, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.n)
        return iter(order[self.rank :: self.ranks])

    def __len__(self):
        return len(range(self.rank, self.n, self.ranks))


def average_hook(comm, rows, all_rows):
    def hook(gradient):
        gradient *= rows / all_rows
        return comm.all_reduce(gradient, "sum")

    return hook


def train(comm, model, loss, optimizer, loader, epochs):
    comm.broadcast(model.flat_parameters)
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for x, t in loader:
            all_rows = comm.all_reduce(np.array([len(x)]))[0]
            hook = average_hook(comm, len(x), all_rows)
            handles = [parameter.register_hook(hook) for parameter in model.parameters()]
            optimizer.zero_grad()
            loss(model(x), t).backward()
            for handle in handles:
                handle.remove()
            optimizer.step()


def train_flat(comm, model, loss, optimizer, loader, epochs):
    comm.broadcast(model.flat_parameters)
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for x, t in loader:
            optimizer.zero_grad()
            loss(model(x), t).backward()
            both = np.append(model.flat_gradients * len(x), len(x))
            comm.all_reduce(both)
            model.flat_gradients[:] = both[:-1] / both[-1]
            optimizer.step()
