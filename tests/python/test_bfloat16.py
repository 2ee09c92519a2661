"""Models whose products are of bfloat16 factors: their arithmetic, and every strategy with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import pdnn
from pdnn import _core, models, nn, optim
from pdnn.data import Dataset

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

ROUNDING = 2**-7 + 2**-16  # of a product, by its two factors; docs/bfloat16.md derives it
RNG = np.random.default_rng(0)
ROWS, BATCH, EPOCHS = 67, 29, 3
DATA = Dataset(RNG.random((ROWS, 13), np.float32), RNG.integers(0, 4, ROWS))
IMAGES = Dataset(RNG.random((ROWS, 3, 6, 6), np.float32), RNG.integers(0, 4, ROWS))


def rounded(values: Floats) -> Doubles:
    """The nearest bfloat16 numbers, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    upper = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return upper.view(np.float32).astype(np.float64)


def mlp(dtype: str = "bfloat16") -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(13, 70), nn.Tanh(), nn.Dropout(0.2), nn.Linear(70, 9), nn.Sigmoid(), nn.Linear(9, 4),
        dtype=dtype, seed=2,
    )  # fmt: skip


def cnn(dtype: str = "bfloat16") -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5, sync=True), nn.ReLU(),
        nn.Residual(nn.Sequential(nn.Conv2d(5, 5, 3, padding=1), nn.ReLU())),
        nn.Conv2d(5, 6, 3, stride=2), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(6, 4),
        dtype=dtype, seed=2,
    )  # fmt: skip


def narrow(dtype: str = "bfloat16") -> nn.Sequential:
    """One kernel each way where a single thread has a few rows; products elsewhere."""
    return models.mlp([13, 20, 24, 4], activation="tanh", dtype=dtype, seed=2)


NETWORKS = {"mlp": (mlp, DATA), "cnn": (cnn, IMAGES), "narrow": (narrow, DATA)}


def train(
    strategy: str, dtype: str = "bfloat16", epochs: int = EPOCHS, network: str = "mlp"
) -> tuple[str, Floats, list[float]]:
    make, data = NETWORKS[network]
    model = make(dtype)
    trainer = pdnn.Trainer(
        model, nn.CrossEntropyLoss(), optim.Adam(model.parameters(), lr=0.01), strategy=strategy
    )
    history = trainer.fit(data, epochs, BATCH, verbose=False)
    assert history.fingerprint is not None
    return history.fingerprint, model.flat_parameters.copy(), list(history.history["loss"])


def test_products_round_their_factors_and_nothing_else() -> None:
    x, dy = (RNG.standard_normal((21, width)).astype(np.float32) for width in (37, 19))
    layer = nn.Linear(37, 19)
    model = nn.Sequential(layer, dtype="bfloat16", seed=1)
    w, b = (np.asarray(part.data, np.float64) for part in model.parameters())
    y = model(x)
    (y * dy).sum().backward()
    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(y.numpy(), rounded(x) @ rounded(w.astype(np.float32)) + b, **close)
    np.testing.assert_allclose(layer.weight.grad, rounded(x).T @ rounded(dy), **close)
    assert layer.bias is not None
    np.testing.assert_allclose(layer.bias.grad, dy.astype(np.float64).sum(0), **close)
    # Against the product of what was not rounded, each is off by its share of the sum of absolute products.
    bound = ROUNDING * (np.abs(x).astype(np.float64) @ np.abs(w)) + 1e-5
    off = np.abs(y.numpy() - (x.astype(np.float64) @ w + b))
    assert (off <= bound).all() and off.max() > 1e-4


@pytest.mark.parametrize(
    ("channels", "outputs", "stride", "padding"), [(1, 1, 1, 0), (1, 5, 1, 0), (3, 17, 2, 1), (8, 4, 1, 2)]
)
def test_convolutions_round_their_factors_and_nothing_else(
    channels: int, outputs: int, stride: int, padding: int
) -> None:
    layer = nn.Conv2d(channels, outputs, 3, stride=stride, padding=padding)
    model = nn.Sequential(layer, dtype="bfloat16", seed=1)
    x = RNG.standard_normal((5, channels, 7, 7)).astype(np.float32)
    y = model(x)
    dy = RNG.standard_normal(y.shape).astype(np.float32)
    (y * dy).sum().backward()
    w, b = (np.asarray(part.data) for part in model.parameters())
    exact = nn.Conv2d(channels, outputs, 3, stride=stride, padding=padding)
    twin = nn.Sequential(exact, dtype="float64", seed=1)
    twin.load_state_dict({"0.weight": rounded(w), "0.bias": b.astype(np.float64)})
    want = twin(rounded(x))
    (want * rounded(dy)).sum().backward()
    close = {"rtol": 1e-5, "atol": 1e-4}
    np.testing.assert_allclose(y.numpy(), want.numpy(), **close)
    np.testing.assert_allclose(layer.weight.grad, exact.weight.grad, **close)
    assert layer.bias is not None
    np.testing.assert_allclose(layer.bias.grad, dy.astype(np.float64).sum((0, 2, 3)), **close)


