"""Train the weights that pdnn has for the scatter-gather exercise, and write them into the package.

    python scripts/make_ex4_weights.py [OUTPUT]

1000 steps of gradient descent on all 5,000 digits at learning rate 2, in float64 on one core, from weights
drawn within ±0.12 with seed 0; stored as float32.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import pdnn
from pdnn import nn, optim

FILE = Path(__file__).parents[1] / "python" / "pdnn" / "exercises" / "ex4_weights.npz"


def main(output: Path) -> None:
    """Train, write, and print what the stored weights cost."""
    digits = pdnn.exercises.ex4(train=True)
    layers = nn.Linear(400, 25), nn.Sigmoid(), nn.Linear(25, 10), nn.Sigmoid()
    model = nn.Sequential(*layers, dtype="float64")
    random = np.random.RandomState(0)
    for parameter in model.parameters():
        parameter.data = random.uniform(-0.12, 0.12, parameter.shape)
    optimizer = optim.SGD(model.parameters(), lr=2.0)
    trainer = pdnn.Trainer(model, nn.BCELoss(reduction="batchmean"), optimizer, strategy="serial")
    trainer.fit(digits, 1000, batch_size=len(digits), shuffle=False, verbose=False)

    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.data = parameter.data.astype(np.float32)
    weight1, bias1, weight2, bias2 = (parameter.data.astype(np.float32) for parameter in parameters)
    np.savez_compressed(
        output, Theta1=np.column_stack([bias1, weight1.T]), Theta2=np.column_stack([bias2, weight2.T])
    )
    values = trainer.evaluate(digits)
    print(f"{output}: {output.stat().st_size:,} bytes, cost {values['loss']:.6f}, {values['accuracy']:.2%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, nargs="?", default=FILE, help="a .npz file (%(default)s)")
    main(parser.parse_args().output)
