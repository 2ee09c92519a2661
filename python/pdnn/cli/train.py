"""Train a classifier or a regressor on a data set, alone or on several ranks.

  pdnn train                                           # 14,000 digits, 784-256-10
  pdnn train --ranks 2 --epochs 5 --plot history.png --json history.json --save model.safetensors
  pdnn train --data npz:mine.npz --model mlp:20-64-3:tanh --lr 0.05 --validation 0.1
  pdnn train --data table.csv --target price --standardize --standardize-target --metrics r2,mae
  pdnn train --data table.csv --epochs 500 --validation 0.2 --patience 10 --save model.safetensors
  pdnn train --optimizer adam --schedule cosine
  pdnn train --data table.csv --model mlp:10-16-1 --optimizer levenberg-marquardt --epochs 50
  pdnn train --data cifar10:FOLDER --model mlp:3072-256-10 --augment 4
  pdnn train --ranks 4 --elastic                       # when a rank dies, the others go on
  pdnn train --epochs 50 --checkpoint run1 --resume    # continues where it was stopped
  mpiexec -n 2 pdnn train                              # the same as --ranks 2

--strategy auto (the default) makes a few steps of the training on a copy of the model, takes as many threads
as pay, and says so in the first line; fastest chooses, of the strategies that equal serial training to
rounding, the one with the least estimated time, and says why. Where the exchange between ranks costs more
than it brings, a line says what would pay instead. The last lines are: the estimated and the measured time
of a step, or that other programs disturbed both by using the cores meanwhile; on several ranks the bytes
that each sent and how long it waited; the loss and the accuracy on the test set. Only rank 0 prints and
writes files.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from math import ceil
from typing import TYPE_CHECKING

from pdnn.cli import accounts, optimizing, specs, standardizing, tables
from pdnn.cli.contention import Contention
from pdnn.cli.values import distinct, model_file, output, picture, positive_float, positive_int
from pdnn.comm.costs import text
from pdnn.metrics import NAMES
from pdnn.nn.module import DTYPES
from pdnn.progress import rounded

if TYPE_CHECKING:
    import pdnn.history
    from pdnn.data import Dataset, Subset

MODEL = "mlp:784-256-10:sigmoid"
"""For digits, which all data are unless they are named."""

CHOSEN = ("auto", "fastest")
"""Strategies that `fit` chooses when it begins."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``pdnn train``."""
    _add_what(parser.add_argument_group("data and model"))
    _add_how(parser.add_argument_group("training"))
    _add_output(parser.add_argument_group("output"))


def _add_what(what: argparse._ArgumentGroup) -> None:
    what.add_argument("--data", type=specs.data, default="mnist-mini", metavar="DATA", help=specs.DATA_HELP)
    what.add_argument(
        "--model",
        type=specs.model,
        metavar="MODEL",
        help=f"{specs.MODEL_HELP}; default: {MODEL}, but for a table one hidden layer of {tables.HIDDEN}",
    )
    tables.add_arguments(what)
    what.add_argument("--dtype", choices=DTYPES, help=optimizing.DTYPE_HELP)
    what.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of parameters, of the order of rows and of those held out; with --resume it must be the "
        "checkpoint's; default: %(default)s",
    )


