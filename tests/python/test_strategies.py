"""Strategies: their spellings, what "auto" means, and what a world refuses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pdnn
from pdnn import exercises, parallel, strategies
from pdnn.core import core_for
from pdnn.strategies import (
    DataParallel,
    ElasticAveraging,
    Hogwild,
    HogwildProcesses,
    ModelAveraging,
    Pipeline,
    Pool,
    ScatterGather,
    Serial,
    Strategy,
    Team,
    TensorParallel,
)
from processes import Completed


def test_strategies_are_those_of_the_last_import_after_one_that_was_interrupted(
    run_python: Callable[..., Completed],
) -> None:
    code = """
import sys, pdnn.strategies as s
del sys.modules["pdnn.strategies.engines"]  # as a Ctrl-C within it leaves it
import pdnn.strategies.engines as again
print(type(s.parse("serial")) is again.Serial, s.specs().count('"serial"'))
"""
    assert run_python(["-c", code]).stdout == "True 1\n"


class World:
    rank = 0
    spares = 0

    def __init__(self, size: int) -> None:
        self.size = size


def test_specs_spell_strategies_and_back() -> None:
    table = {
        "serial": Serial(),
        "team:2": Team(2),
        "pool:5": Pool(5, 8),
        "pool:5/25": Pool(5, 25),
        "ddp": DataParallel(),
        "ddp+team:2": DataParallel(Team(2)),
        "ddp+pool:2/4": DataParallel(Pool(2, 4)),
        "average:end": ModelAveraging(),
        "average:8": ModelAveraging(8),
        "average:8:master+team:2": ModelAveraging(8, by="master", engine=Team(2)),
        "average:end:own-init": ModelAveraging(same_init=False),
        "elastic-average:10": ElasticAveraging(10),
        "elastic-average:4:0.5+team:2": ElasticAveraging(4, 0.5, Team(2)),
        "elastic-average:4:1": ElasticAveraging(4, 1),
        "elastic-average:1:1e-05": ElasticAveraging(1, 1e-5),
        "hogwild:4": Hogwild(4),
        "hogwild-processes:4": HogwildProcesses(4),
        "scatter-gather": ScatterGather(),
        "scatter-gather:once": ScatterGather(once=True),
    }
    for spec, strategy in table.items():
        assert strategies.parse(spec) == strategy
        assert strategies.parse(str(strategy)) == strategy


@given(
    st.text("ademprlstogvwinh:/+-0123456789 ", max_size=14)
    | st.from_regex(r"elastic-average:[1-9]:[.e0-9-]{1,5}", fullmatch=True)
)
def test_a_string_is_refused_or_comes_back(text: str) -> None:
    strategy = None
    with contextlib.suppress(ValueError):
        strategy = strategies.parse(text)
    if strategy is not None:
        assert strategies.parse(str(strategy)) == strategy


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "teams",
        "team",
        "team:x",
        "ddp+ddp",
        "ddp+scatter-gather",
        "pool:2/",
        "average",
        "average:8+ddp",
        "elastic-average",
        "elastic-average:end",
        "elastic-average:8:",
        "elastic-average:8:-0.5",
        "hogwild",
    ],
)
def test_what_is_no_strategy_is_refused_with_what_fits(spec: str) -> None:
    with pytest.raises(ValueError, match=r'expected one of .*"ddp\+team:2"'):
        strategies.parse(spec)


@pytest.mark.parametrize("word", ["auto", "fastest"])
def test_what_is_chosen_later_is_no_strategy_yet(word: str) -> None:
    with pytest.raises(ValueError, match=f'strategy "{word}" is chosen when `fit` begins'):
        strategies.parse(word)


@pytest.mark.parametrize(
    "spec",
    ["team:0", "pool:0", "pool:2/0", "average:0", "elastic-average:0", "hogwild:0", "hogwild-processes:0"]
    + ["serial/0", "ddp/0", "ddp/00:sum", "ddp+team:2/0", "pipeline:2/0"]
    + [f"{word}{10**20}" for word in ("serial/", "team:", "team:2/", "pool:", "pool:2/", "hogwild:", "ddp/")]
    + [f"{word}{2**63}" for word in ("average:", "elastic-average:", "tp:", "pipeline:", "pipeline:2/")],
)
def test_nobody_works_without_workers_and_the_core_can_count_them(spec: str) -> None:
    with pytest.raises(ValueError, match=r"expected an integer from [01]"):
        strategies.parse(spec)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Team(2.5), "Team: threads is 2.5, expected an integer from 1"),  # type: ignore[arg-type]
        (lambda: Team(True), "Team: threads is True, expected"),
        (lambda: Serial("8"), "Serial: leaves is '8', expected an integer from 0"),  # type: ignore[arg-type]
        (lambda: Pool(2, 4.0), "Pool: parallel_batches is 4.0"),  # type: ignore[arg-type]
        (lambda: Hogwild("2"), "Hogwild: workers is '2'"),  # type: ignore[arg-type]
        (lambda: ModelAveraging(2.5), "ModelAveraging: every is 2.5"),  # type: ignore[arg-type]
        (lambda: DataParallel(bucket_bytes=1e6), "bucket_bytes is 1000000.0"),  # type: ignore[arg-type]
        (lambda: Pipeline(2, "8"), "Pipeline: micro_batches is '8'"),  # type: ignore[arg-type]
        (lambda: DataParallel("team:2"), "DataParallel: engine is 'team:2'"),  # type: ignore[arg-type]
        (lambda: TensorParallel(2, "team:2"), "TensorParallel: engine is 'team:2'"),  # type: ignore[arg-type]
        (lambda: ModelAveraging(engine=None), "ModelAveraging: engine is None"),  # type: ignore[arg-type]
    ],
)
def test_a_strategy_names_the_argument(make: Callable[[], Strategy], words: str) -> None:
    """When it is made: it goes to the core in `fit`, which names its own types."""
    with pytest.raises(TypeError, match=words):
        make()


def test_auto_takes_the_cores_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDNN_THREADS", "3")
    assert strategies.choose("auto", World(1)) == Team(3)  # type: ignore[arg-type]
    assert strategies.choose("auto", World(2)) == DataParallel(Team(3))  # type: ignore[arg-type]
    monkeypatch.setenv("PDNN_THREADS", "1")
    assert strategies.choose("auto", World(1)) == Serial()  # type: ignore[arg-type]
    assert strategies.choose("auto", World(2)) == DataParallel()  # type: ignore[arg-type]
    for wrong in ("many", "0", "1" + 20 * "0"):
        monkeypatch.setenv("PDNN_THREADS", wrong)
        with pytest.raises(ValueError, match=f"PDNN_THREADS={wrong}; expected a number of threads, from 1"):
            strategies.choose("auto", World(1))  # type: ignore[arg-type]


def test_ranks_share_the_cores_of_their_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PDNN_THREADS", raising=False)
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
    monkeypatch.setattr("pdnn._core.read_cores", lambda: (8, 8, 0.0))
    monkeypatch.setattr("pdnn._core.available_cores", lambda: 8)
    assert pdnn.comm.cores_of_rank(World(4)) == 4  # type: ignore[arg-type]
    monkeypatch.setattr("pdnn._core.available_cores", lambda: 1)  # bound to a core each
    assert pdnn.comm.cores_of_rank(World(4)) == 1  # type: ignore[arg-type]
    assert pdnn.comm.cores_of_rank(World(1)) == 1  # type: ignore[arg-type]
    monkeypatch.setattr("pdnn._core.read_cores", lambda: (8, 8, 2.0))
    monkeypatch.setattr("pdnn._core.available_cores", lambda: 2)
    assert pdnn.comm.cores_of_rank(World(4)) == 1  # type: ignore[arg-type]
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "two")
    with pytest.raises(ValueError, match="OMPI_COMM_WORLD_LOCAL_SIZE=two; expected a number of ranks"):
        pdnn.comm.cores_of_rank(World(4))  # type: ignore[arg-type]


def test_threads_share_cores_whatever_started_their_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PDNN_THREADS", raising=False)
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1")
    monkeypatch.setattr("pdnn._core.read_cores", lambda: (8, 8, 0.0))
    monkeypatch.setattr("pdnn._core.available_cores", lambda: 8)
    assert pdnn.comm.run_threads(lambda: pdnn.comm.cores_of_rank(pdnn.world()), 2) == [4, 4]


def test_strategies_of_one_process_are_refused_among_ranks() -> None:
    with pytest.raises(
        ValueError, match=r'"team:2" is for one process, this world has 3 ranks; "ddp\+team:2" fits'
    ):
        strategies.choose("team:2", World(3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="strategy is of type int"):
        strategies.choose(3, World(1))  # type: ignore[arg-type]


def test_hogwild_fits_its_world_or_says_what_does() -> None:
    with pytest.raises(ValueError, match=r'"hogwild:2" is for one process.*; "hogwild-processes:3" fits'):
        strategies.choose("hogwild:2", World(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r'is for 2 ranks, this world has 3; "hogwild-processes:3" fits'):
        strategies.choose("hogwild-processes:2", World(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r'is for 2 ranks, this world has 1; "hogwild:2" fits'):
        strategies.choose("hogwild-processes:2", World(1))  # type: ignore[arg-type]
    assert strategies.choose("hogwild-processes:3", World(3)) == HogwildProcesses(3)  # type: ignore[arg-type]


def test_more_threads_than_cores_are_remarked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDNN_THREADS", "1")
    for mask, hint in [(1, r"; mpiexec bound it, add --bind-to none"), (8, "")]:
        monkeypatch.setattr("pdnn._core.read_cores", lambda mask=mask: (8, mask, 0.0))
        with pytest.warns(UserWarning, match=rf"2 threads share 1 core\(s\) of this process{hint}$"):
            strategies.choose("ddp+team:2", World(2))  # type: ignore[arg-type]


def test_strategies_are_found_under_their_former_names() -> None:
    assert parallel.Average is ModelAveraging
    assert parallel.check_parameter_closeness is pdnn.ddp.check_parameter_closeness
    assert all(getattr(parallel, name) is getattr(strategies, name) for name in strategies.__all__)
    assert pdnn.parallel.Pool(5, parallel_batches=25) == strategies.parse("pool:5/25")


def test_what_ranks_must_have_alike_leaves_the_engine_out() -> None:
    assert strategies.parse("ddp:sum+team:2").identity() == "ddp:sum"
    assert strategies.parse("pipeline:2 x ddp+team:2").identity() == "pipeline:2 x ddp"
    assert DataParallel(bucket_bytes=8, codec="int8").identity() == "ddp:int8 with bucket_bytes=8"
    assert DataParallel(shared_memory=False).identity() == "ddp with shared_memory=False"
    assert strategies.Pipeline(2, cut=(1,), engine=Team(2)).identity() == "pipeline:2 with cut=(1,)"
    assert strategies.parse("hogwild:2").identity() == "hogwild:2"


def test_every_strategy_shows_strings_that_spell_it() -> None:
    kinds = strategies.base.KINDS
    assert {type(strategies.parse(example)) for kind in kinds for example in kind.examples} == set(kinds)
    for kind in kinds:
        for example in kind.examples:
            assert type(strategies.parse(example)) is kind, example
            assert f'"{example}"' in strategies.specs()


def test_matmul_is_the_product() -> None:
    rng = np.random.default_rng(0)
    for m, k, n in [(0, 3, 2), (1, 1, 1), (37, 101, 23), (64, 0, 5)]:
        a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
        np.testing.assert_allclose(exercises.matmul(a, b), a @ b, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(exercises.matmul(a, b, threads=3), exercises.matmul(a, b))
        core = core_for("float64")
        for transposed, left, right in (("a", a.T.copy(), b), ("b", a, b.T.copy())):
            product = core.matmul(left, right, transposed=transposed)
            np.testing.assert_allclose(product, a @ b, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="as many columns"):
        exercises.matmul(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(TypeError, match="float32 and float64"):
        exercises.matmul(np.zeros((2, 3), np.float32), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="not C-contiguous"):
        exercises.matmul(np.zeros((3, 2)).T, np.zeros((3, 2)))
    with pytest.raises(TypeError, match="b is of type list; pass a NumPy array"):
        exercises.matmul(np.zeros((2, 3)), [[0.0]] * 3)
    with pytest.raises(ValueError, match="threads = 0; expected an integer from 1"):
        exercises.matmul(np.zeros((2, 3)), np.zeros((3, 2)), threads=0)


def test_pools_of_several_ranks_are_crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDNN_THREADS", "1")
    with pytest.warns(UserWarning, match=r"2 threads share 1 core\(s\) of this process"):
        strategies.choose("average:2+pool:2", SimpleNamespace(size=2, spares=0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("ddp:2", 'ddp takes all ranks; write "ddp", or "ddp\\+team:2" for threads on each'),
        ("tema:2", 'strategy "tema:2", which may mean "team:2"; expected one of'),
        ("xyz", 'strategy "xyz"; expected one of'),
    ],
)
def test_what_a_misspelt_strategy_may_mean_is_said(spec: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        strategies.parse(spec)


def test_ranks_that_do_not_fit_are_told_what_does() -> None:
    assert str(strategies.parse("tp:3").misfit(2)).endswith('this world has 2; start 3, or take "tp:2"')
    assert str(strategies.parse("pipeline:3/8").misfit(2)).endswith('start 3, or take "pipeline:2/8"')
