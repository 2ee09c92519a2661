"""Checkpoints: resumed equals uninterrupted bit for bit, whenever the process died."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
import processes
from pdnn import models, nn, optim
from pdnn.callbacks import Callback, CSVLogger, EarlyStopping, ModelCheckpoint
from pdnn.checkpoint import FILE, Content, folder
from pdnn.comm import run_threads
from pdnn.progress import Progress

X = np.random.default_rng(0).integers(0, 256, (60, 10), dtype=np.uint8)
Y = np.arange(60) % 3


def make(seed: int = 4, momentum: float = 0.9, strategy: str = "serial", **options: object) -> pdnn.Trainer:
    hidden = nn.Linear(10, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 3)
    model = nn.Sequential(*hidden, dtype="float64", seed=1)
    sgd = optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, seed=seed, strategy=strategy, **options)  # type: ignore[arg-type]


def fit(trainer: pdnn.Trainer, epochs: int, batch_size: int = 7, **options: object) -> None:
    data = pdnn.data.Dataset(X, Y, scale=1 / 255)
    trainer.fit(data, epochs, batch_size, verbose=False, **options)  # type: ignore[arg-type]


def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path: Path) -> None:
    whole, first, second = make(), make(), make(seed=99)
    fit(whole, 5)
    fit(first, 2, checkpoint=tmp_path)
    second.model.flat_parameters[:] = 0
    fit(second, 5, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(second.model.flat_parameters, whole.model.flat_parameters)
    assert second.history.history["loss"] == whole.history.history["loss"]
    assert (second.epoch, second.step, second.seed) == (5, 45, 4)


def test_ranks_resume_what_one_of_them_still_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = folder.safetensors.write

    def slowly(*arguments: object) -> None:
        time.sleep(0.2)
        write(*arguments)  # type: ignore[arg-type]

    class Ends(Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            raise OSError("an error on every rank")

    def job() -> pdnn.Trainer:
        with pytest.raises(OSError, match="every rank"):
            fit(make(strategy="ddp/8"), 2, checkpoint=tmp_path, every_steps=4, callbacks=[Ends()])
        trainer = make(strategy="ddp/8")
        fit(trainer, 2, checkpoint=tmp_path, resume=True)
        return trainer

    whole = make(strategy="serial/8")
    fit(whole, 2)
    monkeypatch.setattr(folder.safetensors, "write", slowly)
    for trainer in run_threads(job, 2):
        np.testing.assert_array_equal(trainer.model.flat_parameters, whole.model.flat_parameters)
        assert trainer.history.history["loss"] == whole.history.history["loss"]


@pytest.mark.parametrize("resumes", [0, 1])
@pytest.mark.parametrize("strategy", ["ddp", "auto"])
def test_ranks_of_which_one_resumes_are_told(resumes: int, strategy: str, tmp_path: Path) -> None:
    def job() -> None:
        fit(make(strategy=strategy), 1, checkpoint=tmp_path, resume=pdnn.world().rank == resumes)

    with pytest.raises(ValueError, match=r"fit: rank 1 has resume (None|True), rank 0 has (None|True);"):
        run_threads(job, 2)


def test_resuming_without_a_checkpoint_starts_anew(tmp_path: Path) -> None:
    trainer = make()
    fit(trainer, 2, checkpoint=tmp_path / "new", resume=True)
    assert trainer.epoch == 2
    fit(trainer, 2, checkpoint=tmp_path / "new", resume=True)  # has been trained already
    assert trainer.epoch == 2


def test_every_says_how_often(tmp_path: Path) -> None:
    trainer, seen = make(), []

    class Look(pdnn.callbacks.Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            twin = make()
            if (tmp_path / FILE).exists():
                twin.load(tmp_path / FILE)
            seen.append(twin.epoch)

    fit(trainer, 5, checkpoint=tmp_path, every=2, callbacks=[Look()])
    assert seen == [0, 0, 2, 2, 4]
    twin = make()
    twin.load(tmp_path / FILE)
    assert twin.epoch == 5


def test_what_does_not_belong_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    trainer = make()
    fit(trainer, 1, checkpoint=tmp_path)
    path = tmp_path / FILE
    with pytest.raises(ValueError, match="momentum"):
        make(momentum=0.5).load(path)
    with pytest.raises(ValueError, match=r"written with batch size 7, this run has 8"):
        fit(make(), 2, 8, checkpoint=tmp_path, resume=True)
    other = models.mlp([10, 4, 3], dtype="float64")
    sgd = optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(ValueError, match="this model needs"):
        pdnn.Trainer(other, nn.CrossEntropyLoss(), sgd).load(path)
    trainer.model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="no checkpoint"):
        make().load(tmp_path / "model")
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        fresh = make()
        before = fresh.model.flat_parameters.copy()
        with pytest.raises(ValueError, match=FILE):
            fit(fresh, 2, checkpoint=tmp_path, resume=True)
        np.testing.assert_array_equal(fresh.model.flat_parameters, before)


# ---- within epochs


def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Enough for epochs that are looked at while they last."""
    return np.resize(X, (count, 10)), np.resize(Y, count)


