"""Transpose: against NumPy and PyTorch, beside layers that turn their samples, under strategies, in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn.data import Dataset

RNG = np.random.default_rng(5)
CODES, LABELS = RNG.integers(0, 11, (41, 7)), RNG.integers(0, 4, 41)


def words(dtype: str = "float64") -> nn.Sequential:
    """A network of words: a row for each, windows along them, the largest of all places."""
    lines = [nn.Transpose(), nn.Conv1d(5, 6, 3), nn.ReLU(), nn.MaxPool1d(5)]
    return nn.Sequential(nn.Embedding(11, 5), *lines, nn.Flatten(), nn.Linear(6, 4), dtype=dtype, seed=3)


@pytest.mark.parametrize("shape", [(3, 8), (1, 8), (8, 1), (2, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_axes_are_exchanged_wherever_it_stands(shape: tuple[int, int], dtype: str) -> None:
    x = RNG.standard_normal((5, *shape)).astype(dtype)
    turned = x.swapaxes(1, 2)
    for layers, want in [
        ([nn.Transpose()], turned),
        ([nn.Transpose(), nn.Transpose()], x),
        ([nn.ReLU(), nn.Transpose()], np.maximum(turned, 0)),
        ([nn.Transpose(), nn.ReLU()], np.maximum(turned, 0)),
        ([nn.Transpose(), nn.Flatten()], turned.reshape(5, -1)),
        ([nn.Tanh(), nn.Transpose(), nn.ReLU(), nn.Transpose()], np.maximum(np.tanh(x), 0)),
    ]:
        model = nn.Sequential(*layers, dtype=dtype)
        np.testing.assert_allclose(model.predict(x), want, rtol=1e-6)
        model.place()
        by_hand: Any = x
        for layer in layers:
            by_hand = layer(by_hand)
        np.testing.assert_allclose(by_hand.numpy(), want, rtol=1e-6)


def test_twenty_steps_of_words_equal_torch() -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch")

    class Lines(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.transpose(1, 2)

    t, model = torch.nn, words()
    after = [t.Conv1d(5, 6, 3), t.ReLU(), t.MaxPool1d(5), t.Flatten(), t.Linear(6, 4)]
    theirs = t.Sequential(t.Embedding(11, 5), Lines(), *after).double()
    state = model.state_dict(format="torch")
    theirs.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    own = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(20):
        optimizer.zero_grad()
        t.functional.cross_entropy(theirs(torch.from_numpy(CODES)), torch.from_numpy(LABELS)).backward()
        optimizer.step()
        model.step(CODES, LABELS, nn.CrossEntropyLoss(), own)
    for name, array in model.state_dict(format="torch").items():
        np.testing.assert_allclose(array, theirs.state_dict()[name].numpy(), rtol=0, atol=1e-12)


def trained(strategy: str, ranks: int) -> Any:
    def job() -> Any:
        model = words()
        adam = optim.Adam(model.parameters(), lr=0.01)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), adam, strategy=strategy)
        return trainer.fit(Dataset(CODES, LABELS), 2, 16, verbose=False).fingerprint, model.flat_parameters

    return job() if ranks == 1 else pdnn.run(job, ranks=ranks, backend="threads")[0]


@pytest.mark.filterwarnings("ignore:Dataset")
def test_every_strategy_trains_words() -> None:
    serial = trained("serial", 1)[1]
    for strategy, ranks in [("team:2", 1), ("pool:2", 1), ("hogwild:1", 1), ("ddp", 2), ("pipeline:2", 2)]:
        found = trained(strategy, ranks)[1]
        np.testing.assert_allclose(found, serial, rtol=0, atol=1e-12, err_msg=strategy)
    same = {
        trained(*layout)[0]
        for layout in [("serial/8", 1), ("team:3/8", 1), ("ddp/8", 3), ("pipeline:2/8", 2)]
    }
    assert len(same) == 1


def test_files(tmp_path: Path) -> None:
    model = words("float32")
    want = model.predict(CODES)
    model.save(tmp_path / "words.safetensors")
    np.testing.assert_array_equal(models.load_model(tmp_path / "words.safetensors").predict(CODES), want)
    model.to_onnx(tmp_path / "words.onnx", (7,))
    again = models.from_onnx(tmp_path / "words.onnx")
    assert repr(again) == repr(model)
    np.testing.assert_array_equal(again.predict(CODES), want)


def test_samples_of_other_shapes_are_refused() -> None:
    model = nn.Sequential(nn.Transpose())
    for shape in [(4, 3), (4, 3, 2, 2)]:
        with pytest.raises(ValueError, match=r"Transpose: input samples are .*this layer takes two axes"):
            model.predict(np.zeros(shape, np.float32))
