"""Strategies: their spellings, what "auto" means, and what a world refuses."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdnn import parallel
from pdnn.nn.targets import core_for
from pdnn.parallel import (
    Average,
    DataParallel,
    Hogwild,
    HogwildProcesses,
    Pool,
    ScatterGather,
    Serial,
    Team,
)


class World:
    rank = 0

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
        "average:end": Average(),
        "average:8": Average(8),
        "average:8:master+team:2": Average(8, by="master", engine=Team(2)),
        "average:end:own-init": Average(same_init=False),
        "hogwild:4": Hogwild(4),
        "hogwild-processes:4": HogwildProcesses(4),
        "scatter-gather": ScatterGather(),
        "scatter-gather:once": ScatterGather(once=True),
    }
    for spec, strategy in table.items():
        assert parallel.parse(spec) == strategy
        assert parallel.parse(str(strategy)) == strategy


@given(st.text("ademprlstogvwinh:/+-0123456789 ", max_size=14))
def test_a_string_is_refused_or_comes_back(text: str) -> None:
    strategy = None
    with contextlib.suppress(ValueError):
        strategy = parallel.parse(text)
    if strategy is not None:
        assert parallel.parse(str(strategy)) == strategy


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
        "auto",
        "average",
        "average:8+ddp",
        "hogwild",
    ],
)
def test_what_is_no_strategy_is_refused_with_what_fits(spec: str) -> None:
    with pytest.raises(ValueError, match=r'expected one of .*"ddp\+team:2"'):
        parallel.parse(spec)


@pytest.mark.parametrize(
    "spec", ["team:0", "pool:0", "pool:2/0", "average:0", "hogwild:0", "hogwild-processes:0"]
)
def test_nobody_works_without_workers(spec: str) -> None:
    with pytest.raises(ValueError, match="expected at least 1"):
        parallel.parse(spec)


def test_auto_takes_the_cores_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDNN_THREADS", "3")
    assert parallel.choose("auto", World(1)) == Team(3)  # type: ignore[arg-type]
    assert parallel.choose("auto", World(2)) == DataParallel(Team(3))  # type: ignore[arg-type]
    monkeypatch.setenv("PDNN_THREADS", "1")
    assert parallel.choose("auto", World(1)) == Serial()  # type: ignore[arg-type]
    assert parallel.choose("auto", World(2)) == DataParallel()  # type: ignore[arg-type]
    monkeypatch.setenv("PDNN_THREADS", "many")
    with pytest.raises(ValueError, match="PDNN_THREADS=many"):
        parallel.choose("auto", World(1))  # type: ignore[arg-type]


def test_ranks_share_the_cores_of_their_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PDNN_THREADS", raising=False)
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2")
    monkeypatch.setattr("pdnn._core.read_cores", lambda: (8, 8, 0.0))
    monkeypatch.setattr("pdnn._core.available_cores", lambda: 8)
    assert parallel.cores_of_rank(World(4)) == 4  # type: ignore[arg-type]
    monkeypatch.setattr("pdnn._core.available_cores", lambda: 1)  # bound to a core each
    assert parallel.cores_of_rank(World(4)) == 1  # type: ignore[arg-type]
    assert parallel.cores_of_rank(World(1)) == 1  # type: ignore[arg-type]
    monkeypatch.setattr("pdnn._core.read_cores", lambda: (8, 8, 2.0))
    monkeypatch.setattr("pdnn._core.available_cores", lambda: 2)
    assert parallel.cores_of_rank(World(4)) == 1  # type: ignore[arg-type]


def test_strategies_of_one_process_are_refused_among_ranks() -> None:
    with pytest.raises(
        ValueError, match=r'"team:2" is for one process, this world has 3 ranks; "ddp\+team:2" fits'
    ):
        parallel.choose("team:2", World(3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="strategy is a int"):
        parallel.choose(3, World(1))  # type: ignore[arg-type]


def test_hogwild_fits_its_world_or_says_what_does() -> None:
    with pytest.raises(ValueError, match=r'"hogwild:2" is for one process.*; "hogwild-processes:3" fits'):
        parallel.choose("hogwild:2", World(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r'is for 2 ranks, this world has 3; "hogwild-processes:3" fits'):
        parallel.choose("hogwild-processes:2", World(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r'is for 2 ranks, this world has 1; "hogwild:2" fits'):
        parallel.choose("hogwild-processes:2", World(1))  # type: ignore[arg-type]
    assert parallel.choose("hogwild-processes:3", World(3)) == HogwildProcesses(3)  # type: ignore[arg-type]


def test_more_threads_than_cores_are_remarked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDNN_THREADS", "1")
    with pytest.warns(UserWarning, match="2 threads share 1 core.*--bind-to none"):
        parallel.choose("ddp+team:2", World(2))  # type: ignore[arg-type]


def test_matmul_is_the_product() -> None:
    rng = np.random.default_rng(0)
    for m, k, n in [(0, 3, 2), (1, 1, 1), (37, 101, 23), (64, 0, 5)]:
        a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
        np.testing.assert_allclose(parallel.matmul(a, b), a @ b, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(parallel.matmul(a, b, threads=3), parallel.matmul(a, b))
        core = core_for("float64")
        for transposed, left, right in (("a", a.T.copy(), b), ("b", a, b.T.copy())):
            product = core.matmul(left, right, transposed=transposed)
            np.testing.assert_allclose(product, a @ b, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="as many columns"):
        parallel.matmul(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(TypeError, match="float32 and float64"):
        parallel.matmul(np.zeros((2, 3), np.float32), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="not C-contiguous"):
        parallel.matmul(np.zeros((3, 2)).T, np.zeros((3, 2)))
