def ring_all_reduce(comm, array):
    ranks, rank = comm.size, comm.rank
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    chunks = np.array_split(array, ranks)
    for step in range(ranks - 1):
        request = comm.start_send(chunks[(rank - step) % ranks], after, check=False)
        mine = chunks[(rank - step - 1) % ranks]
        mine += comm.recv(before, out=np.empty_like(mine), check=False)
        request.wait()
    for step in range(ranks - 1):
        request = comm.start_send(chunks[(rank + 1 - step) % ranks], after, check=False)
        comm.recv(before, out=chunks[(rank - step) % ranks], check=False)
        request.wait()


def ring_bytes(n, ranks):
    return 8 * 2 * (ranks - 1) * n // ranks


def schedule(stages, micro_batches):
    passes = []
    for stage in range(stages):
        warm_up = min(micro_batches, stages - stage - 1)
        own = [("forward", k) for k in range(warm_up)]
        for k in range(micro_batches - warm_up):
            own += [("forward", warm_up + k), ("backward", k)]
        own += [("backward", k) for k in range(micro_batches - warm_up, micro_batches)]
        passes.append(own)
    return passes
