"""pdnn.ddp under mpiexec: the checks of ddp_checks.py, and the program of the Horovod-style exercise."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ddp_checks
import pdnn
from data_root import real_data
from processes import Completed

pytestmark = pytest.mark.mpi
Mpiexec = Callable[..., Completed]


def test_the_full_resnet9_equals_one_process() -> None:
    (alone,) = pdnn.run(ddp_checks.resnet9, ranks=1, backend="threads")
    for state in pdnn.run(ddp_checks.resnet9, ranks=2, timeout=100):
        ddp_checks.equal_states(state, alone)


# Below its imports it makes the calls of the exercise's train_script.py, and no others before its last lines.
PROGRAM = """
import sys
import numpy as np
import pdnn
from pdnn import ddp, nn, optim
from pdnn.exercises import CIFAR10Dataset
from pdnn.models import ResNet9

rank, device = ddp.init()
dataset = CIFAR10Dataset(sys.argv[1], train=True)
train_set, bsz = ddp.partition_dataset(dataset, 128, device=device, dtype="float32")
model = ResNet9(device=device, dtype="float32")
ddp.broadcast_parameters(model)
opt = optim.Adam(model.parameters(), lr=0.001, weight_decay=0.001)
opt = ddp.DistributedOptimizer(opt)
loss_fn = nn.SoftmaxLoss()
model.train()
correct, total_loss, count = 0, 0.0, 0
for batch in train_set:
    opt.reset_grad()
    X, y = batch
    out = model(X)
    correct += np.sum(np.argmax(out.numpy(), axis=1) == y.numpy())
    loss = loss_fn(out, y)
    total_loss += loss.data.numpy() * y.shape[0]
    count += X.numpy().shape[0]
    loss.backward()
    opt.step()
print(f"acc: {correct / count}; avg_loss: {total_loss / count}")
model.eval()
with pdnn.no_grad():
    x, y = dataset.gather(range(len(dataset)), "float32")
    print(f"rank {rank}: {bsz} of 128, loss {loss_fn(model(x), y).item():.5f}")
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_check_holds(mpiexec: Mpiexec, root: Path, ranks: int) -> None:
    output = mpiexec(ranks, [root / "tests" / "ddp_checks.py"], timeout=110).stdout
    assert output.count("is content") == ranks


def test_the_exercise_gives_the_same_on_one_two_and_three_ranks(mpiexec: Mpiexec, tmp_path: Path) -> None:
    """An epoch over 1,300 images; float32's rounding is what the losses differ by."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    records = next(real_data("cifar10").glob("*train*.bin")).read_bytes()[: 1300 * 3073]
    for name in ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(records)
    losses = []
    for ranks in (1, 2, 3):
        output = mpiexec(ranks, [script, tmp_path], timeout=100).stdout
        assert "original dataset length: 1300" in output
        assert f"partitioned dataset length: {-(-1300 // ranks)}" in output
        told = re.findall(r"rank (\d): (\d+) of 128, loss (\S+)", output)
        assert sorted(int(rank) for rank, _, _ in told) == list(range(ranks))
        assert sum(int(bsz) for _, bsz, _ in told) == 128
        scores = re.findall(r"acc: (0\.\d+); avg_loss: (\d\.\d+)", output)
        assert len(scores) == ranks and all(2 < float(loss) < 3 for _, loss in scores)
        assert len({loss for _, _, loss in told}) == 1, "all ranks hold the same model"
        losses.append(float(told[0][2]))
    assert losses[0] < 2.25, "better than a guess, log 10"
    np.testing.assert_allclose(losses, losses[0], rtol=0.003)


def test_the_script_prints_the_exercises_lines(mpiexec: Mpiexec, root: Path) -> None:
    """In float64 the first losses are the same to the last digit printed, on two ranks and on one."""
    script = root / "examples" / "resnet9_cifar10.py"
    options = ["--data", real_data("cifar10"), "--epochs", "1", "--dtype", "float64", "--every", "2"]
    told = []
    for ranks in (1, 2):
        lines = mpiexec(ranks, [script, *options], timeout=100).stdout.splitlines()
        assert lines[:3] == [
            "original dataset length: 4000",
            f"partitioned dataset length: {4000 // ranks}",
            "epoch: 1/1",
        ]
        told.append([line for line in lines if re.fullmatch(r"acc: 0\.\d{4}; avg_loss: \d\.\d{4}", line)])
        assert len(told[-1]) == 16
        assert re.fullmatch(r"Training Time: \d+\.\d\d", lines[-2])
        assert re.fullmatch(r"test accuracy: 0\.\d{4}", lines[-1])
    assert told[0][:4] == told[1][:4]


FAILING = """
import numpy as np
import pdnn
from pdnn import ddp, nn, optim
rank, _ = ddp.init()
model = pdnn.models.mlp([50, 40, 5], seed=0)
opt = ddp.DistributedOptimizer(optim.SGD(model.parameters(), lr=0.1), bucket_bytes=1)
def fail(parameter):
    if rank == 1 and step == 3:
        raise ArithmeticError("in the middle of a step")
list(model.parameters())[1].register_post_accumulate_grad_hook(fail)
for step in range(100):
    opt.zero_grad()
    nn.CrossEntropyLoss()(model(np.ones((8, 50), np.float32)), np.arange(8) % 5).backward()
    opt.step()
"""


def test_a_rank_that_raises_in_a_step_ends_the_job(mpiexec: Mpiexec, tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    done = mpiexec(2, [script], check=False, timeout=50)  # less than ranks wait for each other
    assert done.returncode != 0
    assert "ArithmeticError: in the middle of a step" in done.stdout
