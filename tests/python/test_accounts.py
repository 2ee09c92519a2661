"""What a training says about its ranks: bytes as the formulas of docs/algorithms.md have them, and times."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.cli.accounts import of_codec, of_ranks, tell
from pdnn.data import Dataset
from pdnn.estimate import Estimate
from pdnn.history import History
from pdnn.strategies import DataParallel, ModelAveraging, Serial

pytestmark = pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores

RNG = np.random.default_rng(0)
INPUTS, HIDDEN, CLASSES = 12, 9, 4
ROWS, BATCH, EPOCHS = 38, 9, 2  # five steps, the last of two rows
DATA = Dataset(RNG.random((ROWS, INPUTS)), RNG.integers(0, CLASSES, ROWS))
FIRST, SECOND = (INPUTS + 1) * HIDDEN, (HIDDEN + 1) * CLASSES
COUNT = FIRST + SECOND
SIZE, TAIL = 8, 3  # bytes of a float64; sums behind the gradients
BATCHES = [9, 9, 9, 9, 2]


def train(strategy: Any, data: Dataset = DATA, hidden: int = HIDDEN) -> History:
    """What one rank has measured."""
    inputs = data.x.shape[1]
    model = nn.Sequential(
        nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, CLASSES), dtype="float64", seed=2
    )
    sgd = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
    return trainer.fit(data, EPOCHS, BATCH, validation=data, verbose=False)


def on_ranks(strategy: Any, ranks: int, **network: Any) -> History:
    """The history of the first rank; the others have the same of all ranks."""
    histories = pdnn.run(train, strategy, **network, ranks=ranks, backend="threads")
    assert all(history.ranks == histories[0].ranks for history in histories)
    for rank, history in enumerate(histories):
        for phases, epoch in zip(history.phases, history.ranks, strict=True):
            assert phases.items() <= epoch[rank].items()
    first: History = histories[0]
    return first


def part(count: int, rank: int, ranks: int) -> int:
    return count // ranks + (rank < count % ranks)


def all_reduce(count: int, rank: int, ranks: int, size: int = SIZE) -> int:
    """Bytes that a rank sends."""
    own = part(count, rank, ranks)
    return (count - own + (ranks - 1) * own) * size


def in_one_bucket(rank: int, ranks: int) -> int:
    return len(BATCHES) * all_reduce(COUNT + TAIL, rank, ranks)


LEAVES = 8
NODES = {1: [1], 2: [1, 1], 3: [2, 2, 1], 5: [1, 1, 1, 1, 1]}  # of the tree over them that each rank makes


def by_the_tree(rank: int, ranks: int) -> int:
    own, of_leaves = part(COUNT, rank, ranks), all_reduce(2 * LEAVES + 1, rank, ranks)
    nodes = NODES[ranks][rank] * (COUNT - own) * SIZE
    return len(BATCHES) * (nodes + (ranks - 1) * own * SIZE + of_leaves)


def by_average(every: int) -> Callable[[int, int], int]:
    def sent(rank: int, ranks: int) -> int:
        averages = -(-ROWS // (ranks * BATCH)) // every
        return averages * all_reduce(COUNT + 1, rank, ranks) + all_reduce(7, rank, ranks)

    return sent


def by_master(rank: int, ranks: int) -> int:
    averages = -(-ROWS // (ranks * BATCH))
    messages = ranks - 1 if rank == 0 else 1
    return averages * messages * (COUNT + 1) * SIZE + all_reduce(7, rank, ranks)


def by_root(rank: int, ranks: int) -> int:
    if rank > 0:
        return len(BATCHES) * (COUNT + TAIL) * SIZE
    scattered = sum(rows - part(rows, 0, ranks) for rows in BATCHES) * (INPUTS * SIZE + 4)
    return scattered + len(BATCHES) * (COUNT + TAIL) * SIZE


def in_pairs(rank: int, ranks: int) -> int:
    own = (INPUTS + 1) * part(HIDDEN, rank, ranks) + part(HIDDEN, rank, ranks) * CLASSES + CLASSES
    forward = sum(all_reduce(rows * CLASSES, rank, ranks) for rows in BATCHES)
    ends_of_steps = len(BATCHES) * all_reduce(3, rank, ranks)
    return forward + ends_of_steps + (ranks - 1) * 3 * own * SIZE  # parameters, gradients, momentum


def in_a_pipeline(rank: int, ranks: int) -> int:
    border = ROWS * HIDDEN * SIZE  # up from the first stage, down from the second
    return border + len(BATCHES) * all_reduce(3, rank, ranks) + 3 * (FIRST, SECOND)[rank] * SIZE


def at_the_end(rank: int, ranks: int) -> int:
    return all_reduce(8, rank, ranks) + all_reduce(1, rank, ranks)


MESSAGES = DataParallel(shared_memory=False, bucket_bytes=COUNT * SIZE)
BY_LEAVES = DataParallel(Serial(LEAVES), bucket_bytes=COUNT * SIZE)


@pytest.mark.parametrize(
    ("strategy", "ranks", "sent"),
    [
        ("serial", 1, lambda rank, ranks: 0),
        (MESSAGES, 2, in_one_bucket),
        (MESSAGES, 3, in_one_bucket),
        (BY_LEAVES, 2, by_the_tree),
        (BY_LEAVES, 3, by_the_tree),
        (BY_LEAVES, 5, by_the_tree),
        (ModelAveraging(every=3), 2, by_average(3)),
        (ModelAveraging(every=1), 3, by_average(1)),
        ("average:1:master", 3, by_master),
        ("elastic-average:3", 2, by_average(3)),
        ("scatter-gather", 3, by_root),
        ("tp:2", 2, in_pairs),
        ("tp:3", 3, in_pairs),
        ("pipeline:2/4", 2, in_a_pipeline),
        ("pipeline:2/3:gpipe", 2, in_a_pipeline),
        (DataParallel(shared_memory=True), 2, lambda rank, ranks: 0),
        ("hogwild-processes:2", 2, at_the_end),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_bytes_of_an_epoch_are_those_of_the_formulas(
    strategy: Any, ranks: int, sent: Callable[[int, int], int]
) -> None:
    history = on_ranks(strategy, ranks)
    assert history.bytes == EPOCHS * [[sent(rank, ranks) for rank in range(ranks)]]


@pytest.mark.parametrize(
    ("spec", "ranks", "beside"),
    [
        ("ddp:int8", 2, lambda rank: len(BATCHES) * all_reduce(TAIL, rank, 2)),
        ("ddp:topk:0.1", 3, lambda rank: len(BATCHES) * all_reduce(TAIL, rank, 3)),
        ("average:3:int8", 2, lambda rank: all_reduce(1, rank, 2) + all_reduce(7, rank, 2)),
    ],
)
def test_what_codecs_send_is_counted_twice_alike(spec: str, ranks: int, beside: Callable[[int], int]) -> None:
    """By who encodes, in `History.compression`, and by who sends."""
    for rank, history in enumerate(pdnn.run(train, spec, ranks=ranks, backend="threads")):
        for epoch, stats in zip(history.bytes, history.compression, strict=True):
            assert epoch[rank] == stats["bytes"] + beside(rank)


def test_buckets_of_any_size_send_the_same() -> None:
    """A share of each bucket is a rank's, so only the sum over the ranks is the formula's to the byte."""
    ranks = 3
    for bucket in (1, 100, 300):
        history = on_ranks(DataParallel(shared_memory=False, bucket_bytes=bucket), ranks)
        for epoch in history.bytes:
            assert sum(epoch) == len(BATCHES) * 2 * (ranks - 1) * (COUNT + TAIL) * SIZE


@pytest.mark.parametrize(
    ("inputs", "hidden", "ranks"),
    [(INPUTS, HIDDEN, 2), (256, 70, 3), (256, 70, 5)],
    ids=["no panels", "a panel each", "more ranks than panels"],
)
def test_what_is_read_in_shared_memory_is_counted_beside_what_is_sent(
    inputs: int, hidden: int, ranks: int
) -> None:
    data = Dataset(RNG.random((ROWS, inputs)), RNG.integers(0, CLASSES, ROWS))
    count = (inputs + 1) * hidden + (hidden + 1) * CLASSES
    for epoch in on_ranks(DataParallel(shared_memory=True), ranks, data=data, hidden=hidden).ranks:
        step = 2 * count + ranks * TAIL  # gradients and parameters of the others; their sums
        last = 2 * (count + TAIL) + count  # the whole gradient of the last step is on every rank
        end = 2 * count  # parameters and momentum
        elements = (ranks - 1) * ((len(BATCHES) - 1) * step + last + end)
        assert sum(rank["shared_bytes"] for rank in epoch) == elements * SIZE


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_what_is_read_of_a_batch_in_leaves_is_counted(ranks: int) -> None:
    for epoch in on_ranks(DataParallel(Serial(LEAVES), shared_memory=True), ranks).ranks:
        for rank, told in enumerate(epoch):
            own = part(COUNT, rank, ranks)
            nodes = (sum(NODES[ranks]) - NODES[ranks][rank]) * own  # the others', of this rank's share
            step = nodes + (COUNT - own) + (ranks - 1) * TAIL  # parameters of the others; their sums
            whole = COUNT - own  # the gradient of the last step is on every rank
            end = 2 * (COUNT - own)  # parameters and momentum
            assert told["shared_bytes"] == (len(BATCHES) * step + whole + end) * SIZE


def test_what_hogwild_reads_is_counted() -> None:
    for epoch in on_ranks("hogwild-processes:2", 2).ranks:
        assert sum(rank["shared_bytes"] for rank in epoch) == len(BATCHES) * COUNT * SIZE


@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [
        ("serial", 1),
        (MESSAGES, 2),
        ("ddp", 2),
        ("average:2", 2),
        ("tp:2", 2),
        ("pipeline:2", 2),
        ("scatter-gather", 2),
    ],
    ids=str,
)
def test_phases_add_up_to_the_time_of_an_epoch(strategy: Any, ranks: int) -> None:
    history = on_ranks(strategy, ranks)
    for epoch, times in zip(history.ranks, history.times, strict=True):
        assert len(epoch) == len(times) == ranks
        for rank, parts in zip(epoch, times, strict=True):
            phases = ("gradient", "messages", "agreement", "update", "scatter", "broadcast")
            assert all(rank[name] >= 0 for name in phases)
            assert sum(rank[name] for name in phases) <= rank["seconds"] * 1.001
            assert sum(parts.values()) == pytest.approx(rank["seconds"], rel=1e-3)
            assert min(parts.values()) >= 0
    assert history.history["seconds"] == [epoch[0]["seconds"] for epoch in history.ranks]


def test_waits_for_a_pipeline_and_a_pair_are_messages_and_no_gradient() -> None:
    for strategy in ("pipeline:2", "tp:2"):
        history = on_ranks(strategy, 2)
        assert all(rank["messages"] > 0 for epoch in history.ranks for rank in epoch)
    assert all(epoch[0]["messages"] == 0 for epoch in on_ranks("serial", 1).ranks)


def test_layers_that_were_split_by_hand_count_too() -> None:
    def trained() -> list[dict[str, float]]:
        world = pdnn.world()
        first = nn.ColumnParallelLinear(INPUTS, HIDDEN, comm=world)
        second = nn.RowParallelLinear(HIDDEN, CLASSES, comm=world)
        model = nn.Sequential(first, nn.Tanh(), second, dtype="float64", seed=2)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="serial", comm=pdnn.comm.SELF)
        return trainer.fit(DATA, 1, BATCH, verbose=False).ranks[0]

    for rank, (alone,) in enumerate(pdnn.run(trained, ranks=2, backend="threads")):
        assert alone["bytes"] == sum(all_reduce(rows * CLASSES, rank, 2) for rows in BATCHES)
        assert alone["messages"] > 0


def test_the_least_wait_is_communication_and_the_rest_is_for_the_slowest() -> None:
    phases = {"scatter": 0.0, "broadcast": 0.0, "update": 1.0, "hidden": 5.0}
    early = {"seconds": 10.0, "gradient": 3.0, "agreement": 4.0, "messages": 1.5, **phases}
    late = {"seconds": 10.0, "gradient": 5.5, "agreement": 1.0, "messages": 2.0, **phases}
    history = History()
    history.add({"loss": 1.0}, {}, ranks=[early, late])
    assert history.times == [
        [
            {"compute": 4.0, "communication": 2.5, "waiting": 3.0, "other": 0.5},
            {"compute": 6.5, "communication": 2.5, "waiting": 0.5, "other": 0.5},
        ]
    ]
    history.ranks = [[early | {"seconds": 9.0}]]  # its clocks were read a little apart
    assert history.times[0][0]["other"] == 0


def test_a_file_and_a_checkpoint_keep_the_account_of_all_ranks(tmp_path: Path) -> None:
    history = on_ranks("tp:2", 2)
    history.save(tmp_path / "history.json")
    kept = History.load(tmp_path / "history.json")
    assert kept.ranks == history.ranks and kept.bytes == history.bytes and kept.times == history.times

    def resumed(epochs: int) -> History:
        model = nn.Sequential(nn.Linear(INPUTS, CLASSES), dtype="float64", seed=2)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=MESSAGES)
        return trainer.fit(DATA, epochs, BATCH, checkpoint=tmp_path / "run", resume=True, verbose=False)

    before, *_ = pdnn.run(resumed, 1, ranks=2, backend="threads")
    for after in pdnn.run(resumed, 3, ranks=2, backend="threads"):
        assert len(after.ranks) == 3 and after.ranks[0] == before.ranks[0]
        assert after.bytes == 3 * before.bytes


def test_a_communicator_tells_its_traffic() -> None:
    def waits() -> tuple[int, float]:
        world = pdnn.world()
        if world.rank == 1:
            time.sleep(0.05)
        world.all_reduce(np.zeros(10), check=False)
        return world.traffic.bytes, world.traffic.seconds

    waited = 0.0
    while waited < 0.02:  # a busy machine may hold rank 0 up for as long as rank 1
        (first, waited), (second, _) = pdnn.run(waits, ranks=2, backend="threads")
        assert first == second == 80


def test_bytes_of_a_step_are_a_mean_over_ranks_and_epochs() -> None:
    history, waits = History(), dict.fromkeys(("agreement", "messages", "scatter", "broadcast"), 0.0)
    rank = {
        "seconds": 2.0,
        "steps": 5,
        "bytes": 50,
        "shared_bytes": 20,
        "gradient": 1.0,
        "update": 0.5,
        **waits,
    }
    history.ranks = [[rank, rank]] * 3
    words = (
        "a step of a rank: 10 bytes sent, 4 read in shared memory, 75% computing, 0% exposed communication"
    )
    assert of_ranks(history).startswith(words)


def test_a_value_that_comes_and_goes_stays_beside_its_epoch() -> None:
    history = History()
    for values in ({"loss": 2.0}, {"loss": 1.0, "val_loss": 3.0, "seconds": 5.0}, {"loss": 0.5}):
        history.add(values, {})
    np.testing.assert_array_equal(history.history["val_loss"], [np.nan, 3, np.nan])
    pytest.importorskip("matplotlib", reason="draws")
    (axes,) = history.plot().axes  # time is in no panel
    assert [list(line.get_xdata()) for line in axes.lines] == [[1, 2, 3]] * 2


def test_hidden_is_a_share_of_what_was_to_be_agreed_on() -> None:
    history = History()
    for phases in ({"hidden": 3.0, "agreement": 1.0}, {"agreement": 2.0}, {}):
        history.add({"loss": 1.0}, phases)
    assert history.hidden == [0.75, 0.0, 0.0]


def test_sums_by_a_codec_are_told_over_the_epochs_that_have_some() -> None:
    history = History()
    sums = {"sums": 2, "bytes": 20, "bytes_uncompressed": 80, "encode_seconds": 1e-5, "decode_seconds": 3e-5}
    history.compression = [{}, sums | {"error": 0.5}, sums | {"error": 0.25}]
    assert of_codec(history) == (
        "by the codec: 10 bytes a sum instead of 40 (4 times fewer), 5 µs to encode and 15 µs to decode, "
        "25.00% lost"
    )


def test_the_median_step_is_told_beside_its_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    history = History()
    for seconds in (4.0, 2.0, 5.0):
        history.add({"loss": 1.0, "seconds": seconds}, {})
    history.estimate = Estimate(
        "serial", 1, 32, compute=0.25, communication=0.0, waiting=0.0, bytes=0, memory=1, why="", steps=8.0
    )
    model = nn.Sequential(nn.Linear(2, 2))
    sgd = optim.SGD(model.parameters(), lr=0.1)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="serial")
    tell(history, trainer, pdnn.comm.SELF, 0.0)
    assert capsys.readouterr().out.startswith(f"{history.estimate.beside(4 / 8, 0.0)}\n")


def test_epochs_of_a_checkpoint_are_not_told_as_this_runs(capsys: pytest.CaptureFixture[str]) -> None:
    history = History()
    waits = dict.fromkeys(("agreement", "messages", "scatter", "broadcast", "gradient", "update"), 0.0)
    for size in (50, 30):
        rank = {"seconds": 1.0, "steps": 5, "bytes": size, "shared_bytes": 0, **waits}
        history.add({"loss": 1.0, "seconds": 1.0}, {}, ranks=[rank])
    assert of_ranks(history).startswith("a step of a rank: 8 bytes sent")
    history.begun = 1
    assert of_ranks(history).startswith("a step of a rank: 6 bytes sent")
    model = nn.Sequential(nn.Linear(2, 2))
    sgd = optim.SGD(model.parameters(), lr=0.1)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="serial")
    data = np.zeros((4, 2), np.float32), [0, 1, 0, 1]
    trainer.fit(data, epochs=2, verbose=False)
    assert trainer.history.begun == 0
    trainer.history.estimate = Estimate(
        "serial", 1, 32, compute=0.25, communication=0.0, waiting=0.0, bytes=0, memory=1, why="", steps=8.0
    )
    trainer.fit(data, epochs=0, verbose=False)
    assert trainer.history.begun == 2
    tell(trainer.history, trainer, pdnn.comm.SELF, 0.0)
    assert capsys.readouterr().out.startswith("fingerprint: ")


def test_a_number_that_no_float_holds_is_no_history(tmp_path: Path) -> None:
    history = History()
    history.add({"loss": 0.125}, {})
    history.save(tmp_path / "history.json")
    text = (tmp_path / "history.json").read_text()
    assert text.count("0.125") == 1
    (tmp_path / "history.json").write_text(text.replace("0.125", "1" + 400 * "0"))
    with pytest.raises(ValueError, match=r"history\.json"):
        History.load(tmp_path / "history.json")