@pytest.mark.parametrize(
    ("strategy", "ranks"), [("serial", 1), ("average:50", 2), ("hogwild:1", 1), ("tp:2", 2)]
)
def test_checkpoints_as_often_as_possible_change_nothing(strategy: str, ranks: int, tmp_path: Path) -> None:
    def train(count: int, **options: object) -> tuple[object, ...]:
        trainer = make(strategy=strategy)
        trainer.fit(rows(count), 2, 7, verbose=False, **options)  # type: ignore[arg-type]
        return trainer.model.flat_parameters.copy(), trainer.history.history["loss"], trainer.step

    for count in (
        6_000,
        20_000,
        60_000,
        200_000,
        600_000,
    ):  # until an epoch lasts long enough for a checkpoint within
        want = pdnn.run(train, count, ranks=ranks, backend="threads")
        folder = tmp_path / str(count)
        options = {"checkpoint": folder, "every_seconds": 0, "keep": 3}
        got = pdnn.run(train, count, ranks=ranks, backend="threads", **options)
        for (model, loss, step), (whole, whole_loss, whole_step) in zip(got, want, strict=True):
            np.testing.assert_array_equal(model, whole)
            assert (loss, step) == (whole_loss, whole_step)
        older = Content.read(folder / "checkpoint.1.safetensors")
        if older.state["position"] is not None:
            break
    assert older.state["position"] is not None and 0 < older.state["step"] < want[0][2]


def test_the_last_ones_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def steps() -> dict[str, int]:
        return {path.name: Content.read(path).state["step"] for path in sorted(tmp_path.iterdir())}

    fit(make(), 3, checkpoint=tmp_path, every_steps=4, every=9, keep=3)  # 9 steps an epoch
    assert steps() == {FILE: 27, "checkpoint.1.safetensors": 24, "checkpoint.2.safetensors": 20}
    fit(make(), 4, checkpoint=tmp_path, every_steps=5, every=9, keep=2, resume=True)
    assert steps() == {FILE: 36, "checkpoint.1.safetensors": 35}
    with monkeypatch.context() as patched:
        patched.setattr("shutil.copyfileobj", None)  # that of before gets another name, without a copy
        fit(make(), 5, checkpoint=tmp_path, keep=2, resume=True)
    assert steps() == {FILE: 45, "checkpoint.1.safetensors": 36}
    (tmp_path / "checkpoint.1.safetensors").rename(tmp_path / "checkpoint.2.safetensors")  # as a kill may
    copy = tmp_path / "checkpoint.20260101.safetensors"  # was removed, after years of numbers
    shutil.copy(tmp_path / FILE, copy)
    fit(make(), 6, checkpoint=tmp_path, resume=True)
    assert steps() == {FILE: 54, copy.name: 45}


