"""The main job: trains the 784-256-10 network on the embedded MNIST images.

Alone:         python train.py
On two ranks:  mpiexec -n 2 python train.py
"""

import argparse
from pathlib import Path

import pdnn
from pdnn import nn, optim


def main() -> None:
    """Trains, says how well, and writes the history, its picture and the model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--epochs", type=int, default=10, help="passes over the training images (default: 10)"
    )
    parser.add_argument(
        "--batch-size", type=int, default=128, help="rows of one update, over all ranks (default: 128)"
    )
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate (default: 0.1)")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--strategy", default="auto", help='how steps are made parallel (default: "auto")')
    parser.add_argument("--seed", type=int, default=7, help="of parameters and orders (default: 7)")
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="directory of what is written (default: out)"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)  # what cannot be written is said before the work

    train, test = pdnn.datasets.mnist_mini()
    model = nn.Sequential(
        nn.Linear(784, 256), nn.Sigmoid(), nn.Linear(256, 10), dtype=options.dtype, seed=options.seed
    )
    optimizer = optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    trainer = pdnn.Trainer(
        model, nn.CrossEntropyLoss(), optimizer, strategy=options.strategy, seed=options.seed
    )

    rank, size = pdnn.world().rank, pdnn.world().size
    if rank == 0:
        print(
            f"{len(train)} training, {len(test)} test images; strategy {trainer.strategy} on {size} rank(s)"
        )
    history = trainer.fit(train, options.epochs, options.batch_size, validation=test)

    if rank == 0:
        result = trainer.evaluate(test)
        history.save(options.out / "history.json")
        model.save(options.out / "model.safetensors")
        history.plot(options.out / "history.png")
        print(f"test loss {result['loss']:.4f}, test accuracy {result['accuracy']:.4f}")
        print(f"wrote history.png, history.json and model.safetensors to {options.out}")


if __name__ == "__main__":
    main()
