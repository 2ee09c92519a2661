"""What to write in the place of other libraries' attributes that pdnn has none of, as their errors say it."""

from __future__ import annotations

from inspect import getattr_static
from typing import Any, ClassVar

import numpy as np

#: Of everything that torch has on some device.
PLACE = {
    **dict.fromkeys(("to", "cpu", "cuda"), "all arrays are in the memory of the CPU, so leave it out"),
    "device": "it is always the CPU",
}
_DTYPE = 'pass dtype="float64", "float32" or "bfloat16" when the outermost module is made'
MODULE = {
    **PLACE,
    **dict.fromkeys(("double", "float", "half", "bfloat16"), _DTYPE),
    **dict.fromkeys(("fit", "compile", "evaluate"), "pdnn.Trainer(model, loss, optimizer) has fit"),
    **dict.fromkeys(("predict_classes", "predict_proba"), "a pdnn.Trainer has predict_classes"),
    "apply": "write for module in model.modules()",
    "zero_grad": "call zero_grad() of the optimizer, or write flat_gradients[...] = 0",
    "requires_grad_": "to keep parameters as they are, pass the optimizer the others only",
}
HANDLE = {
    **{name: f"its array has one, data.{name}" for name in dir(np.ndarray)},
    **dict.fromkeys(("detach", "numpy", "clone"), "its values are the array data; data.copy() is a copy"),
    "numel": "write size",
    "dim": "write len(shape)",
    **PLACE,
    "requires_grad_": MODULE["requires_grad_"],
}
TENSOR = {
    **{name: f"its array has one, tensor.data.{name}, without a gradient" for name in dir(np.ndarray)},
    **PLACE,
    "view": "write reshape",
    "dim": "write ndim",
    "numel": "write data.size",
    "size": "write shape",
    "requires_grad_": "write pdnn.Tensor(x, requires_grad=True)",
}
TRAINER = {
    "compile": "the loss, the optimizer and the metrics are arguments of pdnn.Trainer",
    "predict_proba": "after nn.CrossEntropyLoss write nn.Softmax()(trainer.predict(x)).data",
    "score": "evaluate gives the loss and the metrics",
    "summary": "its model has one",
    "train": "write fit",
}
OPTIMIZER = {"add_param_group": "pass all groups when it is made"}
SCHEDULE = dict.fromkeys(
    ("state_dict", "load_state_dict"), "its state is last_epoch; step_to(t) goes to a time"
)
HISTORY = {
    name: f'write history.history["{name}"]' for name in ("loss", "accuracy", "val_loss", "val_accuracy")
}


class Missing:
    """Stands in a class for an attribute that its objects lack: an AttributeError that says what to write.

    In the place of a `__getattr__`, which would slow down all other attributes.
    """

    def __init__(self, name: str, hint: str) -> None:
        self._name, self._hint = name, hint

    def __get__(self, obj: object, kind: type) -> Any:
        if obj is None:  # the class's own, as of a property
            return self
        raise AttributeError(
            f"{kind.__name__!r} object has no attribute {self._name!r}; {self._hint}",
            name=self._name,
            obj=obj,
        )


class Advising:
    """Base of what errors about an attribute give advice for.

    Attributes
    ----------
    advice : dict
        Names of attributes that it lacks, and what to write.
    """

    __slots__ = ()
    advice: ClassVar[dict[str, str]] = PLACE

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if Advising not in cls.__bases__ and len(cls.__bases__) == 1:
            return  # it inherits them
        for name, hint in cls.advice.items():
            if name.startswith("__"):
                continue
            bases = [vars(base)[name] for base in cls.__mro__ if name in vars(base)]
            there = [each for each in bases if not isinstance(each, Missing)]
            if not bases:
                setattr(cls, name, Missing(name, hint))
            elif there and isinstance(bases[0], Missing):  # another base has it
                setattr(cls, name, there[0])

    def __dir__(self) -> list[str]:
        kind = type(self)
        return [
            name for name in super().__dir__() if not isinstance(getattr_static(kind, name, None), Missing)
        ]