def test_files_stay_where_they_are_in_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They went on there, in silence."""

    class Goes(Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            monkeypatch.chdir(tmp_path / "other")

    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    callbacks = [CSVLogger("log.csv"), ModelCheckpoint("best", "loss"), Goes()]
    fit(make(), 3, checkpoint="run", callbacks=callbacks)
    assert not [*(tmp_path / "other").iterdir()]
    assert Content.read(tmp_path / "run" / FILE).state["epoch"] == 3
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 4
    assert (tmp_path / "best").is_file()


def test_the_newest_whole_one_is_resumed(tmp_path: Path) -> None:
    whole = make()
    fit(whole, 3)
    fit(make(), 2, checkpoint=tmp_path, every_steps=13, every=9, keep=2)
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:-1])
    resumed = make()
    with pytest.warns(UserWarning, match=r"it was cut, or something follows; goes on from an earlier"):
        fit(resumed, 3, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.model.flat_parameters, whole.model.flat_parameters)
    assert resumed.history.history["loss"] == whole.history.history["loss"]


def test_to_keep_all_takes_no_time(tmp_path: Path) -> None:
    fit(make(), 4, checkpoint=tmp_path, keep=10**15)
    names = {path.name for path in tmp_path.iterdir() if path.suffix == ".safetensors"}
    assert names == {FILE, *(f"checkpoint.{age}.safetensors" for age in (1, 2, 3))}


def test_a_link_to_a_checkpoint_is_resumed(tmp_path: Path) -> None:
    there, linked = tmp_path / "there", tmp_path / "linked"
    fit(make(), 1, checkpoint=there)
    linked.mkdir()
    (linked / FILE).symlink_to(there / FILE)
    trainer, whole = make(), make()
    fit(trainer, 2, checkpoint=linked, resume=True)
    fit(whole, 2)
    assert trainer.epoch == 2 and trainer.model.fingerprint() == whole.model.fingerprint()


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_only_whole_one_stays_until_another_one_is_written(
    keep: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was removed, or replaced by the damaged one, before the next one was written to a full disk."""
    fit(make(), 2, checkpoint=tmp_path, every_steps=13, every=9, keep=2)
    os.truncate(tmp_path / FILE, 1000)

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", refuse)
    with (
        pytest.raises(OSError, match=f"{re.escape(FILE)}'"),
        pytest.warns(UserWarning, match="goes on from an earlier checkpoint"),
    ):
        fit(make(), 3, checkpoint=tmp_path, keep=keep, resume=True)
    assert Content.read(tmp_path / FILE).state["step"] == 13


def test_a_flipped_bit_is_no_other_training(tmp_path: Path) -> None:
    """The newest whole one is resumed; what had changed on the disk was taken as it was."""
    model = nn.Sequential(nn.Linear(10, 3), seed=1)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1))
    trainer.fit((X, Y), 2, 7, checkpoint=tmp_path, keep=2, verbose=False)
    path, draw = tmp_path / FILE, random.Random(0)
    whole = path.read_bytes()
    name = range(whole.index(b"pdnn.checksum"), whole.index(b"pdnn.checksum") + len("pdnn.checksum"))
    for place in (*range(name.start), *range(name.stop, len(whole))):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match=re.escape(str(path))):
            Content.read(path)
    with pytest.warns(UserWarning, match=r"its checksum is not that of .*; goes on from an earlier"):
        trainer.fit((X, Y), 2, 7, checkpoint=tmp_path, resume=True, verbose=False)


def test_a_file_system_without_links_gets_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr("os.link", refuse)
    fit(make(), 1, checkpoint=tmp_path, every_steps=4, keep=3)
    steps = [Content.read(path).state["step"] for path in sorted(tmp_path.iterdir())]
    assert steps == [8, 4, 9]


