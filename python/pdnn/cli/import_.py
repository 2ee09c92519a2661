"""Read a network of another program from an ONNX file, and save it as a model of pdnn.

  pdnn import model.onnx model.safetensors
  pdnn predict model.safetensors samples.npy

It takes what exporters of scikit-learn, Keras and PyTorch write for networks whose layers pdnn has; all nodes
that it does not understand are listed. It needs onnx-ir: pip install onnx-ir
"""

from __future__ import annotations

import argparse

from pdnn.cli.values import distinct, model_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``pdnn import``."""
    parser.add_argument("file", metavar="FILE", help="an ONNX file")
    parser.add_argument("model", type=model_file, metavar="MODEL", help="the model to write, .safetensors")


def main(arguments: argparse.Namespace) -> int:
    """Writes the model and shows its layers."""
    from pdnn import models
    from pdnn.cli import specs

    distinct(arguments, {"MODEL": arguments.model}, {"FILE": arguments.file})
    model, metadata = models.read_onnx(arguments.file)
    model.save(arguments.model, specs.noted(metadata))
    print(model)
    return 0
