"""Parts that a program brings along, on ranks as threads: they train as the core's own, and fail in words."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pdnn
import plugged_parts
from pdnn import codec, data, ddp, nn, optim, strategies
from pdnn.estimate.formulas import coded


def on_threads(function: Callable[[], Any], ranks: int) -> list[Any]:
    return pdnn.run(function, ranks=ranks, backend="threads")


# ---- an all-reduce


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_an_all_reduce_of_ones_own_trains_as_one_process(ranks: int) -> None:
    on_threads(plugged_parts.check_all_reduce, ranks)


def test_ranks_that_are_started_use_what_was_registered_before() -> None:
    with pdnn.comm.register("all_reduce", plugged_parts.ring, name="circle") as registration:
        assert on_threads(lambda: pdnn.world().core.all_reduce_name, 2) == ["circle", "circle"]
        assert on_threads(lambda: on_threads(lambda: pdnn.world().core.all_reduce_name, 1), 1) == [["circle"]]
    registration.remove()
    assert on_threads(lambda: pdnn.world().core.all_reduce_name, 2) == [None, None]


def test_a_group_split_off_meanwhile_ends_with_the_registration() -> None:
    def rank() -> tuple[int, float]:
        calls = 0

        def count(comm: Any, array: np.ndarray) -> None:
            nonlocal calls
            calls += 1
            comm.all_reduce(array, check=False)

        with pdnn.comm.register("all_reduce", count, comm=pdnn.world()):
            part = pdnn.world().split(0)
            part.all_reduce(np.ones(1))
            assert calls == 1
        total = float(part.all_reduce(np.ones(1))[0])
        return calls, total

    assert pdnn.comm.run_threads(rank, 2) == [(1, 2.0), (1, 2.0)]


def test_auto_measures_no_codec_beside_an_all_reduce_of_ones_own() -> None:
    with pdnn.comm.register("all_reduce", plugged_parts.ring):
        trainers = on_threads(lambda: plugged_parts.train("auto")[1], 2)
    for trainer in trainers:  # of a network so small, whose exchange does not pay
        assert str(trainer.strategy) == "ddp" and not trainer.choice.alternatives.pays
        assert "1 rank" in trainer.choice.alternatives.instead


def test_an_error_in_an_all_reduce_ends_the_training_with_its_traceback() -> None:
    def fails(comm: pdnn.comm.Communicator, array: plugged_parts.Array) -> None:
        if comm.rank == 1:
            raise ZeroDivisionError("in the ring")
        comm.recv(1, check=False, out=array)

    caught = pytest.raises(ZeroDivisionError, match="in the ring")
    with pdnn.comm.register("all_reduce", fails), caught as error:
        on_threads(lambda: plugged_parts.train("ddp"), 2)
    assert "fails" in [frame.name for frame in traceback.extract_tb(error.value.__traceback__)]


def test_an_all_reduce_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(ValueError, match='operation "broadcast"; expected all_reduce'):
        pdnn.comm.register("broadcast", plugged_parts.ring)
    with pytest.raises(TypeError, match=r"got int, expected a function of \(communicator, array\)"):
        pdnn.comm.register("all_reduce", 3)  # type: ignore[arg-type]

    again = pytest.raises(ValueError, match='all_reduce is "ring" already; remove')
    with pdnn.comm.register("all_reduce", plugged_parts.ring), again:
        pdnn.comm.register("all_reduce", plugged_parts.ring)

    def new(comm: pdnn.comm.Communicator, array: plugged_parts.Array) -> plugged_parts.Array:
        return array * comm.size

    refused = pytest.raises(TypeError, match='all_reduce "new" returned ndarray; it must fill the array')
    with pdnn.comm.register("all_reduce", new), refused:
        on_threads(lambda: plugged_parts.train("ddp"), 2)

    def differs() -> None:
        if pdnn.world().rank == 1:
            pdnn.comm.register("all_reduce", plugged_parts.ring)
        plugged_parts.train("ddp")

    with pytest.raises(ValueError, match="rank 1 has all_reduce ring, rank 0 has None"):
        on_threads(differs, 2)

    def differs_by_hand() -> None:
        if pdnn.world().rank == 1:
            pdnn.comm.register("all_reduce", plugged_parts.ring)
        pdnn.world().all_reduce(np.ones(3))

    with pytest.raises(ValueError, match=r"op=sum, by=ring\), rank 0 all_reduce\(\(3,\) float64, op=sum\)"):
        on_threads(differs_by_hand, 2)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (strategies.DataParallel(shared_memory=True), "ranks that share memory do not call"),
        (strategies.DataParallel(codec="int8"), "codes are not added up by an all_reduce"),
        (strategies.ModelAveraging(2, codec="int8"), 'codec "int8": all_reduce is "ring", but codes are not'),
    ],
)
def test_what_would_not_call_the_all_reduce_is_refused(strategy: strategies.Strategy, words: str) -> None:
    with pdnn.comm.register("all_reduce", plugged_parts.ring), pytest.raises(ValueError, match=words):
        on_threads(lambda: plugged_parts.train(strategy), 2)


def test_a_distributed_optimizer_with_a_codec_is_refused_too() -> None:
    def make() -> None:
        model = nn.Sequential(nn.Linear(4, 3), seed=1)
        ddp.DistributedOptimizer(optim.SGD(model.parameters(), lr=0.1), compression="fp16")

    with (
        pdnn.comm.register("all_reduce", plugged_parts.ring),
        pytest.raises(ValueError, match="codes are not"),
    ):
        on_threads(make, 2)


# ---- a codec


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_codec_in_python_takes_the_place_of_one_of_the_core(ranks: int) -> None:
    on_threads(plugged_parts.check_codec, ranks)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_codec_in_python_encodes_arrays(dtype: str) -> None:
    signs = plugged_parts.Signs()
    a = np.array([[1, -3, 2], [-2, 4, 0]], dtype)
    assert str(signs) == "Signs" and signs.bytes(a.shape, dtype) == len(signs.encode(a)) == 5
    assert signs.decode(signs.encode(a), a.shape, dtype).tolist() == [[2, -2, 2], [-2, 2, 2]]
    fed_back = codec.ErrorFeedback(signs)
    fed_back.encode(a)
    assert fed_back.residual.tolist() == [[-1, -1, 0], [0, 2, -2]]
    assert codec.parse(signs) is signs


def test_a_sum_of_which_a_codec_fails_is_the_last_of_its_object() -> None:
    class Positive(codec.CustomCodec):
        def encode_values(self, values: plugged_parts.Array) -> bytes:
            if (values < 0).any():
                raise ArithmeticError("a negative number")
            return values.tobytes()

        def decode_values(self, data: plugged_parts.Array, count: int) -> plugged_parts.Array:
            return data.view("f4")

    def rank() -> Any:
        comm, ones = pdnn.world(), np.ones(3, np.float32)
        reduce = codec.CompressedAllReduce(comm, Positive(), 3, error_feedback=True)
        with pytest.raises(ArithmeticError, match="a negative number"):
            reduce(-ones)
        for call in (lambda: reduce(ones), lambda: reduce.start(ones), reduce.finish, reduce.test):
            with pytest.raises(ValueError, match=r"all-reduce: an earlier sum has failed.*make a new object"):
                call()
        return codec.CompressedAllReduce(comm, Positive(), 3)(ones)

    for found in on_threads(rank, 2):
        assert found.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("encoded", "decoded", "error", "words"),
    [
        (lambda v: v[v != 0].tobytes(), None, ValueError, "gave 24 bytes for 3 values, and 0 for as many"),
        (lambda v: v, None, TypeError, "gave an array of float64, expected bytes"),
        (lambda v: v.reshape(1, -1).view("u1"), None, TypeError, "expected bytes or a flat array of uint8"),
        (lambda v: None, None, TypeError, "gave a NoneType, expected bytes"),
        (
            lambda v: v.tobytes(),
            lambda d, n: np.ones(n - 1),
            ValueError,
            r"gave a \(2,\) array of float64, ex",
        ),
        (lambda v: v.tobytes(), lambda d, n: None, ValueError, r"gave a \(\) array of object"),
        (lambda v: v.tobytes(), lambda d, n: np.ones((n, 1)), ValueError, r"gave a \(3, 1\) array"),
        (lambda v: v.tobytes(), lambda d, n: np.ones(n, complex), ValueError, "array of complex128"),
    ],
)
def test_a_codec_that_breaks_its_promise_is_told_so(
    encoded: Any, decoded: Any, error: type[Exception], words: str
) -> None:
    class Broken(codec.CustomCodec):
        def encode_values(self, values: plugged_parts.Array) -> Any:
            return encoded(values)

        def decode_values(self, data: plugged_parts.Array, count: int) -> Any:
            return decoded(data, count)

    broken = Broken()
    with pytest.raises(error, match=f'codec "Broken": .*{words}'):
        broken.decode(broken.encode(np.ones(3)), 3, "float64")


def test_a_code_may_lie_apart_and_each_kind_has_a_name() -> None:
    class Apart(plugged_parts.Raw):
        def encode_values(self, values: plugged_parts.Array) -> Any:
            return np.repeat(np.frombuffer(super().encode_values(values), np.uint8), 2)[::2]

    a = np.arange(6.0).reshape(2, 3)
    assert Apart().decode(Apart().encode(a), a.shape, "float64").tolist() == a.tolist()
    assert plugged_parts.Raw.name == "raw" and Apart.name == "Apart"


def test_a_codec_is_judged_by_what_it_is_and_not_by_its_name() -> None:
    class Raw(plugged_parts.Raw):
        name = "powersgd-free"

    advice = codec.recommend_codec(1e6, 0, 100, 2, dtype="float64", codecs=[Raw()])
    assert advice.choices[1].bytes == 800
    assert coded(Raw(), 100, 8).bytes == 800


@pytest.mark.parametrize(
    "strategy_of",
    [lambda own: strategies.DataParallel(codec=own), lambda own: strategies.Pipeline(2, codec=own)],
)
def test_an_error_in_a_codec_ends_the_training_with_its_traceback(strategy_of: Any) -> None:
    class Late(plugged_parts.Raw):
        calls = 0

        def encode_values(self, values: plugged_parts.Array) -> plugged_parts.Array:
            self.calls += 1
            if self.calls > 6 and pdnn.world().rank == 1:
                raise ZeroDivisionError("in the codec")
            return super().encode_values(values)

    with pytest.raises(ZeroDivisionError, match="in the codec") as caught:
        on_threads(lambda: plugged_parts.train(strategy_of(Late())), 2)
    assert "encode_values" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_ranks_compare_their_codecs() -> None:
    with pytest.raises(ValueError, match="rank 1 has strategy ddp:raw, rank 0 has ddp:Signs"):
        on_threads(
            lambda: plugged_parts.train(
                strategies.DataParallel(codec=[plugged_parts.Signs, plugged_parts.Raw][pdnn.world().rank]())
            ),
            2,
        )


# ---- a schedule

F, B = plugged_parts.FORWARD, plugged_parts.BACKWARD
DONE = [(F, 0), (F, 1), (B, 0), (B, 1)]


def test_a_schedule_of_ones_own_trains_as_one_process() -> None:
    on_threads(plugged_parts.check_schedule, 2)
    pipeline = strategies.Pipeline(2, schedule=plugged_parts.SCHEDULE)
    assert str(pipeline) == "pipeline:2/3:custom" and pipeline.plan().in_flight == [3, 2]
    assert pipeline.plan().bubble == pytest.approx(1 / 4)  # (p - 1) / (m + p - 1), as of the named ones
    assert "(('forward', 0)" in pipeline.identity()


@pytest.mark.parametrize(
    ("passes", "words"),
    [
        (
            [[(F, 0), (B, 0), (F, 1), (B, 1)], DONE],
            "stage 0 waits to go backward with micro-batch 0 until st",
        ),
        ([[(F, 0), (F, 0), (B, 0)], DONE], "stage 0 goes forward with micro-batch 0 twice"),
        ([DONE, [(F, 0), (F, 1), (B, 0)]], "stage 1 never goes backward with micro-batch 1"),
        ([DONE, [(F, 0), (B, 0)]], "stage 1 never goes forward with micro-batch 1"),
        ([DONE, [(F, 1), (F, 0), (B, 0), (B, 1)]], "stage 1 goes forward with micro-batch 1 before micro-b"),
        ([DONE, [(B, 0), (F, 0), (F, 1), (B, 1)]], "stage 1 goes backward with micro-batch 0 before it has"),
        ([["F0"], DONE], "pass 0 of rank 0 is 'F0'; expected such as"),
        ([[("forward",)], DONE], r"pass 0 of rank 0 is \('forward',\); expected such as"),
        ([[("forward", 0, 0, 7)], DONE], r"pass 0 of rank 0 is \('forward', 0, 0, 7\); expected such as"),
        ([[("recv_x", 0)], DONE], r"pass 0 of rank 0 is \('recv_x', 0\); expected such as"),
        ([[(F, -1)], DONE], "micro-batch -1 of chunk 0; expected numbers from 0"),
        ([[(F, 0, 2**31 - 1), (B, 0)], DONE], "chunk 2147483647 among 2 passes of a rank"),
        ([], "no ranks"),
        ([[], []], "no micro-batches"),
        ([DONE], "a schedule of 1 ranks for stages=2"),
    ],
)
def test_schedules_that_cannot_run_are_refused_by_stage_and_micro_batch(passes: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        strategies.Pipeline(2, schedule=passes)


def test_a_schedule_has_its_number_of_micro_batches() -> None:
    with pytest.raises(ValueError, match="a schedule of 2 micro-batches, for micro_batches=4"):
        strategies.Pipeline(2, 4, [DONE, DONE])


def test_a_rank_may_end_with_the_first_of_its_stages() -> None:
    forward = [("forward", 0, chunk) for chunk in (0, 1)]
    plan = strategies.schedule_of_passes([[*forward, ("backward", 0, 1), ("backward", 0, 0)]])
    assert plan.chunks == 2


def test_a_schedule_of_ones_own_may_have_several_stages_a_rank() -> None:
    named = strategies.schedule("interleaved", 2, 3)
    passes = [
        [(each.what, each.micro, each.chunk) for each in program if each.what in (F, B)]
        for program in named.programs
    ]
    pipeline = strategies.Pipeline(2, schedule=passes)
    assert pipeline.chunks == 2 and pipeline.plan().programs == named.programs


# ---- a sampler


def test_a_sampler_of_ones_own_gives_the_rows_of_a_loader() -> None:
    class EveryThird:
        def __iter__(self) -> Iterator[int]:
            return iter(range(0, 10, 3))

        def __len__(self) -> int:
            return 4

    loader = data.DataLoader(data.Dataset(np.arange(10.0)[:, None], np.arange(10)), 2, sampler=EveryThird())
    assert [y.tolist() for _, y in loader] == [[0, 3], [6, 9]]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("length", "gave"), [(4, "more than 4"), (8, "7")])
def test_a_sampler_of_another_length_than_it_gives_rows_is_told_so(
    length: int, gave: str, drop_last: bool
) -> None:
    class Rows(list[int]):
        def __len__(self) -> int:
            return length

    dataset = data.Dataset(np.arange(10.0)[:, None], np.arange(10))
    loader = data.DataLoader(dataset, 2, drop_last=drop_last, sampler=Rows(range(7)))
    with pytest.raises(
        ValueError, match=f"Rows: gave {gave} rows in an epoch, but its length is {length}; its"
    ):
        list(loader)
