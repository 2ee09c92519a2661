"""Codecs: bytes, bounds, feedback, sums over ranks, and the advice whether one pays."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import fuzz_targets
import pdnn
from pdnn import _core, codec
from pdnn.codec import (
    BFloat16,
    Codec,
    CompressedAllReduce,
    ErrorFeedback,
    Float16,
    Int4,
    Int8,
    OneBit,
    PowerSGD,
    TopK,
    compressed_all_reduce,
    recommend_codec,
)
from pdnn.codec.recommend import coding_seconds
from pdnn.comm import SELF, run_threads
from processes import Completed

Array = NDArray[Any]

ALL: tuple[Codec, ...] = (
    Float16(),
    BFloat16(),
    Int8(),
    Int8(16),
    Int4(),
    Int4(64),
    OneBit(),
    OneBit(64),
    TopK(),
    TopK(0.3),
    PowerSGD(),
    PowerSGD(4),
)
SPECS = (
    "fp16",
    "bf16",
    "int8",
    "int8:16",
    "int4",
    "int4:64",
    "1bit",
    "1bit:64",
    "topk:0.01",
    "topk:0.3",
    "powersgd:2",
    "powersgd:4",
)
SHAPES: tuple[tuple[int, ...], ...] = ((0,), (), (1,), (17,), (1031,), (30, 40), (3, 3, 8, 16), (0, 4))


def normal(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Array:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def test_every_codec_that_is_spelled_is_tested_and_fuzzed(root: Path) -> None:
    spelled = set(re.findall(r'"(\w+)', codec.SPECS))
    targets = (root / "cpp" / "fuzz" / "targets.cpp").read_text()
    (in_cpp,) = re.findall(r"kCodecs\{(.*)\};", targets)
    for specs in (SPECS, fuzz_targets.CODECS, re.findall(r'"(.*?)"', in_cpp)):
        assert {spec.partition(":")[0] for spec in specs} == spelled


def expected_bytes(chosen: Codec, shape: tuple[int, ...], size: int) -> int:
    """As docs/codecs.md has it."""
    n = math.prod(shape)
    match chosen:
        case Int8(block):
            return n + 4 * math.ceil(n / block)
        case Int4(block):
            return math.ceil(n / 2) + 4 * math.ceil(n / block)
        case OneBit(block):
            return math.ceil(n / 8) + 8 * math.ceil(n / block)
        case TopK(fraction):
            return math.ceil(fraction * n) * (4 + size)
        case PowerSGD(rank):
            rows, columns = (n // shape[-1], shape[-1]) if len(shape) > 1 and n > 0 else (n, 1)
            smaller = len(shape) > 1 and rank * (rows + columns) < n
            return size * (rank * (rows + columns) if smaller else n)
    return 2 * n


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("chosen", ALL, ids=str)
def test_bytes_are_known_beforehand(chosen: Codec, dtype: str) -> None:
    for shape in SHAPES:
        array = normal(shape, dtype)
        data = chosen.encode(array)
        assert data.dtype == np.uint8
        assert data.size == chosen.bytes(shape, dtype) == expected_bytes(chosen, shape, array.itemsize)
        back = chosen.decode(data, shape, dtype)
        assert back.shape == shape
        assert back.dtype == dtype
        np.testing.assert_array_equal(chosen.encode(array), data)


@pytest.mark.parametrize("dtype", [np.dtype("float64"), np.float64, "float64", "f8", "double"])
def test_dtypes_are_spelled_as_numpy_does(dtype: Any) -> None:
    array, shape = normal((5, 7), "float64"), (np.int64(5), np.int64(7))
    data = Int8().encode(array)
    assert data.shape == (Int8().bytes(array.shape, array.dtype),)
    np.testing.assert_array_equal(Int8().decode(data, shape, dtype), Int8().decode(data, (5, 7), "float64"))
    assert CompressedAllReduce(SELF, "int8", np.int64(5), dtype)(np.ones(5)).dtype == "float64"
    advice = recommend_codec(1e6, 1e-4, 1000, 2, dtype=dtype, codecs=["int8"])
    assert "1,000 float64 on 2 ranks" in advice.why
    with pytest.raises(TypeError, match="codec: got an array of int32, expected float32 or float64"):
        Int8().decode(data, shape, np.int32)


def test_specs_spell_codecs_and_back() -> None:
    for spec, chosen in zip(SPECS, ALL, strict=True):
        assert codec.parse(spec) == chosen
        assert str(chosen) == spec
    assert codec.parse(Int8(32)) == Int8(32)


SPELLED = r"fp16|bf16|(int8|int4|1bit)(:([1-9]|1[0-9])[2468])?|topk(:0\.[0-9]{1,4})?|powersgd(:[1-9])?"


@given(st.text("bfint1ke8pr6owsgd:.0 -", max_size=12) | st.from_regex(SPELLED, fullmatch=True))
def test_a_string_is_refused_or_comes_back(text: str) -> None:
    parsed = None
    with contextlib.suppress(ValueError):
        parsed = codec.parse(text)
    if parsed is not None:
        assert codec.parse(str(parsed)) == parsed


def test_what_is_no_codec_is_refused() -> None:
    with pytest.raises(ValueError, match='codec "fp8"; expected one of "fp16"'):
        codec.parse("fp8")
    with pytest.raises(TypeError, match="codec is of type int"):
        codec.parse(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="TopK: fraction is 'a', expected a number over 0 and at most 1"):
        TopK("a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Int8: block = -16; expected a multiple of 16 above 0"):
        Int8(-16)
    for wrong in (
        lambda: Int8(17),
        lambda: Int8(2**63 - 64),
        lambda: Int4(8),
        lambda: OneBit(0),
        lambda: TopK(0.0),
        lambda: TopK(1.5),
        lambda: PowerSGD(0),
    ):
        with pytest.raises(ValueError, match="expected"):
            wrong()
    with pytest.raises(TypeError, match="int32, expected float32 or float64"):
        Int8().encode(np.arange(3, dtype=np.int32))
    with pytest.raises(TypeError, match="codec: got an array of 'spam', expected float32 or float64"):
        Int8().decode(np.zeros(7, np.uint8), 3, "spam")
    with pytest.raises(ValueError, match='decode: got 3 bytes for 2 values; as "fp16" they are 4'):
        Float16().decode(np.zeros(3, np.uint8), 2)
    with pytest.raises(TypeError, match=r"decode: data is of type bytes; pass .* np.frombuffer\(data"):
        Float16().decode(bytes(4), 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="codec: shape = -3; expected an integer from 0"):
        Int8().bytes((2, -3))


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(floats, max_size=70))
def test_halves_are_numpys_and_stay_within_their_bounds(numbers: list[float]) -> None:
    array = np.array(numbers, np.float32)
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    np.testing.assert_array_equal(Float16().encode(array).view(np.float16), half)
    np.testing.assert_array_equal(
        Float16().decode(Float16().encode(array), array.size), half.astype(np.float32)
    )
    back = BFloat16().decode(BFloat16().encode(array), array.size)
    small = np.abs(array) < 3.38e38  # the largest ones may round to infinity
    exact = array[small].astype(np.float64)
    assert (np.abs(back[small] - exact) <= np.maximum(2.0**-8 * np.abs(exact), 2.0**-134)).all()


@pytest.mark.parametrize(("chosen", "parts"), [(Int8(32), 254), (Int4(32), 14)])
@given(numbers=st.lists(floats, max_size=70))
def test_integers_stay_within_their_bound(chosen: Codec, parts: int, numbers: list[float]) -> None:
    array = np.array(numbers, np.float32)
    back = chosen.decode(chosen.encode(array), array.size).astype(np.float64)
    for begin in range(0, array.size, 32):
        block = array[begin : begin + 32].astype(np.float64)
        bound = np.abs(block).max() / parts * (1 + 2.0**-15)
        assert (np.abs(back[begin : begin + 32] - block) <= max(bound, 1e-34)).all()


@given(st.lists(floats, max_size=70), st.floats(0.01, 1))
def test_top_k_keeps_the_largest(numbers: list[float], fraction: float) -> None:
    array = np.array(numbers, np.float32)
    back = TopK(fraction).decode(TopK(fraction).encode(array), array.size)
    kept = math.ceil(fraction * array.size)
    order = np.argsort(-np.abs(array), kind="stable")[:kept]
    want = np.zeros_like(array)
    want[order] = array[order]
    np.testing.assert_array_equal(back, want)


@given(st.lists(st.floats(-(2.0**60), 2.0**60, width=32), min_size=1, max_size=70))
def test_one_bit_gives_the_mean_of_a_sign(numbers: list[float]) -> None:
    array = np.array(numbers, np.float32)
    back = OneBit(16).decode(OneBit(16).encode(array), array.size)
    for begin in range(0, array.size, 16):
        block, decoded = array[begin : begin + 16].astype(np.float64), back[begin : begin + 16]
        for sign in (False, True):
            chosen = np.signbit(block) == sign
            if chosen.any():
                np.testing.assert_allclose(decoded[chosen], block[chosen].mean(), rtol=1e-5, atol=1e-44)


def test_power_sgd_is_a_projection() -> None:
    low = normal((50, 2), "float64") @ normal((2, 40), "float64", 1)
    np.testing.assert_allclose(
        PowerSGD(2).decode(PowerSGD(2).encode(low), low.shape, "float64"), low, atol=1e-10
    )
    full = normal((50, 40), "float64")
    data = PowerSGD(4).encode(full)
    p, q = data.view(np.float64)[:200].reshape(4, 50), data.view(np.float64)[200:].reshape(4, 40)
    np.testing.assert_allclose(p @ p.T, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(q, p @ full, atol=1e-10)
    lost = np.linalg.norm(full - PowerSGD(4).decode(data, full.shape, "float64")) ** 2
    assert lost == pytest.approx(np.linalg.norm(full) ** 2 - np.linalg.norm(q) ** 2)


@pytest.mark.parametrize("chosen", ALL, ids=str)
def test_what_is_decoded_is_what_was_given_less_the_residual(chosen: Codec) -> None:
    shape = (30, 40)
    feedback = ErrorFeedback(chosen)
    given_so_far, decoded = np.zeros(shape), np.zeros(shape)
    for step in range(10):
        array = normal(shape, "float64", step)
        given_so_far += array
        decoded += feedback.decode(feedback.encode(array), shape, "float64")
    np.testing.assert_allclose(decoded + feedback.residual, given_so_far, atol=1e-9)
    with pytest.raises(ValueError, match=r"got a \(3,\) array of float32, it remembers"):
        feedback.encode(np.zeros(3, np.float32))


@pytest.mark.parametrize("chosen", [OneBit(64), TopK(0.05), PowerSGD(1)], ids=str)
def test_sums_follow_with_feedback_and_not_without(chosen: Codec) -> None:
    shape = (30, 40)
    lasting = 0.3 * normal(shape, "float64", 99)
    feedback = ErrorFeedback(chosen)
    whole, fed, alone = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for step in range(100):
        array = lasting + normal(shape, "float64", step)
        whole += array
        fed += feedback.decode(feedback.encode(array), shape, "float64")
        alone += chosen.decode(chosen.encode(array), shape, "float64")
    follows, strays = np.linalg.norm(fed - whole), np.linalg.norm(alone - whole)
    assert follows < 0.4 * strays


@pytest.mark.parametrize("chosen", [Int8(), TopK(0.05), PowerSGD(1)], ids=str)
def test_what_several_threads_give_one_object_comes_one_after_another(chosen: Codec) -> None:
    """Otherwise one of them overwrites what another has just remembered."""
    shape, rounds = (60, 500), 40
    core = _core.float32.ErrorFeedback(chosen.spec, math.prod(shape), [shape])
    value = np.random.default_rng(3).standard_normal(shape).astype(np.float32)

    def encode() -> Array:
        received = np.zeros(shape)
        for _ in range(rounds):
            out, decoded = np.empty(core.bytes(value.size), np.uint8), np.empty_like(value)
            core.encode(value, out)
            plain = _core.float32.Codec(chosen.spec, value.size, [shape])
            plain.decode(out, decoded)
            received += decoded
        return received

    with ThreadPoolExecutor(2) as pool:
        received = sum(each.result(60) for each in [pool.submit(encode) for _ in range(2)])
    given = 2 * rounds * value.astype(np.float64)
    np.testing.assert_allclose(received + core.residual.reshape(shape), given, atol=1e-3 * rounds)


@pytest.mark.long
@pytest.mark.parametrize("isa", _core.supported_isas())
def test_instruction_sets_agree(isa: str, run_python: Callable[..., Completed]) -> None:
    code = """
