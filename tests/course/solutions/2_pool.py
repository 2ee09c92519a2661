def pieces(n, k):
    ends = [i * (n // k) + min(i, n % k) for i in range(k + 1)]
    return list(zip(ends[:-1], ends[1:]))


def pool_predict(pool, predict, x, k, out):
    def task(piece):
        begin, end = piece
        out[begin:end] = predict(x[begin:end])

    pool.map(task, pieces(len(x), k))


def pool_gradient(pool, gradient, x, t, k, out):
    shares = pieces(len(x), k)

    def task(i):
        begin, end = shares[i]
        _, own = gradient(x[begin:end], t[begin:end])
        out[i] = (end - begin) / len(x) * own

    pool.map(task, range(k))
    return out.sum(axis=0)


def speedup(s, threads):
    return 1 / (s + (1 - s) / threads)


class Pool:
    """Threads that do tasks."""

    def __init__(self, threads):
        self.tasks = queue.Queue()
        self.threads = [threading.Thread(target=self.work) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def work(self):
        while True:
            task = self.tasks.get()
            if task is None:
                return
            number, function, item, done = task
            try:
                result = function(item), None
            except Exception as error:
                result = None, error
            done.put((number, *result))

    def map(self, function, items):
        done = queue.Queue()
        items = list(items)
        for number, item in enumerate(items):
            self.tasks.put((number, function, item, done))
        results = sorted((done.get() for _ in items), key=lambda result: result[0])
        for _, _, error in results:
            if error is not None:
                raise error
        return [value for _, value, _ in results]

    def close(self):
        for _ in self.threads:
            self.tasks.put(None)
        for thread in self.threads:
            thread.join()