@pytest.mark.parametrize(("strategy", "ranks"), [("serial", 1), ("ddp", 2)])
def test_what_cannot_be_written_is_said_before_the_first_step(
    strategy: str, ranks: int, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")

    def job() -> int:
        trainer, first = make(strategy=strategy), pdnn.world().rank == 0
        with pytest.raises(FileExistsError if first else pdnn.CommunicationError) as caught:
            fit(trainer, 2, checkpoint=tmp_path / "file")
        assert not first or "checkpoint takes a folder, not a file" in str(caught.value)
        return trainer.step

    assert pdnn.run(job, ranks=ranks, backend="threads") == [0] * ranks


@pytest.mark.parametrize(
    ("other", "found"), [(False, "None"), (True, "of epoch 1, step 9, with the checksum [0-9a-f]{8}")]
)
def test_a_rank_that_does_not_see_the_checkpoint_is_named(other: bool, found: str, tmp_path: Path) -> None:
    """That of another training after as many steps was found at the end, when the models differed."""
    fit(make(), 1, checkpoint=tmp_path / "0")
    if other:
        trainer = make()
        trainer.model.flat_parameters[:] *= 2
        fit(trainer, 1, checkpoint=tmp_path / "1")

    def job() -> None:
        fit(make(strategy="ddp"), 2, checkpoint=tmp_path / str(pdnn.world().rank), resume=True)

    words = f"rank 1 has a checkpoint to resume {found}, rank 0 has of epoch 1, step 9, .*; every rank must"
    with pytest.raises(ValueError, match=words):
        pdnn.run(job, ranks=2, backend="threads")


def test_other_layers_or_another_loss_of_the_same_shapes_are_told(tmp_path: Path) -> None:
    """A training that was resumed with another activation went on in silence, as if it had always had it."""

    def train(epochs: int, activation: nn.Module, loss: nn.Loss) -> None:
        model = nn.Sequential(nn.Linear(10, 8), activation, nn.Linear(8, 3), seed=1)
        trainer = pdnn.Trainer(model, loss, optim.SGD(model.parameters(), lr=0.1))
        trainer.fit((X, Y), epochs, 7, checkpoint=tmp_path, resume=True, verbose=False)

    train(1, nn.Tanh(), nn.CrossEntropyLoss())
    train(2, nn.Tanh(), nn.CrossEntropyLoss())
    with pytest.warns(UserWarning, match=rf"{FILE}: was trained with layer 1 .*Tanh.*, this .* on .*ReLU"):
        train(3, nn.ReLU(), nn.CrossEntropyLoss())
    other = nn.CrossEntropyLoss(label_smoothing=0.1)
    with pytest.warns(UserWarning, match=r"was trained with loss CrossEntropyLoss.*, this .*0\.1"):
        train(4, nn.ReLU(), other)
    with pytest.raises(ValueError, match=f"{FILE}: is a checkpoint; a Trainer of the same model reads it"):
        pdnn.load_model(tmp_path / FILE)


def test_a_model_that_does_not_fit_is_refused_without_a_word_of_layers(tmp_path: Path) -> None:
    """It warned that this trainer goes on, and then did not."""

    def train(width: int) -> None:
        model = nn.Sequential(nn.Linear(10, width), nn.Linear(width, 3), seed=1)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1))
        trainer.fit((X, Y), 1, 7, checkpoint=tmp_path, resume=True, verbose=False)

    train(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"0\.weight"):
            train(9)


