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
    "g++ 12.2.0": {"784-256-10": 12_720_000, "8-8-8": 2_218},
}
TOLERANCE = 0.02

PROGRAM = """
import numpy as np
import pdnn
from pdnn import nn, optim

sizes, batch, steps = {sizes}, {batch}, {steps}
x = np.random.default_rng(0).random((batch * steps, sizes[0]), dtype=np.float32)
y = np.random.default_rng(1).integers(0, sizes[2], batch * steps)
model = pdnn.models.mlp(sizes, activation="sigmoid", seed=1)
rule = optim.SGD(model.parameters(), lr=0.1)
trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), rule, strategy="serial")
trainer.fit(pdnn.data.Dataset(x, y), epochs=1, batch_size=batch, shuffle=False)
"""


@pytest.mark.long
@pytest.mark.parametrize(("network", "batch", "steps"), [("784-256-10", 105, 1), ("8-8-8", 1, 4)])
def test_a_step_takes_the_instructions_it_took(tmp_path: Path, network: str, batch: int, steps: int) -> None:
    valgrind = shutil.which("valgrind")
    if not valgrind:
        pytest.skip("valgrind counts the instructions; it is not installed")
    if "v3" not in pdnn._core.supported_isas():
        pytest.skip("this processor lacks AVX2")
    if b"_ZN4pdnn8strategy12DataParallelIfE4step" not in Path(pdnn._core.__file__).read_bytes():
        pytest.skip("this build is stripped of the names of functions; test.sh makes one that is not")
    compiler = pdnn._core.build_info()["compiler"]
    sizes = [int(width) for width in network.split("-")]
    counts = tmp_path / "counts"
    command = [
        valgrind,
        "--tool=callgrind",
        "--toggle-collect=pdnn::strategy::DataParallel<float>::step*",
        f"--callgrind-out-file={counts}",
        sys.executable,
        "-c",
        PROGRAM.format(sizes=sizes, batch=batch, steps=steps),
    ]
    environment = {**os.environ, "PDNN_ISA": "v3", "PYTHONPATH": str(Path(pdnn.__file__).parents[1])}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, result.stderr
    total = re.search(r"^(?:totals|summary): (\d+)", counts.read_text(), re.MULTILINE)
    assert total, "callgrind wrote no total"
    instructions = int(total.group(1)) // steps
    print(f"{compiler}: {network} takes {instructions} instructions a step")
    assert instructions > 0, "the function that makes a step has another name now"
    if compiler not in EXPECTED:
        pytest.skip(f"no count for {compiler}: {network} takes {instructions}")
    expected = EXPECTED[compiler][network]
    assert abs(instructions - expected) <= TOLERANCE * expected, (
        f"{instructions} instructions a step, {expected} expected: faster? then write the new count here"
    )
