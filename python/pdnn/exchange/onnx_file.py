"""Reading ONNX files: checked, with local functions in their places."""

from __future__ import annotations

import os

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError
from onnx.inliner import inline_local_functions
from onnx_ir.serde import SerdeError


def load(path: str | os.PathLike[str]) -> ir.Model:
    """The model in a file; ValueError if it is none."""
    try:
        model = onnx.load(path)
        tensors = [
            value.type.tensor_type for value in model.graph.output if value.type.HasField("tensor_type")
        ]
        shapeless = [tensor for tensor in tensors if not tensor.HasField("shape")]
        for tensor in shapeless:
            tensor.shape.SetInParent()  # only the checker wants one
        onnx.checker.check_model(model)
        for tensor in shapeless:
            tensor.ClearField("shape")
        if model.functions:
            model = inline_local_functions(model)
        for value in (*model.graph.output, *model.graph.value_info):
            if not value.type.HasField("tensor_type"):
                value.ClearField("type")  # lists of classes, for which onnx_ir has no type
        read = ir.from_proto(model)
    except (DecodeError, SerdeError, TypeError, ValueError, onnx.checker.ValidationError) as error:
        raise ValueError(f"is no ONNX file that onnx reads ({str(error)[:200]})") from error
    return read