import hashlib
import numpy as np
from pdnn import codec
array = np.random.default_rng(0).standard_normal(5003).astype("f4")
for spec in ("fp16", "bf16", "int8", "int4", "1bit", "topk:0.05"):
    chosen = codec.parse(spec)
    data = chosen.encode(array)
    print(hashlib.sha256(data.tobytes() + chosen.decode(data, 5003).tobytes()).hexdigest())
"""
    outputs = [run_python(["-c", code], env={"PDNN_ISA": name}).stdout for name in dict.fromkeys((isa, "v2"))]
    assert len(set(outputs)) == 1


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize(
    ("dtype", "large"), [("float32", np.nan), ("float32", np.inf), ("float32", 3e37), ("float64", 1e160)]
)
def test_power_sgd_hides_nothing_that_is_too_large(rank: int, dtype: str, large: float) -> None:
    """It decoded rows of zeros, or nothing but zeros."""
    array = normal((40, 30), dtype)
    if np.isnan(large) or np.isinf(large):
        array[5, 7] = large
    else:
        array *= large
    chosen = PowerSGD(rank)
    assert np.isnan(chosen.decode(chosen.encode(array), array.shape, dtype)).all()


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("chosen", ALL, ids=str)
def test_sums_over_ranks(chosen: Codec, ranks: int) -> None:
    shape = (30, 41)

    def work() -> tuple[Array, codec.CompressionStats, int]:
        comm = pdnn.world()
        reduce = CompressedAllReduce(comm, chosen, shape, "float64", op="mean", measure=True)
        total = CompressedAllReduce(comm, chosen, shape, "float64")
        for step in range(3):
            array = reduce(normal(shape, "float64", 10 * step + comm.rank))
            added = total(normal(shape, "float64", 10 * step + comm.rank))
        np.testing.assert_allclose(added, comm.size * array, rtol=1e-12)
        return array, reduce.stats, reduce.bytes_sent

    results = run_threads(work, ranks)
    want = np.mean([normal(shape, "float64", 20 + rank) for rank in range(ranks)], axis=0)
    for array, stats, sent in results:
        np.testing.assert_array_equal(array, results[0][0])
        assert stats.sums == 3
        assert stats.bytes == 3 * sent
        assert stats.bytes_uncompressed == 3 * (2 * (ranks - 1) * 30 * 41 * 8 // ranks)
    if ranks == 1:
        np.testing.assert_array_equal(results[0][0], want)
    elif str(chosen) in ("fp16", "bf16", "int8", "int8:16"):
        np.testing.assert_allclose(results[0][0], want, atol=0.06)
    else:
        assert 0.1 < results[0][1].error < 1
        array = results[0][0]
        assert np.vdot(array, want) > 0.1 * np.linalg.norm(array) * np.linalg.norm(want)


def test_a_sum_once_and_of_arrays_laid_one_after_another() -> None:
    def work() -> Array:
        comm = pdnn.world()
        array = normal((1000,), seed=comm.rank)
        once = compressed_all_reduce(comm, array.copy(), "fp16")
        np.testing.assert_allclose(once, sum(normal((1000,), seed=rank) for rank in range(3)), atol=0.01)
        reduce = CompressedAllReduce(comm, PowerSGD(2), [(20, 40), (200,)])
        assert reduce.bytes_sent == 2 * 2 * 4 * (2 * 60 + 200) // 3
        return reduce(array)

    array = run_threads(work, 3)[0]
    want = sum(normal((1000,), seed=rank)[800:] for rank in range(3))
    np.testing.assert_allclose(array[800:], want, rtol=1e-5, atol=1e-6)  # no matrix: exact


def test_a_sum_once_is_made_in_the_form_that_is_asked_for() -> None:
    def work() -> None:
        comm = pdnn.world()
        array = normal((1000,), seed=comm.rank)
        gathered = compressed_all_reduce(comm, array.copy(), "int4", form="gather")
        shared = compressed_all_reduce(comm, array.copy(), "int4", form="shares")
        want = CompressedAllReduce(comm, "int4", 1000, form="gather")(array.copy())
        np.testing.assert_array_equal(gathered, want)
        want = CompressedAllReduce(comm, "int4", 1000, form="shares")(array.copy())
        np.testing.assert_array_equal(shared, want)
        assert (gathered != shared).any()

    run_threads(work, 3)


def test_ranks_that_differ_and_wrong_arrays_are_refused() -> None:
    def work() -> None:
        comm = pdnn.world()
        CompressedAllReduce(comm, "int8" if comm.rank == 0 else "bf16", 10)

    with pytest.raises(ValueError, match="rank 1 has codec bf16, rank 0 has int8"):
        run_threads(work, 2)

    def differ() -> None:  # each rank hears of the other's, also of one that there is not
        comm = pdnn.world()
        with pytest.raises(ValueError, match="rank 1 has op max, rank 0 has sum"):
            CompressedAllReduce(comm, "int8", 10, op="max" if comm.rank else "sum")  # type: ignore[arg-type]

    run_threads(differ, 2)

    def parts() -> None:  # as many elements, but other matrices
        shapes = [(4, 6), (2, 3)] if pdnn.world().rank == 0 else [(6, 4), (2, 3)]
        CompressedAllReduce(pdnn.world(), "powersgd:2", shapes)

    with pytest.raises(ValueError, match=r"rank 1 has shape \[\[6, 4\], \[2, 3\]\], rank 0 has \[\[4, 6\]"):
        run_threads(parts, 2)
    with pytest.raises(
        ValueError, match=r"got a \(9,\) array of float32, it was made for \(10,\) of float32"
    ):
        CompressedAllReduce(SELF, "int8", 10)(np.zeros(9, np.float32))
    with pytest.raises(ValueError, match=r"array of float64, it was made for \(10,\) of float32"):
        CompressedAllReduce(SELF, "int8", 10)(np.zeros(10))
    for call in (CompressedAllReduce(SELF, "int8", 2), lambda x: compressed_all_reduce(SELF, x, "int8")):
        with pytest.raises(TypeError, match="got a list, expected an ndarray for the sum"):
            call([1.0, 2.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='op is "max"'):
        CompressedAllReduce(SELF, "int8", 10, op="max")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='form is "ring"'):
        CompressedAllReduce(SELF, "int8", 10, form="ring")  # type: ignore[arg-type]


def test_a_sum_is_started_and_finished_in_turn() -> None:
    def work() -> Array:
        comm = pdnn.world()
        reduce, once = CompressedAllReduce(comm, "fp16", 10), CompressedAllReduce(comm, "fp16", 10)
        with pytest.raises(ValueError, match=r"nothing is under way; call start\(\) first"):
            reduce.finish()
        array = np.arange(10, dtype=np.float32) + comm.rank
        reduce.start(array)
        with pytest.raises(ValueError, match=r"under way already; call finish\(\) first"):
            reduce.start(array.copy())
        while not reduce.test():
            pass
        assert reduce.finish() is array
        np.testing.assert_array_equal(array, once(np.arange(10, dtype=np.float32) + comm.rank))
        return array

    np.testing.assert_array_equal(run_threads(work, 3)[0], 3 * np.arange(10) + 3)


def test_masked_entries_are_refused() -> None:
    masked = np.ma.masked_array(np.ones(10, np.float32), mask=[1] + 9 * [0])
    for take in (Int8().encode, ErrorFeedback("int8").encode, CompressedAllReduce(SELF, "int8", 10)):
        with pytest.raises(ValueError, match="array has masked entries"):
            take(masked)


def test_feedback_is_of_arrays_that_are_alike() -> None:
    feedback = ErrorFeedback("int8")
    feedback.encode(np.ones((2, 3), np.float32))
    for other in (np.ones(6, np.float32), np.ones((2, 3))):
        with pytest.raises(ValueError, match=r"remembers the error of \(2, 3\) arrays of float32; keep one"):
            feedback.encode(other)


@pytest.mark.parametrize("every", [True, 2])
def test_errors_are_measured_where_it_is_asked_for(every: bool | int) -> None:
    def work() -> None:
        comm = pdnn.world()
        plain, measured = (CompressedAllReduce(comm, "int8", 1000, measure=each) for each in (False, every))
        for reduce in (plain, measured):
            reduce(normal((1000,), seed=comm.rank).astype(np.float32))
        assert math.isnan(plain.stats.error) and 0 < measured.stats.error < 0.2

    run_threads(work, 2)


def test_feedback_is_for_those_that_need_it_unless_told() -> None:
    assert CompressedAllReduce(SELF, "1bit", 10).error_feedback
    assert not CompressedAllReduce(SELF, "int8", 10).error_feedback
    assert CompressedAllReduce(SELF, ErrorFeedback("int8"), 10).error_feedback
    assert not CompressedAllReduce(SELF, "1bit", 10, error_feedback=False).error_feedback


def test_advice_is_to_compress_on_slow_links_only() -> None:
    slow = recommend_codec(bandwidth=1e6, latency=1e-4, elements=203_530, ranks=2)
    assert slow.codec == TopK(0.01)
    assert slow.why.startswith('"topk:0.01" takes')
    fast = recommend_codec(bandwidth=1e12, latency=1e-6, elements=203_530, ranks=4)
    assert fast.codec is None
    assert fast.form == "all_reduce"
    assert "does not pay" in fast.why
    assert recommend_codec(1e6, 1e-4, 1000, 1).codec is None
    asked = recommend_codec(1e6, 0, 100_000, 8, codecs=["int8"])
    assert (asked.codec, asked.form) == (Int8(), "shares")
    shares = asked.choices[2]
    assert shares.bytes == 2 * 7 * Int8().bytes(100_000) // 8
    assert shares.transfer == shares.bytes / 1e6
    for wrong in (
        {"bandwidth": 0},
        {"latency": -1},
        {"elements": 0},
        {"ranks": 0},
        {"codecs": ["powersgd:2"]},
    ):
        with pytest.raises(ValueError, match="recommend_codec"):
            recommend_codec(**({"bandwidth": 1e9, "latency": 0, "elements": 9, "ranks": 2} | wrong))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="recommend_codec: bandwidth is '1 Gbit/s', expected bytes a second"):
        recommend_codec("1 Gbit/s", 0, 9, 2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"recommend_codec: ranks is 2\.5, expected an integer"):
        recommend_codec(1e9, 0, 9, 2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("latency", "best"), [(0.04, None), (0.01, BFloat16())])
def test_little_time_saved_is_not_worth_what_a_codec_loses(
    latency: float, best: Codec | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The array takes 4 ms beside the latency, with bf16 2 and with int8 about 1."""
    monkeypatch.setattr("pdnn.codec.recommend.coding_seconds", lambda *_: (0.0, 0.0))
    assert recommend_codec(1e9, latency, 1_000_000, 2, codecs=["bf16", "int8"]).codec == best


def test_a_part_of_long_arrays_is_measured_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(1000))
    monkeypatch.setattr("pdnn.codec.recommend.perf_counter", lambda: next(seconds))
    monkeypatch.setattr("pdnn.codec.recommend.MOST_MEASURED", 10)
    assert coding_seconds(Int8(), 40, "float32") == (4, 4)


def test_advice_counts_what_every_rank_codes_and_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdnn.codec.recommend.coding_seconds", lambda *_: (3.0, 40.0))
    advice = recommend_codec(1e9, 0, 1000, 4, dtype="float64", codecs=["int8"])
    assert [choice.form for choice in advice.choices] == ["all_reduce", "gather", "shares"]
    assert [choice.computing for choice in advice.choices] == [0, 3 + 4 * 40, 3 + 7 / 4 * 40]
    assert advice.choices[0].bytes == 2 * 3 * 8000 // 4


def test_a_shape_of_more_elements_than_a_number_counts_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"shape \(1099511627776, 1099511627776\) has 2\*\*63 elements or more"
    ):
        Int8().bytes((2**40, 2**40))
