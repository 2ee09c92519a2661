"""DistributedOptimizer: an optimizer with the gradients of all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from zlib import crc32

from pdnn import _core
from pdnn.checks import integer, kind_of
from pdnn.codec import Codec, CompressionStats, parse
from pdnn.comm import world
from pdnn.comm.settings import compare
from pdnn.core import core_for, kernels_of
from pdnn.ddp.agreements import check_named, compare_numbers, numbers_to_compare
from pdnn.ddp.buckets import BUCKET_BYTES, cut
from pdnn.ddp.collectives import Average, Sum
from pdnn.ddp.wrapper import Wrapper
from pdnn.moved import former
from pdnn.nn.eager import LossNode
from pdnn.nn.seeds import GOLDEN_RATIO
from pdnn.optim import Optimizer
from pdnn.store import Array, Parameter


class DistributedOptimizer(Wrapper):
    """An optimizer that steps with the gradient of all ranks' batches as if they were one.

    Rank k's loss l_k is a mean over m_k rows, or over rows whose weights are m_k together. With n = Σ m_k on
    all ranks, the mean loss over all of them has the gradient ∂L/∂w = Σ_k (m_k / n) ∂l_k/∂w. ``op=Average``
    uses this gradient, for any m_k. (A plain mean of the ranks' gradients would give more weight to the rows
    of a rank with few rows.) ``op=Sum`` is another optimizer: its gradient is Σ_k ∂l_k/∂w, p times as long on
    p ranks with equal batches; it is right for losses that are themselves sums over rows.

    The weights m_k are applied where a backward pass begins, so that layers with sums over all ranks
    (``nn.BatchNorm2d(…, sync=True)``) use them too. Until `synchronize`, `Parameter.grad` therefore
    contains m_k ∂l_k/∂w. Gradients are sent in buckets, each as soon as it is final, during the backward
    pass; `step` waits for them. A parameter that a rank's loss does not use counts as zero there. From now
    on, dropout draws other masks on each rank.

    Everything else is the inner optimizer's. Schedules accept this object in its place.

    Parameters
    ----------
    optimizer : Optimizer
        Of one model. Only its own parameters are summed over the ranks.
    named_parameters : iterable of (str, Parameter), optional
        As Horovod's programs pass it. Parameters know their names, so it is only checked to name them all.
    op : Average or Sum
    backward_passes_per_step : int
        Passes whose gradients are added up before the ranks exchange them: with Average, the gradient is
        that of the mean over the rows of all of them. (Horovod adds up the means instead.)
    bucket_bytes : int
        Size of a bucket: at most so many bytes of gradients, or one parameter.
    compression : str or Codec, optional
        Encodes the gradients: a string as in `pdnn.codec.SPECS`. All ranks get the same bits; `stats` has
        bytes, seconds and errors.
    error_feedback : bool, optional
        Whether the error of the codec is added to the next gradient; by default if the codec loses much.
        `state_dict` does not contain this residual.

    Raises
    ------
    TypeError
        If `optimizer` is no Optimizer, or distributed already; or a number is no integer.
    ValueError
        If an argument is out of range, or the parameters belong to no model or to several; on every rank, if
        ranks differ in parameters, dtype, rule or arguments, with the first that differs and both values.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        named_parameters: Iterable[tuple[str, Parameter]] | None = None,
        *,
        op: str = Average,
        backward_passes_per_step: int = 1,
        bucket_bytes: int = BUCKET_BYTES,
        compression: str | Codec | None = None,
        error_feedback: bool | None = None,
    ) -> None:
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, DistributedOptimizer):
            raise TypeError(f"DistributedOptimizer: got {kind_of(optimizer)}, expected one of pdnn.optim's")
        if optimizer.needs_closure:
            name, way_out = type(optimizer).__name__, 'a Trainer with strategy="ddp" divides them among ranks'
            if not optimizer.needs_rows:
                way_out = "add up the loss and the gradient of all ranks in its closure, with comm.all_reduce"
            raise TypeError(f"DistributedOptimizer: {name} takes several evaluations a step; {way_out}")
        if op not in (Average, Sum):
            raise ValueError(f"DistributedOptimizer: op is {op!r}, expected ddp.Average or ddp.Sum")
        backward_passes_per_step = integer(self, "backward_passes_per_step", backward_passes_per_step, 1)
        bucket_bytes = integer(self, "bucket_bytes", bucket_bytes, 1)
        codec = None if compression is None else parse(compression)
        if codec is None and error_feedback is not None:
            raise ValueError("DistributedOptimizer: error_feedback is of a codec; pass compression=")
        for parameter in optimizer.parameters():
            if distributed(parameter.post_hooks):
                raise ValueError(
                    f"DistributedOptimizer: {parameter.name} has one already; call its remove() before"
                )
        self.optimizer = optimizer
        self.op, self.backward_passes_per_step = op, backward_passes_per_step
        self._memory = optimizer.store()
        if named_parameters is not None:
            check_named(self.parameters(), list(named_parameters))
        comm = world()
        own = {
            "dtype": self._memory.dtype,
            **{f"parameter {each.name}": str(each.shape) for each in self.parameters()},
            "optimizer": str(optimizer.config()),
            "kernels": kernels_of(self._memory.arithmetic),
            "parameter groups": self.names_of_groups(),
            "op": op,
            "backward_passes_per_step": backward_passes_per_step,
            "bucket_bytes": bucket_bytes,
            "compression": str(codec),
            "error_feedback": error_feedback,
            "all_reduce": comm.core.all_reduce_name,
        }
        compare(
            comm, "DistributedOptimizer", own, "every rank must make the same optimizer of the same model"
        )
        self._buckets = cut(self.parameters(), bucket_bytes // self._memory.flat_gradients.itemsize)
        self._sums = core_for(self._memory.dtype).BucketedAllReduce(
            comm.split(0, comm.rank).core,
            self._buckets,
            None if codec is None else _core.Compression(codec.spec, error_feedback, 16),
            self._memory.shapes,
        )
        self._passes, self._rows = 0, 0.0  # since the ranks last agreed
        self._weight = 1.0  # of the last pass
        self._agreed = False  # whether the gradients are the ranks' common ones, and not stepped with
        self._left = False  # whether this rank has no batches any more, in `join`
        self._others_left = False  # whether another one had none in the last step
        self._given: list[int] | None = None  # checksums of the gradients that `synchronize` gave beside such
        self._synchronized: list[Any] = []  # the nodes of the last pass that add up over ranks
        self._own = set(self.parameters())
        self._clean = not self._any_gradient()  # whether nothing is left of gradients from before
        try:
            self._hook()
        except BaseException:  # a Ctrl-C
            self.remove()
            raise
        self._memory.seed = (self._memory.seed + comm.rank * GOLDEN_RATIO) % 2**64

    def _hook(self) -> None:
        self._memory.register_pass_hook(self._begin)
        for each in self._memory.parameters():
            if each in self._own:
                each.register_post_accumulate_grad_hook(self._final)
            else:
                each.register_hook(partial(self._unweigh, each))

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "DistributedOptimizer: it belongs to a group of ranks and is not copied; copy the optimizer "
            "inside, .optimizer, and make a new one of the copy"
        )

    # ---- while a backward pass runs

    def _begin(self, nodes: Sequence[Any]) -> float:
        """A pass begins: by what its gradients are multiplied."""
        if self._passes == self.backward_passes_per_step:
            raise ValueError(
                f"backward: {self._passes + 1} passes before step(); DistributedOptimizer was made with "
                f"backward_passes_per_step={self.backward_passes_per_step}"
            )
        if not self._clean and self._any_gradient():
            raise ValueError(
                f"backward: gradients from before are still there, of {next(self.parameters()).name}, …; "
                "call zero_grad() of the DistributedOptimizer that has these parameters first"
            )
        if added := set(self.parameters()) - self._own:
            raise ValueError(
                f"backward: {sorted(each.name for each in added)} came to the optimizer after "
                "DistributedOptimizer was made, which does not sum them; call remove(), and make a new one"
            )
        counts = {node.rows or 0.0 for node in nodes if isinstance(node, LossNode)}
        if len(counts) > 1 and self.op == Average:
            found = " and ".join(f"{count:g}" for count in sorted(counts))
            raise ValueError(
                f"backward: the losses of this pass count {found} rows, and with op=Average a pass has one "
                "weight; take losses of the same rows and weights, or sums of them (reduction='sum'), each "
                "divided by what its rows count on all ranks, with op=ddp.Sum"
            )
        if self.op == Average and all(node.rows is None for node in nodes):
            raise ValueError(
                "backward: nothing in this pass counts rows, by which op=Average weighs it; add a penalty to "
                "the loss, before its backward pass, or use op=ddp.Sum"
            )
        self._clean = True
        rows = next(iter(counts or (node.rows for node in nodes if node.rows is not None)), 0.0)
        self._synchronized = [node for node in nodes if node.synchronized]
        self._agreed = False
        self._passes += 1
        self._rows += rows
        if self._passes == self.backward_passes_per_step:
            self._start()
        self._weight = float(rows) if self.op == Average else 1.0
        return self._weight

    def _unweigh(self, stranger: Parameter, grad: Array) -> None:
        """Of a parameter of the model that neither this optimizer has nor another that sums over ranks."""
        first = distributed(stranger.hooks)[0]
        if self is first and self._weight and not distributed(stranger.post_hooks):
            grad /= self._weight

    def _final(self, parameter: Parameter) -> None:
        if parameter.store is not self._memory:
            raise ValueError(
                f"backward: {parameter.name} was taken into a larger model; make the DistributedOptimizer of "
                "that model's parameters"
            )
        if self._sums.array is not None:
            self._sums.ready(parameter.offset, parameter.offset + parameter.size)

    def _start(self) -> None:
        """Starts the sums; rows, ranks with a pass, those without batches and groups' numbers go first."""
        takes_part = float(self._passes > 0)
        counts = [self._rows, takes_part, self._left, *numbers_to_compare(self.param_groups, takes_part)]
        self._sums.start(self._memory.flat_gradients, counts, self.op == Average)

    # ---- by hand

    def zero_grad(self) -> None:
        """Sets the gradient of every parameter to zero; what is under way between the ranks ends first."""
        if self._sums.array is not None:
            self._sums.finish()
        self._passes, self._rows = 0, 0.0
        self._agreed, self._clean = False, True
        self.optimizer.zero_grad()

    def reset_grad(self) -> None:
        """`zero_grad` under the name that the exercise uses."""
        self.zero_grad()

    def synchronize(self) -> None:
        """Waits for the gradients of all ranks, so that they can be clipped or read before `step`.

        Call it on every rank or on none. A rank without a backward pass since the last step counts with no
        rows. Errors are those of `step`.
        """
        if not self._agreed:
            self._agree()
            if self._others_left:
                self._given = self._checksums()

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """A context for `step` after `synchronize`, as in Horovod's programs; here `step` does not need it.

        Raises
        ------
        ValueError
            If `synchronize` was not called.
        """
        if not self._agreed:
            raise ValueError(
                "skip_synchronize: the gradients are this rank's own; call opt.synchronize() before"
            )
        yield

    def step(self) -> None:
        """One update, the same on all ranks; waits for the gradients unless `synchronize` did.

        Raises
        ------
        ValueError
            If the ranks' learning rates or weight decays differ; if gradients were written by hand after
            `zero_grad` and not by a backward pass, or changed since `synchronize` although a rank has left
            `join`.
        CommunicationError
            If another rank failed, or did not make this step in time.
        """
        if not self._agreed:
            self._agree()
        elif self._given is not None and self._given != self._checksums():
            raise ValueError(
                "step: gradients were changed after synchronize(), as by clipping, but ranks without batches "
                "in join would step with them as they were summed; give every rank as many batches, as "
                "partition_dataset does, or do not change them"
            )
        self._update()

    def _check_gradients(self, where: str) -> None:
        """Raises ValueError between a backward pass and `synchronize`: gradients are this rank's own."""
        if self._passes and not self._agreed:
            left = self.backward_passes_per_step - self._passes
            first = f"make the {left} backward passes that are left, and " if left else ""
            raise ValueError(
                f"{where}: the gradients of a DistributedOptimizer are not summed over the ranks yet; {first}"
                "call its synchronize() before"
            )

    def _update(self) -> None:
        self._agreed = False
        self.optimizer.step()

    def _agree(self) -> int:
        """The gradients become those of all ranks' rows; returns how many ranks had a backward pass."""
        if self._passes == 0:
            if self._clean and not self._left and self._any_gradient():
                raise ValueError(
                    "step: there are gradients that no backward pass has made, and those are not summed over "
                    "ranks; call backward(), or ddp.allreduce and the step() of the optimizer inside"
                )
            self.optimizer.zero_grad()  # an old gradient must not count again
        if self._sums.array is None:
            self._start()
        _, ranks, left, *numbers = self._sums.finish()
        if ranks > 0:
            means = [number / ranks for number in numbers]
            compare_numbers(self.param_groups, means, take_over=self._passes == 0)
        self._passes, self._rows = 0, 0.0
        self._agreed, self._clean = True, False
        self._others_left, self._given = left > 0, None
        return int(ranks)

    def _any_gradient(self) -> bool:
        return any(self._memory.flat_gradients[begin:end].any() for begin, end in self._buckets)

    def _checksums(self) -> list[int]:
        return [crc32(self._memory.flat_gradients[begin:end].data) for begin, end in self._buckets]

    @property
    def stats(self) -> CompressionStats:
        """Bytes, times and errors of this rank's codec so far; zeros without one."""
        return CompressionStats.of(self._sums.stats)

    books = former("books", "stats")

    def remove(self) -> None:
        """Removes the hooks: from now on the model's gradients are this rank's own."""
        hooks: list[dict[int, Any]] = [self._memory.pass_hooks]
        for each in self._memory.parameters():
            hooks += each.hooks, each.post_hooks
        for kind in hooks:
            for number in [number for number, hook in kind.items() if _owner(hook) is self]:
                del kind[number]

    # ---- ranks that have no batches left

    def step_without_batch(self) -> bool:
        """Takes part in a step of the other ranks with no rows, or those of passes that did not make a step.

        Returns
        -------
        bool
            False if no rank had a batch; then nothing was updated. `join` calls it until then.

        Raises
        ------
        ValueError
            If layers add up over ranks, and this rank has had no batch, from which it would know them.
        """
        self._left = True
        try:
            if not self._agreed:
                self._pass_without_rows(self.backward_passes_per_step - self._passes)
                if self._agree() == 0:
                    self._agreed = False
                    return False
            self._update()
        finally:
            self._left = False
        return True

    def _pass_without_rows(self, times: int) -> None:
        """The sums over ranks of so many passes, for the layers that the last pass went through."""
        if times and self._memory.synchronized and not self._synchronized:
            raise ValueError(
                "join: layers with sync=True add up over all ranks, and this rank had no batch to know them "
                "from; give each rank at least one, which may have 0 rows"
            )
        for left in reversed(range(times)):
            forward = sorted(self._synchronized, key=lambda node: node.number)
            backward = [node.without_rows() for node in forward]
            if left == 0:
                self._start()  # ranks with rows may wait for it on their way back
            for go_back in reversed(backward):
                go_back()


def _owner(hook: Any) -> Any:
    """Whose method a hook is."""
    return getattr(hook.func if isinstance(hook, partial) else hook, "__self__", None)


def distributed(hooks: Mapping[int, Any]) -> list[DistributedOptimizer]:
    """Those that have a hook there, in the order of the hooks."""
    return [owner for hook in hooks.values() if isinstance(owner := _owner(hook), DistributedOptimizer)]
