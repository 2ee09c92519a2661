"""Eigen as a peer: its products are NumPy's, its steps are pdnn's, and without it its rows are left out.

To compile it takes long.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


@pytest.fixture
def eigen(benchmarks: None) -> ModuleType:
    import eigen

    try:
        eigen.command()
    except eigen.MissingError as missing:
        pytest.skip(str(missing))
    return eigen


@pytest.mark.long
def test_its_products_are_numpys(eigen: ModuleType) -> None:
    rng = np.random.default_rng(0)
    for m, k, n in [(1, 1, 1), (5, 7, 3), (33, 129, 65), (250, 40, 25), (3, 0, 2), (0, 4, 2)]:
        a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
        want, at, bt = a @ b, np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
        got = [
            eigen.matmul(a, b),
            eigen.matmul(at.T, bt.T),
            eigen.product_into(np.empty((m, n)), at, b, "a")(),
            eigen.product_into(np.empty((m, n)), a, bt, "b")(),
        ]
        for product in got:
            np.testing.assert_allclose(product, want, rtol=1e-12, atol=1e-12)


@pytest.mark.long
def test_matrices_that_do_not_fit_are_refused(eigen: ModuleType) -> None:
    a, b = np.ones((2, 3)), np.ones((3, 4))
    for wrong in [(a, a), (a, b.astype("float32")), (a, b[:, ::2])]:
        with pytest.raises(ValueError, match=r"expected C-ordered matrices of one type, \(m, k\)"):
            eigen.product_into(np.empty((2, 4)), *wrong)


@pytest.mark.long
@pytest.mark.parametrize(("activation", "bias"), [("sigmoid", True), ("tanh", False)])
def test_its_steps_are_pdnns(eigen: ModuleType, activation: str, bias: bool) -> None:
    """The mean losses of two passes, so after updates of every layer."""
    import peers

    network = peers.Network("small", (13, 9, 7, 5), activation, bias, batch=6, dtype="float64", steps=4)
    ours, theirs = peers.pdnn_trainer(network, "serial", False), peers.eigen_steps(network)
    for _ in range(2):
        assert theirs()[1] == pytest.approx(ours()[1], rel=1e-12)


@pytest.mark.long
def test_it_is_a_side_of_both_programs(eigen: ModuleType) -> None:
    import kernels
    import step

    assert "Eigen" in [side.name for side in step.sides(step.W0, 1, ["eigen"])]
    for case in kernels.product_cases("float64", True, ["eigen"])[2:]:  # every pass of one layer
        assert [side.name for side in case.sides] == ["pdnn", "NumPy", "Eigen"]
        ours, theirs = (side.make(*side.arguments)()[1] for side in (case.sides[0], case.sides[2]))
        assert theirs == pytest.approx(ours, rel=1e-12)


@pytest.mark.usefixtures("benchmarks")
def test_without_a_compiler_it_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import peers

    monkeypatch.setenv("CXX", "no-such-compiler")
    assert peers.found(["numpy", "eigen"]) == ["numpy"]
    assert capsys.readouterr().out == (
        "Eigen: no C++ compiler no-such-compiler on the PATH; set CXX. It is left out\n"
    )