def test_another_type_and_other_kernels_are_told(tmp_path: Path) -> None:
    program = """
import sys
import numpy as np
import pdnn
model = pdnn.models.mlp([10, 8, 3], dtype=sys.argv[2])
trainer = pdnn.Trainer(model, pdnn.nn.CrossEntropyLoss(), pdnn.optim.SGD(model.parameters(), lr=0.1))
trainer.fit(np.eye(10), np.arange(10) % 3, int(sys.argv[1]), checkpoint="run", resume=True, verbose=False)
"""

    def told(epochs: int, dtype: str, isa: str) -> list[str]:
        command = [sys.executable, "-c", program, str(epochs), dtype]
        child = processes.run(command, cwd=tmp_path, env={"PDNN_ISA": isa})
        return re.findall("safetensors: was trained with (.*)", child.stdout)

    widest = pdnn._core.supported_isas()[-1].split("-")[0]
    if widest in ("v2", "neon"):
        pytest.skip("all instruction sets of this machine give the same bits")
    assert told(1, "float32", "v2") == told(2, "float32", "v2") == []
    assert told(3, "float32", widest) == ["kernels v2, this trainer goes on with v3, v4 and neon"]
    assert told(4, "bfloat16", widest) == ["dtype float32, this trainer goes on with bfloat16"]


class FitMeanwhile(Callback):
    """Another training into a folder begins when the first epoch of this one is over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        fit(make(), 1, checkpoint=self.folder, resume=True)


def test_two_trainings_do_not_write_into_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They replaced each other's checkpoints, and with keep=2 one could miss its own."""
    with pytest.raises(BlockingIOError, match="another training writes its checkpoints into this folder"):
        fit(make(), 2, checkpoint=tmp_path, keep=2, callbacks=[FitMeanwhile(tmp_path)])
    fit(make(), 2, checkpoint=tmp_path, callbacks=[FitMeanwhile(tmp_path / "other")])
    (part := tmp_path / f".{FILE}.0a1b2c3d").touch()
    fit(make(), 3, checkpoint=tmp_path, resume=True)
    assert not part.exists(), "what a killed one has left"
    part.touch()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    fit(make(), 4, checkpoint=tmp_path, resume=True)
    assert Content.read(tmp_path / FILE).state["epoch"] == 4
    assert part.exists(), "it may be another training's"


@pytest.mark.parametrize(("strategy", "ranks"), [("serial", 1), ("ddp", 2)])
def test_the_checkpoint_of_another_training_is_replaced_by_none(
    strategy: str, ranks: int, tmp_path: Path
) -> None:
    """A script that was run again without resume=True began anew, and the finished training was lost."""

    def job() -> None:
        own = make(strategy=strategy)
        fit(own, 2, checkpoint=tmp_path)
        fit(own, 1, checkpoint=tmp_path)
        assert own.epoch == 3
        for _ in range(2):
            first, another = pdnn.world().rank == 0, make(strategy=strategy)
            with pytest.raises(FileExistsError if first else pdnn.CommunicationError) as caught:
                fit(another, 1, checkpoint=tmp_path)
            assert not first or "another training is in this folder and would be" in str(caught.value)
            assert another.step == 0

    pdnn.run(job, ranks=ranks, backend="threads")
    assert Content.read(tmp_path / FILE).state["epoch"] == 3
    resumed, loaded, elsewhere = make(), make(), make()
    fit(resumed, 4, checkpoint=tmp_path, resume=True)
    fit(resumed, 1, checkpoint=tmp_path)
    loaded.load(tmp_path / FILE)
    fit(loaded, 1, checkpoint=tmp_path)
    assert Content.read(tmp_path / FILE).state["epoch"] == 6
    fit(elsewhere, 1, checkpoint=tmp_path / "other")
    with pytest.raises(FileExistsError, match="resume=True"):
        fit(elsewhere, 9, checkpoint=tmp_path)


def signal_at_look(monkeypatch: pytest.MonkeyPatch, number: int, which: signal.Signals) -> None:
    """Sends this process a signal when a training looks up for the so manieth time."""
    looks = [0]

    def at_step(*_: object) -> None:
        looks[0] += 1
        if looks[0] == number:
            os.kill(os.getpid(), which)

    monkeypatch.setattr(Progress, "at_step", at_step)


