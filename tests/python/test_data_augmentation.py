"""Promises of PadCropFlip: a cut of the padded image, drawn for (seed, epoch, image) whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.comm import run_threads
from pdnn.data import DataLoader, Dataset, PadCropFlip

Array = npt.NDArray[Any]
N = 40


def images(dtype: type = np.uint8, shape: tuple[int, ...] = (3, 6, 5)) -> Dataset:
    x = np.random.default_rng(0).integers(1, 256, (N, *shape)).astype(dtype)
    return Dataset(x, np.arange(N), scale=1 / 255, shift=-0.25)


def epoch_of(data: Any, augment: PadCropFlip | None, epoch: int = 0, **options: Any) -> dict[int, Array]:
    """Each image as a loader gives it, by its label."""
    loader = DataLoader(data, augment=augment, **({"batch_size": 7} | options))
    loader.set_epoch(epoch)
    return {int(label): sample for x, y in loader for sample, label in zip(x, y, strict=True)}


def cuts(image: Array, padding: int, flip: bool) -> list[Array]:
    """All that may become of an image, from the definition."""
    height, width = image.shape[1:]
    padded = np.pad(image, [(0, 0), (padding, padding), (padding, padding)])
    places = [(y, x) for y in range(2 * padding + 1) for x in range(2 * padding + 1)]
    found = [padded[:, y : y + height, x : x + width] for y, x in places]
    return found + [cut[:, :, ::-1] for cut in found] if flip else found


@pytest.mark.parametrize("raw", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("padding", "flip"), [(0, False), (0, True), (2, False), (2, True), (7, True)])
def test_an_image_becomes_one_of_its_cuts(raw: type, dtype: str, padding: int, flip: bool) -> None:
    data = images(raw)
    for label, sample in epoch_of(data, PadCropFlip(padding, flip), dtype=dtype).items():
        assert sample.dtype == dtype and sample.shape == (3, 6, 5)
        made = (np.array(cuts(data.x[label].astype(float), padding, flip)) / 255 - 0.25).astype(dtype)
        assert np.abs(made - sample).max(axis=(1, 2, 3)).min() < 1e-6


def test_every_cut_is_as_likely_as_any_other() -> None:
    data = Dataset(np.arange(1, 10, dtype=np.uint8).reshape(1, 1, 3, 3).repeat(6000, 0), np.arange(6000))
    every = [cut.tobytes() for cut in cuts(data.x[0], 1, True)]
    seen = [sample.astype(np.uint8).tobytes() for sample in epoch_of(data, PadCropFlip(1)).values()]
    counts = np.array([seen.count(cut) for cut in every])
    assert len(set(every)) == 18 and counts.sum() == 6000
    assert np.abs(counts - 6000 / 18).max() < 5 * np.sqrt(6000 / 18)


def same(one: dict[int, Array], other: dict[int, Array]) -> bool:
    return all(np.array_equal(one[label], other[label]) for label in one.keys() & other.keys())


def test_what_happens_depends_on_seed_epoch_and_image_only() -> None:
    data, how = images(), PadCropFlip(2)
    first = epoch_of(data, how)
    assert same(first, epoch_of(data, how, shuffle=True, batch_size=3))
    assert same(first, epoch_of(data[np.arange(N)[::-3]], how))
    assert same(first, epoch_of(data, how, sampler=[5, 3, 3, 39]))
    assert not same(first, epoch_of(data, how, epoch=1))
    assert not same(first, epoch_of(data, how, seed=1))
    assert same(epoch_of(data, how, epoch=4, seed=2), epoch_of(data, how, epoch=4, seed=2, shuffle=True))


def test_a_loader_takes_a_new_cut_every_epoch() -> None:
    loader = DataLoader(images(), N, augment=PadCropFlip(2))
    (first, _), (second, _) = next(iter(loader)), next(iter(loader))
    assert not np.array_equal(first, second)
    loader.set_epoch(0)
    np.testing.assert_array_equal(next(iter(loader))[0], first)


# ---- in a Trainer


def trained(
    data: Dataset | None = None,
    *,
    strategy: str = "serial",
    augment: PadCropFlip | None = None,
    epochs: int = 2,
    checkpoint: Any = None,
    shuffle: bool = True,
) -> Array:
    model = nn.Sequential(nn.Flatten(), nn.Linear(90, N), seed=1, dtype="float64")
    trainer = pdnn.Trainer(
        model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1), strategy=strategy, seed=5
    )
    options = {"verbose": False, "augment": augment, "shuffle": shuffle}
    trainer.fit(data or images(), epochs, 16, checkpoint=checkpoint, resume=checkpoint is not None, **options)
    return model.flat_parameters.copy()


def test_a_trainer_sees_what_a_loader_gives() -> None:
    """One step of all rows: its gradient is that of the loader's images."""
    loader = DataLoader(images(), N, augment=PadCropFlip(2), seed=5, dtype="float64")
    for epoch in range(2):
        loader.set_epoch(epoch)
        x, y = next(iter(loader))
        model = nn.Sequential(nn.Flatten(), nn.Linear(90, N), seed=1, dtype="float64")
        trainer = pdnn.Trainer(
            model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1), strategy="serial", seed=5
        )
        trainer.epoch = epoch
        before = model.flat_parameters.copy()
        _, gradient = model.gradient(x, y, nn.CrossEntropyLoss())
        trainer.fit(images(), 1, N, shuffle=False, augment=PadCropFlip(2), verbose=False)
        np.testing.assert_allclose(model.flat_parameters, before - 0.1 * gradient, atol=1e-15)