def _add_how(how: argparse._ArgumentGroup) -> None:
    how.add_argument(
        "--strategy",
        type=specs.strategy,
        default="auto",
        help="auto (as many threads as pay; the default), fastest, serial, team:N, pool:N, ddp, ddp+team:N, "
        "ddp:CODEC, average:end, average:K, average:K:CODEC, hogwild:N, tp:N, pipeline:N, ...; CODEC is int8 "
        "or another one of docs/codecs.md",
    )
    how.add_argument(
        "--clip-norm",
        type=positive_float,
        metavar="NORM",
        help="gradients of a larger norm, that of all parameters together, are scaled down to it",
    )
    how.add_argument(
        "--reproducible",
        action="store_true",
        help="the same bits on any number of threads and ranks: sums over 8 leaves of each batch, or as many "
        "as the strategy says, as in ddp/16",
    )
    how.add_argument("--ranks", type=positive_int, metavar="N", help="start N MPI ranks of this command")
    how.add_argument(
        "--elastic", action="store_true", help="with --ranks: let the others go on when a rank dies"
    )
    how.add_argument(
        "--spares",
        type=positive_int,
        default=0,
        metavar="N",
        help="with --elastic: start N more ranks, which wait to take the place of one that dies",
    )
    how.add_argument("--epochs", type=positive_int, default=5, metavar="N", help="default: %(default)s")
    how.add_argument(
        "--batch-size",
        type=positive_int,
        metavar="N",
        help="rows of one update, over all ranks and threads (average: of one rank); "
        + optimizing.BATCH_SIZE_HELP,
    )
    optimizing.add_arguments(how)
    how.add_argument(
        "--on-nonfinite",
        choices=("raise", "skip", "ignore"),
        default="raise",
        help="at a NaN or an infinity in a loss or gradient: end with an error, leave the update out, or "
        "go on; default: %(default)s",
    )
    how.add_argument(
        "--augment",
        type=positive_int,
        metavar="PIXELS",
        help="train on images padded by so many pixels, cut to their size and mirrored at random",
    )
    how.add_argument(
        "--validation",
        type=specs.validation,
        default="test",
        metavar="PART",
        help="evaluated each epoch: test (default), none, or the fraction of training rows to hold out",
    )
    how.add_argument(
        "--patience",
        type=positive_int,
        metavar="N",
        help="end when the loss of the rows that --validation holds out has not fallen for N epochs, with "
        "the parameters of the best one",
    )
    how.add_argument(
        "--metrics",
        type=specs.metrics,
        default=(),
        metavar="NAMES",
        help=f"what else is measured on those data and on the test set, as in r2,mae: {NAMES}",
    )


def _add_output(out: argparse._ArgumentGroup) -> None:
    out.add_argument("--json", type=output, metavar="FILE", help="the history, one value per epoch")
    out.add_argument(
        "--plot", type=picture, metavar="FILE", help="a picture of the history: .png, .svg, .pdf"
    )
    out.add_argument(
        "--save", type=model_file, metavar="FILE", help="the model, .safetensors; see pdnn predict"
    )
    out.add_argument("--checkpoint", metavar="FOLDER", help="written every epoch")
    out.add_argument(
        "--every-steps", type=positive_int, metavar="N", help="write checkpoints after every N steps, too"
    )
    out.add_argument(
        "--every-seconds", type=positive_float, metavar="S", help="and S seconds after the last one"
    )
    out.add_argument("--keep", type=positive_int, metavar="N", help="checkpoints to keep; default: 1")
    out.add_argument("--resume", action="store_true", help="continue from the checkpoint, if there is one")
    out.add_argument("--quiet", action="store_true", help="print the last line only")


