"""What docs/contributing.md asks of a new kernel, rule, layer, loss or strategy: no step is forgotten."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from pdnn import nn
from pdnn.optim import rules
from pdnn.strategies.base import KINDS

KERNELS_ELSEWHERE = {
    "SparseKernels": "kernels/sparse_test.cpp",
    "CodingKernels": "kernels/coding_test.cpp",
}
"""Parts of the table whose kernels have tests of their own that every instruction set makes the same bits."""

LAYERS_ELSEWHERE = {"Embedding"}
"""Layers with a test of differences of their own, which are none of the cases of layers_test.cpp."""


def test_every_kernel_has_the_same_bits_on_every_instruction_set(root: Path) -> None:
    tables = (root / "cpp" / "pdnn" / "kernels" / "impl" / "tables.hpp").read_text()
    parts = dict(re.findall(r"(\w+Kernels)<T>\{(.*?)\}", tables, re.DOTALL))
    del parts["StackKernels"]  # which have the bits of layers one by one, on each of them: nn/stack_test.cpp
    assert len(parts) > 5
    for part, entries in parts.items():
        file = KERNELS_ELSEWHERE.get(part, "kernels/instruction_sets_test.cpp")
        text = (root / "cpp" / "tests" / file).read_text()
        missing = [kernel for kernel in re.findall(r"\.(\w+) =", entries) if f".{kernel}(" not in text]
        assert not missing, f"{file} calls none of these"


@pytest.mark.parametrize(
    ("file", "spelled"),
    [
        ("kernels/instruction_sets_test.cpp", "{}::Step{{"),
        ("kernels/rules_test.cpp", "{}::Step{{"),
        ("kernels/product_test.cpp", "{}::Step{{"),
        ("optim/optimizer_test.cpp", "make(kernels::{}{{"),
    ],
)
def test_every_rule_is_tested(file: str, spelled: str, root: Path) -> None:
    header = (root / "cpp" / "pdnn" / "kernels" / "rules.hpp").read_text()
    (names,) = re.findall(r"using Rule = std::variant<(.*)>;", header)
    text = (root / "cpp" / "tests" / file).read_text()
    assert not [name for name in names.split(", ") if spelled.format(name) not in text]


def test_every_layer_and_loss_is_tested_by_differences(root: Path) -> None:
    bound = (root / "cpp" / "bindings" / "bind_nn.cpp").read_text()
    curves = (root / "cpp" / "pdnn" / "nn" / "layers" / "curves.hpp").read_text()
    (names,) = re.findall(r"kCurves = \{(.*)\};", curves)
    losses = set(re.findall(r"nn::(\w+Loss)<T>", bound))
    layers = set(re.findall(r"layer\(std::type_identity<nn::(\w+)<T>>", bound)) - LAYERS_ELSEWHERE
    assert len(layers) > 10 and len(losses) > 5
    tests = root / "cpp" / "tests" / "nn"
    in_layers, in_losses = ((tests / f"{name}_test.cpp").read_text() for name in ("layers", "losses"))
    missing = [name for name in layers if f"{name}<double>>(" not in in_layers]
    missing += [name for name in names.split(", ") if f"CurveLayer<double>>({name}" not in in_layers]
    missing += [name for name in losses if f"{name}<double>" not in in_losses]
    assert not missing


def test_every_layer_loss_and_rule_has_its_formula_in_the_docs(root: Path) -> None:
    kinds = [kind for kind in vars(nn).values() if isinstance(kind, type)]
    layers = {kind.__name__ for kind in kinds if issubclass(kind, nn.Module)}
    layers -= {"Module", "ModuleList", "Sequential", "CustomLayer"}
    losses = {kind.__name__ for kind in kinds if issubclass(kind, nn.Loss)} - {"Loss"}
    backprop = (root / "docs" / "backprop.md").read_text()
    told = {re.sub(r"^Column|^Row|Parallel|[12]d$", "", name) for name in layers | losses}
    assert not [name for name in told if name not in backprop]
    optimizers = (root / "docs" / "optimizers.md").read_text()
    assert not [name for name in rules.__all__ if f"`{name}(" not in optimizers]


def test_rules_have_the_same_defaults_in_libpdnn(root: Path) -> None:
    header = (root / "cpp" / "pdnn" / "descriptions.hpp").read_text()
    found = re.findall(r"struct (\w+)Options \{(.*?)\n\};", header, re.DOTALL)
    structs = {name.lower(): body for name, body in found}
    for name in rules.__all__:
        there = {
            key: {"true": True, "false": False}.get(value) if value.isalpha() else float(value)
            for key, value in re.findall(r"(\w+) = ([\w.-]+)", structs[name.lower()])
        }
        here: dict[str, Any] = {
            key: parameter.default
            for key, parameter in inspect.signature(getattr(rules, name)).parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        here |= dict(zip(("beta1", "beta2"), here.pop("betas", ()), strict=False))
        assert there == here, name


def test_layers_and_losses_have_the_same_defaults_in_libpdnn(root: Path) -> None:
    header = (root / "cpp" / "pdnn" / "descriptions.hpp").read_text()
    options = dict(re.findall(r"struct (\w+Options) \{(.*?)\n\};", header, re.DOTALL))
    constructor = r"struct PDNN_API (\w+) : (?:Layer|Loss) \{\s*(?:explicit )?\1\((.*?)\);"
    constructed = dict(re.findall(constructor, header, re.DOTALL))
    compared = 0
    for name, arguments in constructed.items():
        if (kind := getattr(nn, name, None)) is None:
            assert name == "Chain"
            continue
        words = arguments + options.get("".join(re.findall(r"(\w+Options)& options", arguments)), "")
        here = {key: parameter.default for key, parameter in inspect.signature(kind).parameters.items()}
        for key, value in re.findall(r'(\w+) = ("?[\w.-]+"?)', re.sub(r"Init .*", "", words)):
            there = {"true": True, "false": False}.get(value, value.strip('"'))
            assert here[key] == (there if isinstance(here[key], bool | str) else float(there)), (name, key)
            compared += 1
    assert compared > 30


def test_every_strategy_has_its_word_in_libpdnn_and_in_the_docs(root: Path) -> None:
    words = {re.split(r"[^a-z-]", kind.pattern)[0] for kind in KINDS}
    assert {"team", "average", "tp"} <= words
    spelled = (root / "cpp" / "pdnn" / "library" / "strategy_spec.cpp").read_text()
    assert not [word for word in words if f'"{word}' not in spelled]
    for page in ("algorithms.md", "taxonomy.md", "estimates.md"):
        text = (root / "docs" / page).read_text()
        assert not [word for word in words if not re.search(rf"`[^`]*\b{word}\b", text)], page