def test_threads_and_ranks_see_the_same_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDNN_THREADS", "3")
    how = PadCropFlip(2)
    serial = trained(augment=how)
    assert not np.allclose(serial, trained(), atol=1e-6)
    assert not np.allclose(serial, trained(augment=PadCropFlip(2, flip=False)), atol=1e-6)
    np.testing.assert_array_equal(trained(augment=how, strategy="team:3"), serial)
    np.testing.assert_allclose(trained(augment=how, strategy="pool:2/5"), serial, atol=1e-13)
    for strategy in ("ddp", "scatter-gather"):
        for mine in run_threads(partial(trained, augment=how, strategy=strategy), 3):
            np.testing.assert_allclose(mine, serial, atol=1e-13)


def test_resumed_training_sees_the_cuts_of_its_epoch(tmp_path: Any) -> None:
    how = PadCropFlip(2)
    trained(augment=how, epochs=1, checkpoint=tmp_path)
    np.testing.assert_array_equal(
        trained(augment=how, epochs=3, checkpoint=tmp_path), trained(augment=how, epochs=3)
    )


def test_evaluation_changes_no_image() -> None:
    data = images()
    model = nn.Sequential(nn.Flatten(), nn.Linear(90, N), seed=1)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=1e-30))
    before = trainer.evaluate(data)
    history = trainer.fit(data, 1, 16, validation=data, augment=PadCropFlip(2), verbose=False)
    assert trainer.evaluate(data) == before
    assert history.history["val_loss"] == [before["loss"]] != history.history["loss"]


def test_ranks_with_another_augmentation_are_told() -> None:
    def mine() -> None:
        trained(augment=PadCropFlip(pdnn.world().rank), strategy="ddp")

    with pytest.raises(ValueError, match=r"rank 1 has augmentation PadCropFlip\(padding=1"):
        run_threads(mine, 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PadCropFlip(-1), "PadCropFlip: padding = -1; expected an integer from 0"),
        (
            lambda: DataLoader(images(shape=(6,)), augment=PadCropFlip()),
            r"samples are 6, expected images: \(channels, height, width\)",
        ),
        (lambda: trained(images(shape=(90,)), augment=PadCropFlip()), "samples are 90, expected images"),
        (
            lambda: trained(images()[:16], strategy="scatter-gather:once", augment=PadCropFlip()),
            'sends the rows once, so they cannot be augmented anew each epoch; "scatter-gather" can',
        ),
    ],
)
def test_mistakes_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
