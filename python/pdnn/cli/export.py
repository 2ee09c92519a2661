"""Write a saved model for other programs: as ONNX, or as C.

  pdnn export model.safetensors model.onnx                             # for onnxruntime and others
  pdnn export model.safetensors model.c                                # plain C99, no library
  pdnn export model.safetensors model.onnx --input-shape 3x32x32       # one that takes images

The ending of the file chooses the format. ONNX needs onnx-ir: pip install onnx-ir
"""

from __future__ import annotations

import argparse
from pathlib import Path

ENDINGS = (".onnx", ".c")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``pdnn export``."""
    parser.add_argument("model", metavar="MODEL", help="a file that --save or model.save wrote")
    parser.add_argument("file", type=_file, metavar="FILE", help="what to write: .onnx or .c")
    parser.add_argument(
        "--input-shape",
        type=_shape,
        metavar="SHAPE",
        help="of one sample: 784 or 3x32x32; needed unless the first layers say how many features they take",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64"),
        help="of weights and arithmetic; default: the model's, float32 for bfloat16",
    )


def main(arguments: argparse.Namespace) -> int:
    """Writes the file."""
    from pdnn import models
    from pdnn.cli import specs

    model, metadata = models.read_model(arguments.model)
    if arguments.file.suffix.lower() == ".c":
        model.to_c(arguments.file, arguments.input_shape, dtype=arguments.dtype)
    else:
        noted = specs.noted(metadata)
        model.to_onnx(arguments.file, arguments.input_shape, dtype=arguments.dtype, metadata=noted)
    return 0


def _file(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in ENDINGS:
        raise argparse.ArgumentTypeError(f"{text!r} ends in neither {' nor '.join(ENDINGS)}")
    return path


def _shape(text: str) -> tuple[int, ...]:
    words = text.split("x")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; expected one such as 784 or 3x32x32")
    return tuple(map(int, words))
