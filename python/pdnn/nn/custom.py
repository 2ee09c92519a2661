"""CustomLayer: a layer whose arithmetic is an extension's, in C++."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from inspect import Parameter as Argument
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar

from pdnn.core import CoreCustom, Width, core_for
from pdnn.nn.module import Module
from pdnn.store import Parameter

_VARIABLE = (Argument.VAR_POSITIONAL, Argument.VAR_KEYWORD)


class CustomLayer(Module, ABC):
    """Base of your own layers in C++: define `make`. docs/custom-layer.md shows how.

    It is a layer as any other, under every strategy. Files of models name the class, so it must be imported
    before `pdnn.load_model` reads them; pickles name the module that defines it.

    Parameters
    ----------
    **arguments
        Those of your class, by their names there, which become attributes. They make the layer again when a
        file is read, so they must be what JSON can hold.

    Raises
    ------
    TypeError
        If `make` returns something else than a layer, or JSON or the class cannot take the arguments.
    ValueError
        If the extension was built for another version of pdnn's headers, a parameter's name is no identifier
        or an attribute already, or an argument has the name of one that all layers have.
    """

    if TYPE_CHECKING:  # the arguments and the parameters

        def __getattr__(self, name: str) -> Any: ...

    kinds: ClassVar[dict[str, type[CustomLayer]]] = {}
    """All such classes by their names, as files of models have them."""

    def __init_subclass__(cls, **given: Any) -> None:
        """Enters the class into `kinds`.

        Raises
        ------
        TypeError
            If pdnn.nn, or another module, has a layer of this name.
        """
        super().__init_subclass__(**given)
        other = cls.kinds.get(cls.__name__) or getattr(sys.modules[__package__], cls.__name__, None)
        if isinstance(other, type) and other.__module__ != cls.__module__:
            raise TypeError(
                f"{cls.__module__}.{cls.__name__}: {other.__module__} has a layer of this name, and files of "
                "models could not tell them apart; name yours differently"
            )
        cls.kinds[cls.__name__] = cls

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self._arguments = tuple(arguments)
        self._check_arguments(arguments)
        for name, value in arguments.items():
            if name in ("training", "type") or hasattr(CustomLayer, name):
                raise ValueError(
                    f'{type(self).__name__}: "{name}" cannot be the name of an argument, as it is an '
                    "attribute of all layers"
                )
            setattr(self, name, value)
        for name, shape in self.build(core_for("float32")).parameters():
            if not name.isidentifier() or hasattr(self, name):
                raise ValueError(
                    f'{type(self).__name__}: "{name}" cannot be the name of a parameter; expected an '
                    "identifier that is no attribute of a layer"
                )
            setattr(self, name, Parameter(name, tuple(shape)))

    def _check_arguments(self, arguments: dict[str, Any]) -> None:
        """Raises TypeError if a file of a model could not bring the layer back by them."""
        name = type(self).__name__
        try:
            json.dumps(arguments)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name}: files of models cannot hold the arguments {arguments} ({error}); pass what JSON can"
            ) from None
        own = signature(type(self))
        try:
            own.bind(**arguments)
            named = (each.name for each in own.parameters.values() if each.kind not in _VARIABLE)
            if forgotten := [each for each in named if each not in arguments]:
                raise TypeError(f"without {', '.join(forgotten)}")
        except TypeError as error:
            raise TypeError(
                f"{name}: files of models could not make it again by {name}(**{arguments}) ({error}); hand "
                "its arguments to super().__init__ by their own names"
            ) from None

    @abstractmethod
    def make(self, dtype: str) -> object:
        """A new layer of your extension, with the arguments that are this object's attributes.

        Parameters
        ----------
        dtype : "float32" or "float64"
            Of its numbers.

        Returns
        -------
        object
            What ``pdnn::custom::layer_capsule`` (pdnn/custom/python.hpp) returned.
        """

    def build(self, core: Width) -> CoreCustom:
        """The layer of the core."""
        return core.Custom(type(self).__name__, self.make(str(core.zeros(0).dtype)))

    def config(self) -> dict[str, Any]:
        """The arguments, as they are now."""
        return {name: getattr(self, name) for name in self._arguments}
