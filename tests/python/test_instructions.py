"""How many instructions a training step takes: a count without noise, so a slower step cannot hide in it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pdnn

# Instructions of a step, float32, on one core, with the AVX2 kernels. Another compiler makes another program:
# measure with `python -m pytest tests/python/test_instructions.py -s` and add a line.
EXPECTED = {
    "g++ 12.2.0": {"784-256-10": 13_465_000, "8-8-8": 6_600},
}
TOLERANCE = 0.02

PROGRAM = """
import numpy as np
import pdnn
from pdnn import nn, optim

sizes, batch, steps = {sizes}, {batch}, {steps}
x, y = np.zeros((batch * steps, sizes[0]), np.float32), np.zeros(batch * steps, int)
model = pdnn.models.mlp(sizes, activation="sigmoid", seed=1)
rule = optim.SGD(model.parameters(), lr=0.1)
trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), rule, strategy="serial")
trainer.fit(pdnn.data.Dataset(x, y), epochs=1, batch_size=batch, shuffle=False)
"""


def instructions(valgrind: str, counts: Path, sizes: list[int], batch: int, steps: int) -> int:
    """All that a process executes which trains for so many steps."""
    command = [valgrind, "--tool=callgrind", f"--callgrind-out-file={counts}", sys.executable, "-c"]
    program = PROGRAM.format(sizes=sizes, batch=batch, steps=steps)
    environment = {
        **os.environ,
        "PDNN_ISA": "v3",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(Path(pdnn.__file__).parents[1]),
    }
    result = subprocess.run([*command, program], env=environment, capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, result.stderr
    total = re.search(r"^(?:totals|summary): (\d+)", counts.read_text(), re.MULTILINE)
    assert total, "callgrind wrote no total"
    return int(total.group(1))


# An epoch is as long in both runs but for its steps; so is everything around it.
@pytest.mark.parametrize(
    ("network", "batch", "steps"),
    [("784-256-10", 105, 20), pytest.param("8-8-8", 1, 20_000, marks=pytest.mark.full)],
)
def test_a_step_takes_the_instructions_it_took(tmp_path: Path, network: str, batch: int, steps: int) -> None:
    valgrind = shutil.which("valgrind")
    if not valgrind:
        pytest.skip("valgrind counts the instructions; it is not installed")
    if "v3" not in pdnn._core.supported_isas():
        pytest.skip("this processor lacks AVX2")
    compiler = pdnn._core.build_info()["compiler"]
    sizes = [int(width) for width in network.split("-")]
    few, many = (instructions(valgrind, tmp_path / "counts", sizes, batch, count) for count in (2, 2 + steps))
    took = (many - few) // steps
    print(f"{compiler}: {network} takes {took} instructions a step")
    if compiler not in EXPECTED:
        pytest.skip(f"no count for {compiler}: {network} takes {took}")
    expected = EXPECTED[compiler][network]
    assert abs(took - expected) <= TOLERANCE * expected, (
        f"{took} instructions a step, {expected} expected: faster? then write the new count here"
    )