def test_its_arrays_are_float32(tmp_path: Path) -> None:
    model = mlp()
    assert model.dtype == "bfloat16"
    assert model.flat_parameters.dtype == model.flat_gradients.dtype == np.float32
    assert model.fingerprint() == mlp("float32").fingerprint()  # the same initial values
    x = DATA.x[:5]
    static, eager = model.predict(x), model.eval()(x).numpy()
    assert static.dtype == np.float32 and np.array_equal(static, eager)
    assert not np.array_equal(static, mlp("float32").predict(x))
    model.save(tmp_path / "model.safetensors")
    again = models.load_model(tmp_path / "model.safetensors")
    assert again.dtype == "bfloat16" and np.array_equal(again.predict(x), static)
    with pytest.raises(TypeError, match=r"x is float64, this model is float32; pass x.astype\('float32'\)"):
        model(x.astype(np.float64))
    with pytest.raises(ValueError, match="its parts are bfloat16 and float64; a model has one dtype"):
        nn.Sequential(mlp(), nn.Sequential(nn.Linear(4, 2), dtype="float64")).place()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("spec", ["team:3", "ddp", "ddp+team:2"])
def test_teams_have_the_bits_of_serial(spec: str, network: str) -> None:
    assert train(spec, network=network)[0] == train("serial", network=network)[0]


@pytest.mark.parametrize(
    ("spec", "ranks"),
    [
        ("pool:2/3", 1), ("hogwild:2", 1), ("ddp", 3), ("ddp+team:2", 2), ("pipeline:2/3", 2), ("tp:2", 2),
        ("tp:2 x ddp", 4), ("scatter-gather", 3), ("average:1", 2), ("ddp:int8", 2),
    ],
)  # fmt: skip
def test_every_strategy_trains_as_serial_does(spec: str, ranks: int) -> None:
    epochs, tolerance = (20, 0.3) if "hogwild" in spec else (EPOCHS, 0.05)  # its updates depend on time
    want, wide = train("serial"), train("serial", "float32")
    found = pdnn.run(train, spec, epochs=epochs, ranks=ranks, backend="threads")
    assert all(each[0] == found[0][0] for each in found)
    if not any(name in spec for name in ("hogwild", "average", "int8")):  # the others do to rounding
        away, apart = (np.linalg.norm(other - want[1]) for other in (found[0][1], wide[1]))
        assert away < 0.01 * apart
    assert np.allclose(found[0][2][0], want[2][0], rtol=tolerance)
    assert found[0][2][-1] < found[0][2][0]


@pytest.mark.parametrize(
    ("spec", "ranks"),
    [("team:2/8", 1), ("pool:2/8", 1), ("ddp/8", 3), ("ddp+team:2/8", 2), ("pipeline:2/8", 2)],
)
def test_leaves_have_the_same_bits_on_any_layout(spec: str, ranks: int) -> None:
    for network in NETWORKS if "pipeline" not in spec else ["mlp"]:
        found = pdnn.run(train, spec, network=network, ranks=ranks, backend="threads")
        assert {each[0] for each in found} == {train("serial/8", network=network)[0]}


def test_a_checkpoint_goes_on_bit_for_bit(tmp_path: Path) -> None:
    def trainer() -> pdnn.Trainer:
        model = mlp()
        return pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.Adam(model.parameters(), lr=0.01))

    first = trainer()
    first.fit(DATA, 2, BATCH, verbose=False, checkpoint=tmp_path / "run")
    second = trainer()
    history = second.fit(DATA, 3, BATCH, verbose=False, checkpoint=tmp_path / "run", resume=True)
    assert history.fingerprint == train("serial")[0]


def test_it_learns_as_float32_does() -> None:
    whole, few = (train("serial", dtype, 40) for dtype in ("float32", "bfloat16"))
    assert abs(few[2][-1] - whole[2][-1]) < 0.02 * whole[2][0]
    assert few[0] != whole[0]


def printed(isa: str, code: str) -> str:
    """What this prints on an instruction set; this file is t."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import test_bfloat16 as t; " + code
    return subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        env={**os.environ, "PDNN_ISA": isa}, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip


@pytest.mark.parametrize("isa", _core.supported_isas())
def test_every_instruction_set_trains_to_the_same_bound(isa: str) -> None:
    code = (
        "model = t.mlp(); x = t.DATA.x; y = model.predict(x); "
        "exact = t.mlp('float32').predict(x); print(float(abs(y - exact).max()), t.train('serial')[2][-1])"
    )
    off, loss = map(float, printed(isa, code).split())
    assert 0 < off < 0.02
    assert abs(loss - train("serial")[2][-1]) < 0.01


def test_narrow_networks_have_the_bits_of_float_kernels_on_rounded_factors() -> None:
    fingerprints = {
        isa: printed(isa, "print(t.train('serial', network='narrow')[0])")
        for isa in _core.supported_isas()
        if isa != "v2"  # whose products and sums are apart
    }
    assert len({*fingerprints.values()}) <= 1, fingerprints


def test_the_command_line_trains_in_bfloat16(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    done = subprocess.run(
        [sys.executable, "-m", "pdnn", "train", "--dtype", "bfloat16", "--epochs", "1", "--save", str(file)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert models.load_model(file).dtype == "bfloat16"
