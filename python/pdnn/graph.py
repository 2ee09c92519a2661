"""What a loss was made from: the nodes of its graph, and the backward pass through them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import count
from typing import TypeAlias

import numpy as np

from pdnn.arrays import Array
from pdnn.store import Parameter, Store

Final: TypeAlias = Callable[[Parameter], None]

_numbers = count()


class Node:
    """One operation in a graph: what it was made from, and its derivative.

    Attributes
    ----------
    inputs : tuple
        The nodes that made its inputs; None for one that no gradient is wanted of.
    parameters : sequence of Parameter
        Those whose gradients `backward` adds to, in the order of their memory.
    rows : float or None
        Of the batch, where the operation knows what a row is: layers and losses do. A loss has the sum of
        their weights.
    synchronized : bool
        Whether it adds up sums over ranks. Then its `without_rows()` takes part in them for a rank that makes
        no such call, and returns a function that does so for its backward pass.
    """

    __slots__ = ("__weakref__", "inputs", "number", "parameters")
    rows: float | None = None
    synchronized: bool = False

    def __init__(self, inputs: Sequence[Node | None] = (), parameters: Sequence[Parameter] = ()) -> None:
        self.inputs = tuple(inputs)
        self.parameters = parameters
        self.number = next(_numbers)  # an input's is smaller: falling numbers are an order to go back in

    def backward(self, dy: Array, pending: bool, final: Final | None) -> Sequence[Array | None]:
        """The gradient for each input, from the output's.

        Parameters
        ----------
        dy : ndarray
            Is kept as it is.
        pending : bool
            Whether the parameters' gradients go to `Store.pending` instead of their own place.
        final : function of Parameter, optional
            To be called when this node adds nothing more to a parameter's gradient.
        """
        raise NotImplementedError

    def free(self) -> None:
        """Lets go of what `backward` needs."""
        raise NotImplementedError

    @property
    def freed(self) -> bool:
        """Whether a backward pass has been here."""
        raise NotImplementedError


class Operation(Node):
    """A node without parameters: a function of dy."""

    __slots__ = ("_function",)

    def __init__(self, inputs: Sequence[Node | None], function: Callable[[Array], Sequence[Array]]) -> None:
        super().__init__(inputs)
        self._function: Callable[[Array], Sequence[Array]] | None = function

    def backward(self, dy: Array, pending: bool, final: Final | None) -> Sequence[Array | None]:
        """What the function gives."""
        assert self._function is not None
        return self._function(dy)

    def free(self) -> None:
        """Lets go of the function, and of what it holds."""
        self._function = None

    @property
    def freed(self) -> bool:
        """Whether it is gone."""
        return self._function is None


class Leaf(Node):
    """Where a way back ends."""

    __slots__ = ()

    def free(self) -> None:
        """Nothing: passes of other graphs may end here too."""

    @property
    def freed(self) -> bool:
        """Never."""
        return False


class InputLeaf(Leaf):
    """An input of the user's, whose gradient is wanted.

    Attributes
    ----------
    grad : ndarray or None
        The sum of those of all passes, as of a parameter.
    """

    __slots__ = ("grad",)

    def __init__(self) -> None:
        super().__init__()
        self.grad: Array | None = None

    def backward(self, dy: Array, pending: bool, final: Final | None) -> Sequence[Array | None]:
        """Keeps it."""
        self.grad = np.array(dy) if self.grad is None else np.asarray(self.grad + dy)
        return []


class ParameterLeaf(Leaf):
    """A parameter that operations take by itself, as those of a penalty."""

    __slots__ = ()

    def __init__(self, parameter: Parameter) -> None:
        super().__init__(parameters=[parameter])

    def backward(self, dy: Array, pending: bool, final: Final | None) -> Sequence[Array | None]:
        """Adds it to the parameter's."""
        (parameter,) = self.parameters
        assert parameter.store is not None
        store = parameter.store
        parameter.view(store.pending() if pending else store.flat_gradients)[...] += dy
        if final is not None:
            final(parameter)
        return []


def go_back(root: Node, value: Array) -> None:
    """Walks the graph behind `root`, each node after all that used its output."""
    nodes, found = [root], {root}
    for node in nodes:
        for source in node.inputs:
            if source is not None and source not in found:
                found.add(source)
                nodes.append(source)
    parameters = [parameter for node in nodes for parameter in node.parameters]
    stores = [store for store in dict.fromkeys([own.store for own in parameters]) if store is not None]
    with ExitStack() as turns:
        for store in sorted(stores, key=id):  # in one order, so that no two passes wait for each other
            turns.enter_context(store.turn())
        _add_gradients(root, value, nodes, parameters, stores)


def _weight(nodes: Sequence[Node], stores: Iterable[Store]) -> float:
    """By what all gradients of a pass are multiplied: what `Store.register_pass_hook` was given says."""
    weights = [store.begin_pass(nodes) for store in stores]
    if len(set(weights)) > 1:
        raise ValueError(
            "backward: the pass goes through two models, and the DistributedOptimizer of one weighs its "
            "gradients by rows; give the other one such an optimizer too, or call it under no_grad()"
        )
    return weights[0] if weights else 1.0


def _add_gradients(
    root: Node, value: Array, nodes: list[Node], parameters: list[Parameter], stores: list[Store]
) -> None:
    """The backward pass, while no other thread's adds to the gradients of these stores."""
    if any(node.freed for node in nodes):
        raise ValueError(
            "backward: a backward pass went through this graph before and let it go; compute the loss again"
        )
    nodes.sort(key=lambda node: -node.number)
    pending = any(own.hooks for own in parameters)
    watched = pending or any(own.post_hooks for own in parameters)
    uses = Counter(parameters if watched else ())

    def final(parameter: Parameter) -> None:
        uses[parameter] -= 1
        if uses[parameter] == 0:
            parameter.finish(pending)

    weight = _weight(nodes, stores)
    gradients = {root: np.full_like(value, weight)}
    try:
        for node in nodes:
            dy = gradients.pop(node)
            if isinstance(node, InputLeaf) and weight != 1:  # an optimizer takes it out of parameters alone
                dy = dy / weight if weight else np.zeros_like(dy)
            dxs = node.backward(dy, pending, final if watched else None)
            for source, dx in zip(node.inputs, dxs, strict=True):
                if source is not None and dx is not None:
                    gradients[source] = gradients[source] + dx if source in gradients else dx
            node.free()
    except BaseException:
        for store in stores:  # of what hooks have not seen, a failed pass leaves nothing behind
            store.drop_pending()
        raise