def test_a_signal_leaves_a_checkpoint_of_the_step_at_which_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make()
    whole.fit(rows(200_000), 2, 2, verbose=False)
    stopped = make()
    signal_at_look(monkeypatch, 2, signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"):
        stopped.fit(rows(200_000), 2, 2, checkpoint=tmp_path, verbose=False)
    assert Content.read(tmp_path / FILE).state["step"] == stopped.step
    assert stopped.position is not None and stopped.position.row == 2 * stopped.step
    resumed = make()
    resumed.fit(rows(200_000), 2, 2, checkpoint=tmp_path, resume=True, verbose=False)
    stopped.fit(rows(200_000), 2, 2, verbose=False)  # two epochs, of which one has begun
    np.testing.assert_array_equal(resumed.model.flat_parameters, whole.model.flat_parameters)
    np.testing.assert_array_equal(stopped.model.flat_parameters, whole.model.flat_parameters)


def test_ctrl_c_begins_the_epoch_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make()
    signal_at_look(monkeypatch, 2, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(rows(200_000), 99, 2, checkpoint=tmp_path, every=99, every_seconds=0, verbose=False)
    assert trainer.position is None and trainer.step == trainer.epoch == 0
    assert Content.read(tmp_path / FILE).state["step"] > 0


@pytest.mark.parametrize("schedule_per", ["epoch", "step"])
def test_an_interrupted_validation_begins_the_epoch_again(schedule_per: str) -> None:
    def interrupt(y: np.ndarray, prediction: np.ndarray) -> float:
        if trainer.epoch == 1 and trainer.step == 18:
            raise KeyboardInterrupt
        return 0.0

    model = models.mlp((10, 3))
    sgd = optim.SGD(model.parameters(), lr=0.1)
    trainer = pdnn.Trainer(
        model,
        nn.CrossEntropyLoss(),
        sgd,
        strategy="serial",
        schedule=optim.StepLR(sgd, 1, 0.5),
        schedule_per=schedule_per,
        metrics={"interrupt": interrupt},
    )
    with pytest.raises(KeyboardInterrupt):
        fit(trainer, 4, validation=(X / 255, Y))
    assert (trainer.epoch, trainer.step, trainer.history.epochs) == (1, 9, 1)
    assert trainer.schedule is not None
    assert trainer.schedule.last_epoch == (1 if schedule_per == "epoch" else 9)
    trainer.metrics.clear()
    fit(trainer, 2)
    assert (trainer.epoch, trainer.step, trainer.history.epochs) == (3, 27, 3)
    assert trainer.schedule.last_epoch == (3 if schedule_per == "epoch" else 27)


def test_load_brings_the_fingerprint(tmp_path: Path) -> None:
    trainer, other = make(), make()
    fit(trainer, 1)
    trainer.save(tmp_path / "saved")
    other.load(tmp_path / "saved")
    assert other.history.fingerprint == trainer.history.fingerprint == other.model.fingerprint()


CHILD = """
import sys
sys.path[:0] = sys.argv[1], sys.argv[1] + "/.."
import test_checkpoint
trainer = test_checkpoint.make()
print("ready", flush=True)
test_checkpoint.fit(trainer, 3000, checkpoint=sys.argv[2], resume=True)
"""


def test_a_training_killed_at_any_time_leaves_a_checkpoint_that_goes_on(tmp_path: Path) -> None:
    whole = make()
    moments = random.Random(0)
    reached = 0
    for number in range(6):
        child = processes.start([sys.executable, "-c", CHILD, str(Path(__file__).parent), str(tmp_path)])
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            while number == 5 and not (tmp_path / FILE).exists():  # on a busy machine it may not be there yet
                assert child.poll() is None
                time.sleep(0.01)
            time.sleep(moments.uniform(0.05, 0.4))
        finally:
            processes.stop(child)  # SIGKILL
        if (tmp_path / FILE).exists():
            trainer = make()
            trainer.load(tmp_path / FILE)
            assert trainer.epoch >= reached
            reached = trainer.epoch
    assert reached > 0
    resumed = make()
    fit(resumed, reached + 2, checkpoint=tmp_path, resume=True)
    fit(whole, reached + 2)
    np.testing.assert_array_equal(resumed.model.flat_parameters, whole.model.flat_parameters)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == [FILE]


class InterruptedThread(threading.Thread):
    """Ctrl-C comes while its starter waits for it to run."""

    def start(self) -> None:
        run = self._started.set  # type: ignore[attr-defined]

        def interrupt() -> None:
            raise KeyboardInterrupt

        def run_late() -> None:
            time.sleep(0.2)
            run()

        self._started.wait, self._started.set = interrupt, run_late  # type: ignore[attr-defined]
        super().start()


def test_ctrl_c_while_a_checkpoint_begins_is_no_other_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder.threading, "Thread", InterruptedThread)
    with pytest.raises(KeyboardInterrupt):
        fit(make(), 3, checkpoint=tmp_path)
    resumed = make()
    resumed.load(tmp_path / FILE)
    assert resumed.epoch == 1


@pytest.mark.parametrize("kills", [40, pytest.param(1000, marks=pytest.mark.full_length)])
def test_a_kill_at_any_moment_leaves_the_old_one_or_the_new_one(
    kills: int, tmp_path: Path, root: Path, run_python: Callable[..., processes.Completed]
) -> None:
    done = run_python([root / "tests" / "checkpoint_kills.py", str(kills), tmp_path], timeout=110)
    assert f"{kills} kills" in done.stdout


@pytest.mark.parametrize(
    "wrong", [{"epoch": -1}, {"step": 2**70}, {"schedule": [None, "x"]}, {"schedule": [None, -5]}], ids=str
)
def test_numbers_that_no_training_has_change_nothing(wrong: dict[str, Any], tmp_path: Path) -> None:
    """They ended in errors without the name of the file, and with the model changed."""
    fit(make(), 1, checkpoint=tmp_path)
    content = Content.read(tmp_path / FILE)
    if "schedule" in wrong:
        wrong = {"schedule": [(content.state["schedule"] or [None])[0], wrong["schedule"][1]]}
    content.state.update(wrong)
    content.write(tmp_path / FILE)
    trainer = make(seed=7)
    before = trainer.model.fingerprint()
    with pytest.raises(ValueError, match=FILE):
        fit(trainer, 2, checkpoint=tmp_path, resume=True)
    assert trainer.model.fingerprint() == before


def test_a_resumed_fit_that_is_refused_keeps_the_names_of_its_checkpoint(tmp_path: Path) -> None:
    def made() -> pdnn.Trainer:
        model = nn.Sequential(nn.Linear(10, 3), seed=1)
        return pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1))

    x, names = X.astype(np.float32), np.array(["a", "b", "c"])[Y]
    made().fit(x, names, 2, checkpoint=tmp_path, verbose=False)
    trainer = made()
    with pytest.raises(ValueError, match="without validation="):
        trainer.fit(x, names, 3, checkpoint=tmp_path, resume=True, callbacks=[EarlyStopping()], verbose=False)
    assert trainer.epoch == 2 and list(trainer.model.classes) == ["a", "b", "c"]


def test_without_a_thread_checkpoints_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "checkpoint":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    trainer = make()
    fit(trainer, 2, checkpoint=tmp_path)
    assert Content.read(tmp_path / FILE).state["step"] == trainer.step


def test_a_program_that_heeds_sigterm_outside_of_python_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(number: int, handler: object) -> None:
        raise AssertionError(f"{number} is handled by {handler}")

    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    monkeypatch.setattr(signal, "signal", refuse)
    fit(make(), 1, checkpoint=tmp_path)