def main(arguments: argparse.Namespace) -> int:
    """Trains; 0 if all went well."""
    _check(arguments)
    import pdnn

    world = pdnn.world()
    if arguments.resume:
        _check_seed(arguments)
    if arguments.ranks not in (None, 1, world.size):
        if world.size > 1:
            arguments.error(f"--ranks {arguments.ranks} in a job of {world.size} ranks")
        return _on_ranks(arguments)
    if arguments.elastic and world.size == 1:
        arguments.error("--elastic needs --ranks N, at least 2")
    whole, test = tables.load(arguments)
    train, held_out = _parts(arguments.validation, whole, test, arguments.seed)
    standardization = None
    if arguments.standardize:
        standardization = standardizing.Standardization(train)
        if arguments.save:
            standardization.check(optimizing.dtype(arguments))
        standardization.apply(train, test, held_out)
    arguments.batch_size = optimizing.batch_size(arguments, len(train))
    trainer = _trainer(arguments, train, test)
    trainer.notes = tables.notes(arguments, whole)
    if standardization is not None:
        trainer.notes["inputs of the means and deviations"] = standardization.moments.digest()
    targets = standardizing.standardize_target(arguments, trainer, train, test, held_out)
    contention = Contention()
    history = _fit(arguments, trainer, train, held_out)
    world = pdnn.world()  # fewer ranks, if one has died
    others = contention.share(world)
    if targets is not None:
        targets.undo(trainer.model)
    result = history.test = trainer.evaluate(test, comm=world)
    if world.rank == 0:
        own = trainer.model if standardization is None else standardization.within(trainer.model)
        history.fingerprint = own.fingerprint()  # of the model that takes the numbers of the table
        with ExitStack() as outputs:  # of which each is written, though what is printed or another one fails
            if arguments.plot:
                outputs.callback(accounts.keep, history.plot, arguments.plot)
            if arguments.json:
                outputs.callback(accounts.keep, history.save, arguments.json)
            if arguments.save:
                metadata = _metadata(arguments, trainer, whole, train)
                outputs.callback(accounts.keep, own.save, arguments.save, metadata)
            if not arguments.quiet:
                accounts.tell(history, trainer, world, others)
            told = ", ".join(f"{name} {rounded(value)}" for name, value in result.items())
            print(f"test: {told}", flush=True)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Ends the program, with its usage, if options do not go together."""
    for option in ("resume", "every_steps", "every_seconds", "keep"):
        if getattr(arguments, option) and arguments.checkpoint is None:
            arguments.error(f"--{option.replace('_', '-')} needs --checkpoint FOLDER")
    if arguments.patience and not isinstance(arguments.validation, float):
        arguments.error("--patience needs --validation FRACTION: rows of neither the training nor the test")
    table = arguments.data.path if isinstance(arguments.data, tables.Table) else None
    if arguments.standardize_target and table is None:
        arguments.error("--standardize-target is for tables: --data FILE.csv")
    results = {f"--{name}": getattr(arguments, name) for name in ("save", "json", "plot")}
    test = arguments.test if isinstance(arguments.test, str) else None  # or a share
    read = {"--data": arguments.data.path or None, "--test": test}
    distinct(arguments, results, read)
    optimizing.check(arguments)
    if arguments.spares and not arguments.elastic:
        arguments.error("--spares needs --elastic")


def usual_model(arguments: argparse.Namespace, load: Callable[[], Iterable[Dataset | Subset]]) -> str:
    """The model where none is named; a table is loaded for it."""
    return tables.model_word(_loss(arguments), *load()) if isinstance(arguments.data, tables.Table) else MODEL


def _loss(arguments: argparse.Namespace) -> str | None:
    """The loss that is named; with --standardize-target, numbers are predicted."""
    return arguments.loss or ("mse" if arguments.standardize_target else None)


def _on_ranks(arguments: argparse.Namespace) -> int:
    """The same command on the ranks of a launcher; its exit code."""
    from pdnn.launch import launch

    words = ["-m", "pdnn", *arguments.words, "--ranks", "1"]
    return launch(words, arguments.ranks, tag=False, elastic=arguments.elastic, spares=arguments.spares)


def _check_seed(arguments: argparse.Namespace) -> None:
    """Raises ValueError if the checkpoint has another seed, by which other rows were held out."""
    from pdnn import checkpoint

    had = checkpoint.seed_of(arguments.checkpoint)
    if had not in (None, arguments.seed):
        raise ValueError(
            f"{arguments.checkpoint}: its checkpoint was written with seed {had}, this run has "
            f"{arguments.seed}; pass --seed {had}"
        )


def _trainer(arguments: argparse.Namespace, train: Dataset | Subset, test: Dataset) -> pdnn.Trainer:
    import pdnn
    from pdnn import Trainer, strategies

    rows = len(train)
    world = pdnn.world()
    build = arguments.model
    if build is None:
        word = usual_model(arguments, lambda: (train, test))
        if word != MODEL and world.rank == 0 and not arguments.quiet:
            print(f"model: {word} (--model names another one)")
        build = specs.model(word)
    model = build(train.sample_shape, arguments.seed, optimizing.dtype(arguments))
    optimizer = optimizing.optimizer(arguments, model.parameters())
    strategy: str | strategies.Strategy = arguments.strategy
    a_step = arguments.batch_size
    if strategy not in CHOSEN:
        strategy = strategies.choose(strategy, world, arguments.reproducible)
        a_step = strategy.rows_per_step(a_step, world.size - world.spares)
    an_epoch = ceil(rows / min(a_step, max(rows, 1)))
    plan = optimizing.Plan(arguments.epochs * an_epoch, an_epoch)
    return Trainer(
        model,
        tables.loss(_loss(arguments), model, train),
        optimizer,
        strategy=strategy,
        seed=arguments.seed,
        schedule=None if arguments.schedule is None else arguments.schedule(optimizer, plan),
        schedule_per="step",
        reproducible=arguments.reproducible,
        on_nonfinite=arguments.on_nonfinite,
        clip_norm=arguments.clip_norm,
        metrics=arguments.metrics,
    )


def _fit(
    arguments: argparse.Namespace,
    trainer: pdnn.Trainer,
    train: Dataset | Subset,
    held_out: Dataset | Subset | None,
) -> pdnn.history.History:
    """The training itself; the time of a step is estimated as soon as the strategy is known."""
    import pdnn
    from pdnn.data import PadCropFlip

    wanted = bool(arguments.json) or not arguments.quiet
    if wanted and arguments.strategy not in CHOSEN:
        _estimate(trainer, train, arguments)
    stopping = pdnn.callbacks.EarlyStopping(patience=arguments.patience) if arguments.patience else None
    history = trainer.fit(
        train,
        epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        validation=held_out,
        callbacks=[stopping] if stopping else [],
        augment=None if arguments.augment is None else PadCropFlip(arguments.augment),
        checkpoint=arguments.checkpoint,
        every_steps=arguments.every_steps,
        every_seconds=arguments.every_seconds,
        keep=arguments.keep or 1,
        resume=arguments.resume,
        verbose=not arguments.quiet,
    )
    if 0 < history.epochs == history.begun and pdnn.world().rank == 0 and not arguments.quiet:
        had = f"the checkpoint has {history.begun} epochs"
        print(f"{had}, and --epochs {arguments.epochs} is no more: nothing was trained")
    if wanted and arguments.strategy in CHOSEN:
        _estimate(trainer, train, arguments)
    if stopping and stopping.best is not None and pdnn.world().rank == 0 and not arguments.quiet:
        print(f"best epoch: {stopping.best_epoch + 1}, val_loss {rounded(stopping.best)}")
    return history


def _estimate(trainer: pdnn.Trainer, train: Dataset | Subset, arguments: argparse.Namespace) -> None:
    """Stores the estimated time of a step in the history; prints why if there is no estimate."""
    try:
        trainer.history.estimate = estimate = trainer.estimate(train, arguments.batch_size)
        if arguments.strategy in CHOSEN:  # what was chosen has said it
            return
        alternatives = trainer.alternatives(train, arguments.batch_size)
        if alternatives and not alternatives.pays and trainer.comm.rank == 0 and not arguments.quiet:
            print(f"{estimate.strategy}: estimated {text(estimate.seconds)} a step, {alternatives}")
    except ValueError as error:
        if trainer.comm.rank == 0 and not arguments.quiet:
            print(f"not estimated: {str(error).removeprefix('estimate: ')}")


def _parts(
    validation: float | str, train: Dataset, test: Dataset, seed: int
) -> tuple[Dataset | Subset, Dataset | Subset | None]:
    """The rows to train on, and those to evaluate after each epoch."""
    from pdnn.data import train_test_split

    if isinstance(validation, float):
        return train_test_split(train, validation, seed)
    return train, test if validation == "test" else None


def _metadata(
    arguments: argparse.Namespace, trainer: pdnn.Trainer, whole: Dataset, train: Dataset | Subset
) -> dict[str, str]:
    """What the file of the model tells ``pdnn predict``."""
    loss = _loss(arguments) or next(
        name for name, kind in tables.LOSSES.items() if kind is type(trainer.loss)
    )
    usual = tables.loss(None, trainer.model, train)
    kind = specs.CLASSES if tables.are_classes(usual, trainer.loss) else specs.NUMBERS
    columns = {} if whole.columns is None else {specs.COLUMNS_KEY: json.dumps(whole.columns)}
    return {specs.LOSS_KEY: loss, specs.PREDICTS_KEY: kind, **columns}
