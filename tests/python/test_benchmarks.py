"""Benchmarks measure what they say, and all sides of a comparison do the same work."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import os
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pdnn import _core
from processes import Completed

FEW = ("--blocks", "1", "--warm-up", "5")
"""Too few blocks to say anything, and hardly an untimed one before each."""


@pytest.fixture
def benchmark(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(root / "benchmarks")
    return importlib.import_module


def test_a_time_is_the_median_of_the_fastest_quarter(benchmark: Callable[[str], ModuleType]) -> None:
    measure = benchmark("measure")
    assert measure.fastest_quarter([9.0, 3.0, 8.0, 1.0, 7.0, 2.0, 6.0, 5.0, 4.0]) == 2.0
    assert measure.fastest_quarter([5.0, 4.0]) == 4.0
    assert math.isnan(measure.fastest_quarter([]))


def test_blocks_beside_a_slow_round_trip_are_left_out(benchmark: Callable[[str], ModuleType]) -> None:
    measure = benchmark("measure")
    assert measure.quiet([1.0, 2.0, 3.0, 4.0], [0.1, 0.1, 0.9, 0.1, 0.1], slowest=0.2) == [1.0, 4.0]


def test_names_that_are_unknown_are_told(
    benchmark: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    for program, option in [
        ("accuracy", "--networks"),
        ("step", "--peers"),
        ("reproducible", "--strategies"),
        ("estimators", "--tables"),
        ("estimator_scores", "--tables"),
    ]:
        with pytest.raises(SystemExit):
            benchmark(program).main([option, "strange"])
        assert f"argument {option}: strange; expected some of " in capsys.readouterr().err


def test_options_that_no_run_can_end_well_with_are_told_before_it(
    benchmark: Callable[[str], ModuleType],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = benchmark("step")
    for option, text, words in [
        ("--blocks", "0", "'0' is not a whole number of at least 1"),
        ("--steps", "-2", "'-2' is not a whole number of at least 1"),
        ("--json", str(tmp_path), "is a folder; expected a file"),
        ("--plot", str(tmp_path / "none" / "x.png"), "there is no such folder"),
    ]:
        with pytest.raises(SystemExit):
            step.main([f"{option}={text}"])
        told = capsys.readouterr().err
        assert f"argument {option}: " in told and words in told
    (tmp_path / "kept.json").write_text("{}")
    measure = benchmark("measure")
    assert measure.destination(str(tmp_path / "kept.json")) and (tmp_path / "kept.json").read_text() == "{}"
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(SystemExit):
        step.main([f"--json={tmp_path / 'kept.json'}"])
    assert "nothing can be written there" in capsys.readouterr().err


def test_a_table_without_figures_says_why(benchmark: Callable[[str], ModuleType]) -> None:
    measure = benchmark("measure")
    result = {"round_trip_nanoseconds": 2000, "kept": 0, "blocks": 8, "sides": []}
    far = measure.table("w0", result, "head", [])
    assert far == f"w0\ncore-to-core round trip 2000 ns; 0 of 8 blocks kept\n{measure.NO_FIGURES}"
    assert measure.table("w0", {"sides": [1]}, "head", ["row"], cores=1) == "w0\nhead\nrow"


def test_sides_that_do_other_work_are_an_error(benchmark: Callable[[str], ModuleType]) -> None:
    measure = benchmark("measure")
    floor, a, b, rough = (measure.Side(name, float) for name in ("floor", "a", "b", "rough"))
    measure.check_losses([floor, a, b], [math.nan, 2.3, 2.3001])
    measure.check_losses([a, dataclasses.replace(rough, tolerance=0.1)], [2.3, 2.4])
    with pytest.raises(RuntimeError, match=r"b has a mean loss of 2\.4, a of 2\.3"):
        measure.check_losses([a, b], [2.3, 2.4])


def test_blocks_of_one_core_all_count(benchmark: Callable[[str], ModuleType]) -> None:
    measure = benchmark("measure")
    one, two = measure.Side("one", float), measure.Side("two", float, cores=2)
    blocks = measure.Blocks([3.0, 1.0, 2.0], [0.0] * 3, 0.0, "")
    found = measure.Comparison([one, two], [blocks] * 2, [0.1, 0.1, 0.9, 0.1], measure.Method(3, 0.2))
    assert (found.kept(one), found.kept(two)) == ([0, 1, 2], [0])
    assert (found.seconds(0), found.seconds(1)) == (1.0, 3.0)


def test_other_bits_by_the_same_leaves_are_an_error(benchmark: Callable[[str], ModuleType]) -> None:
    reproducible = benchmark("reproducible")
    reproducible.check_bits([("serial", 2.3), ("team:2", 2.4), ("serial/8", 2.5), ("team:2/8", 2.5)])
    with pytest.raises(RuntimeError, match=r"team:2/8 has a mean loss of 2\.6, serial/8 of 2\.5: other bits"):
        reproducible.check_bits([("serial", 2.3), ("serial/8", 2.5), ("serial/2", 2.6), ("team:2/8", 2.6)])


@pytest.mark.long
def test_the_cost_of_leaves_is_measured(
    root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    script, report = root / "benchmarks" / "reproducible.py", tmp_path / "r.json"
    words = ["--networks", "w0", "--strategies", "serial", "--leaves", "4", "--blocks", "2", "--steps", "4"]
    printed = run_python([script, *words, "--json", report], timeout=100).stdout
    plain, leaves = json.loads(report.read_text())["results"][0]["sides"]
    assert (plain["side"], leaves["side"]) == ("serial", "serial/4")
    assert plain["cost"] == 0
    assert leaves["cost"] == leaves["microseconds"] / plain["microseconds"] - 1 > -1
    assert "serial/4" in printed


@pytest.mark.long
def test_a_side_may_have_an_interpreter_of_its_own(benchmark: Callable[[str], ModuleType]) -> None:
    measure, peers = benchmark("measure"), benchmark("peers")
    network = peers.Network("4-3-2", (4, 3, 2), "tanh", True, 2, steps=3)
    here = measure.Side("here", peers.numpy_step, (network,))
    there = measure.Side("there", peers.numpy_step, (network,), python=sys.executable)
    (one, other), values = measure.alternate([here, there], 2, lambda: 0.0, warm_up=0.001)
    assert one.check == other.check > 0
    assert [len(times) for side in (one, other) for times in (side.seconds, side.alone)] == [2] * 4
    assert len(values) == 3


def test_operations_are_those_of_the_products(benchmark: Callable[[str], ModuleType]) -> None:
    step = benchmark("step")
    assert step.W0.flop == 2 * 105 * (2 * 784 * 256 + 3 * 256 * 10)


@pytest.mark.long
def test_a_step_is_measured_beside_numpy(
    root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    script, report, picture = root / "benchmarks" / "step.py", tmp_path / "step.json", tmp_path / "step.png"
    words = ["--networks", "w0,w3", "--peers", "numpy", "--json", report, "--plot", picture]
    printed = run_python([script, "--quick", *FEW, *words], timeout=100).stdout
    assert "NumPy as installed" in printed
    results = json.loads(report.read_text())["results"]
    assert [result["network"].split()[0] for result in results] == ["784-256-10", "1024-256-256-256-32"]
    for result in results:
        times = {row["side"]: row["microseconds"] for row in result["sides"]}
        assert {"floor: products at FMA peak", "pdnn", "pdnn, shuffled", "NumPy as installed"} <= set(times)
        assert all(0 < microseconds < 1e6 for microseconds in times.values())  # which is less, noise decides
    assert picture.stat().st_size > 1000


def test_convolutions_count_the_taps_that_meet_an_image(benchmark: Callable[[str], ModuleType]) -> None:
    shapes = benchmark("convolutions").CONVOLUTIONS
    assert shapes[0].flop == 2 * 256 * 28 * 28 * 25 * 16
    assert shapes[-1].flop == 2 * 128 * 128 * 128  # a 3x3 window on one pixel: one tap


@pytest.mark.long
def test_jobs_are_measured(root: Path, tmp_path: Path, run_python: Callable[..., Completed]) -> None:
    script, report = root / "benchmarks" / "jobs.py", tmp_path / "j.json"
    run_python([script, *FEW, "--peers", "numpy", "--json", report], timeout=100)
    results = json.loads(report.read_text())["results"]
    assert {"8-8-8, batch 1", "784-256-10, 100 × 105 rows and the loss of all"} <= {
        r["what"] for r in results
    }
    assert all(row["microseconds"] > 0 for result in results for row in result["sides"])


def test_the_matrices_of_a_quoted_job_have_their_exponentials(
    benchmark: Callable[[str], ModuleType],
) -> None:
    quoted = benchmark("quoted")
    job = dataclasses.replace(quoted.EXPM, batch=50, dtype="float64")
    a, exponential = (values.reshape(-1, 2, 2) for values in job.data())
    term = total = np.broadcast_to(np.eye(2), a.shape)
    for number in range(1, 60):
        term = term @ a / number
        total = total + term
    np.testing.assert_allclose(exponential, total, rtol=1e-9)


def test_quoted_jobs_are_told_beside_what_was_published(benchmark: Callable[[str], ModuleType]) -> None:
    quoted, measure = benchmark("quoted"), benchmark("measure")
    job = dataclasses.replace(quoted.EXPM, batch=100, steps=3)
    sides = quoted.expm_sides(job, 1, [])
    report = quoted.compare(sides, job, measure.Method(1, 1.0, 0.001))
    lines = quoted.table(report, 1000, quoted.EXPM_PUBLISHED[:1]).splitlines()
    row, rounded = report["sides"]
    assert lines[2].split()[:2] == ["pdnn", f"{1e6 * row['seconds']:.1f}"]
    assert lines[3].split()[:3] == ["pdnn,", "bfloat16", f"{1e6 * rounded['seconds']:.1f}"]
    assert lines[-1].split() == ["SimpleChains.jl,", "Core", "i9-10980XE", "18", "cores", "0.41", "7.42"]


def test_a_program_is_timed_to_the_end_of_its_first_epoch(
    benchmark: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    first = benchmark("first_epoch")
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.integers(0, 256, (250, 784), np.uint8))
    np.save(tmp_path / "y.npy", rng.integers(0, 10, 250))
    seconds, loss = first.timed("pdnn", first.programs()["pdnn"], str(tmp_path), str(tmp_path))
    assert seconds > 0
    assert loss == first.run_pdnn(str(tmp_path), "float32")
    with pytest.raises(RuntimeError, match="pdnn: ended with code 1"):
        first.timed("pdnn", first.programs()["pdnn"], str(tmp_path / "nowhere"), str(tmp_path))


def test_widths_are_drawn_a_line_for_each_side(
    benchmark: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    widths, step = benchmark("widths"), benchmark("step")
    assert widths.WIDTHS == (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
    assert [widths.network(width, 32).steps for width in (8, 2048)] == [1000, 4]
    names = [side.name for side in widths.sides(widths.network(8, 32), 1, ["numpy"])]
    assert names == [step.FLOOR, "pdnn", "pdnn, bfloat16", "NumPy as installed"]
    results = [
        {
            "width": width,
            "cores": 1,
            "sides": [{"side": name, "microseconds": float(width)} for name in names],
        }
        for width in (8, 16)
    ]
    assert widths.lines(results) == {name: [(8, 8.0), (16, 16.0)] for name in names}
    report = {"machine": {"processor": "made up"}, "batch": 32, "results": results}
    widths.draw(report, str(tmp_path / "widths.svg"))
    drawn = (tmp_path / "widths.svg").read_text()
    assert drawn.count('id="line2d_') > 4


@pytest.mark.long
def test_auto_is_measured_beside_what_it_chooses_from(benchmark: Callable[[str], ModuleType]) -> None:
    auto, measure = benchmark("auto"), benchmark("measure")
    network = dataclasses.replace(auto.CONTROL, steps=20)
    report = auto.compare(network, 2, measure.Method(2, 1.0, 0.001))
    assert [row["side"] for row in report["sides"]] == ["serial", "team:2", "auto"]
    assert auto.table(report).splitlines()[-1] == report["why"]
    assert report["why"].startswith("auto: ")


@pytest.mark.long
def test_kernels_are_measured(root: Path, tmp_path: Path, run_python: Callable[..., Completed]) -> None:
    script, report, picture = root / "benchmarks" / "kernels.py", tmp_path / "k.json", tmp_path / "k.png"
    words = ["--quick", *FEW, "--peers", "none", "--json", report, "--plot", picture]
    printed = run_python([script, *words], timeout=100).stdout
    results = json.loads(report.read_text())["results"]
    passes = [result["kernel"].rpartition(" ")[2] for result in results]
    assert passes == ["forward", "dw"] + ["forward", "dw", "dx"] * 3
    assert all(result["kernel"] in printed for result in results)
    assert all(result["sides"][0]["peak"] > 0 for result in results)
    assert picture.stat().st_size > 1000


@pytest.mark.long
def test_codecs_are_measured(root: Path, tmp_path: Path, run_python: Callable[..., Completed]) -> None:
    script, report = root / "benchmarks" / "codec.py", tmp_path / "codecs.json"
    run_python([script, *FEW, "--codecs", "bf16,1bit", "--json", report], timeout=100)
    half, bit = json.loads(report.read_text())["results"]
    assert half["bytes"] == 2 * 203_530
    assert half["error"] < 2**-8 < 0.5 < bit["error"]
    assert min(half["encode"], half["decode"], bit["encode"], bit["encode_feedback"]) > 0


@pytest.mark.long
def test_epochs_are_measured_beside_other_programs(
    root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    words = ["--rounds", "1", "--epochs", "1", "--nice", "5", "--json", tmp_path / "c.json"]
    lines = run_python([root / "benchmarks" / "crowded.py", *words], timeout=90).stdout.splitlines()[3:]
    results = json.loads((tmp_path / "c.json").read_text())["results"]
    assert [line.split()[0] for line in lines] == [result["strategy"] for result in results]
    assert min(min(result["quiet"], result["crowded"]) for result in results) > 0


@pytest.mark.skipif(_core.available_cores() < 2, reason="each stage computes on a core of its own")
def test_idle_time_of_a_pipeline_is_measured_beside_its_formula(
    root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    words = ["--micros", "1,3", "--simulate", "4", "--width", "24", "--layers", "4", "--rows", "12"]
    script, picture, report = root / "benchmarks" / "pipeline.py", tmp_path / "step.png", tmp_path / "p.json"
    words += ["--steps", "2", "--json", report, "--plot", picture]
    lines = run_python([script, *words], timeout=90).stdout.splitlines()[1:]
    results = json.loads(report.read_text())["results"]
    for line, result, (name, micros) in zip(lines, results, product(("gpipe", "1f1b"), (1, 3)), strict=True):
        assert line.split()[:2] == [name, str(micros)]
        assert result["formula"] == 1 / (micros + 1)
        assert 0 < result["measured"] < 1
        assert 0 < result["simulated"] < 1
        assert 1 > result["more_stages"]["4"] > 0.9 * 3 / (micros + 3)
        assert result["in_flight"] == ([micros] * 2 if name == "gpipe" else [min(micros, 2), 1])
    assert picture.stat().st_size > 1000


@pytest.mark.long
def test_subnormal_numbers_are_0_to_ranks_of_torch(
    root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    pytest.importorskip("torch")
    code = (
        "import peers, scaling, torch\n"
        "network = peers.Network('4-3-2', (4, 3, 2), 'tanh', True, 2, steps=1)\n"
        f"scaling.torch_ranks(network, {str(tmp_path / 'meeting')!r})()\n"
        "print('product', float(torch.tensor(1e-30) * 1e-10))\n"
    )
    where = os.pathsep.join([str(root / "benchmarks"), *sys.path])
    said = run_python(["-c", code], timeout=100, env={"PYTHONPATH": where, "PDNN_MPI": "0"}).stdout
    assert "product 0.0" in said


@pytest.mark.long
def test_a_whole_training_by_torch_is_compiled_before_it_is_timed(
    root: Path, run_python: Callable[..., Completed]
) -> None:
    pytest.importorskip("torch")
    code = (
        "import digits, torch\n"
        "class Few(digits.LeNet5):\n"
        "    def data(self, train):\n"
        "        return super().data(train)[:256]\n"
        "compiled = []\n"
        "torch.compile = lambda step: compiled.append(step) or step\n"
        "run, found = digits.torch_lenet(Few(epochs=4, rate=.01), 1, True, False, True), []\n"
        "for _ in range(2):\n"
        "    torch.manual_seed(0)\n"
        "    found.append(run()[2]['accuracy'])\n"
        "print(len(compiled), 'compiled;', found[0] == found[1] > .2)\n"
    )
    where = os.pathsep.join([str(root / "benchmarks"), *sys.path])
    assert "1 compiled; True" in run_python(["-c", code], timeout=100, env={"PYTHONPATH": where}).stdout


@pytest.mark.long
def test_estimators_are_measured_beside_those_of_scikit_learn(
    root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    report = tmp_path / "r.json"
    words = ["--quick", "--tables", "small", *FEW, "--json", report]
    printed = run_python([root / "benchmarks" / "estimators.py", *words], timeout=100).stdout
    sides = json.loads(report.read_text())["results"][0]["sides"]
    assert [side["side"] for side in sides] == ["pdnn", "pdnn, float64", "scikit-learn"]
    assert sides[0]["ratio"] == 1 and sides[2]["milliseconds"] > 0
    assert "ms an epoch" in printed
    words = ["--seeds", "2", "--tables", "wine,diabetes", "--json", report]
    printed = run_python([root / "benchmarks" / "estimator_scores.py", *words], timeout=100).stdout
    for found in json.loads(report.read_text())["results"]:
        for (own, _), (other, _) in zip(found["pdnn"], found["scikit-learn"], strict=True):
            assert own == pytest.approx(other, abs=0.1)
    assert printed.count(" ± ") == 2
    (tmp_path / "plot_mlp_alpha.py").write_text(
        "from sklearn.datasets import load_iris\n"
        "from sklearn.neural_network import MLPClassifier\n"
        "print(__doc__, __name__, MLPClassifier.__module__)\n"
        "model = MLPClassifier(max_iter=3, random_state=0)\n"
        "for _ in range(2):\n"
        "    print(model.fit(*load_iris(return_X_y=True)).score(*load_iris(return_X_y=True)))\n"
    )
    words = [tmp_path, "--quick", "--examples", "alpha", "--json", report]
    run_python([root / "benchmarks" / "examples.py", *words], timeout=100)
    own, other = json.loads(report.read_text())["results"][0]["sides"]
    assert (own["fits"], other["fits"], own["ratio"]) == (2, 2, 1)
    assert own["seconds"] > 0 and own["score"] == pytest.approx(other["score"], abs=0.02)


@pytest.mark.long
def test_a_long_run_is_timed_piece_by_piece(
    root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    script, report = root / "benchmarks" / "long_run.py", tmp_path / "r.json"
    run_python([script, "--steps", "16", "--every", "8", "--json", report], timeout=100)
    results = json.loads(report.read_text())["results"]
    assert [result["steps"] for result in results] == [8, 16]
    assert all(result["microseconds"]["pdnn"] > 0 for result in results)
    refused = run_python([script, "--every", "7"], timeout=100, check=False)
    assert "--every is a multiple of 4 steps" in refused.stdout


def test_samples_of_a_step_have_phases(benchmark: Callable[[str], ModuleType]) -> None:
    phases = benchmark("phases")
    report = (
        "# comment\n\n"
        "    60.00%|_core.so   |[.] pdnn::kernels::(anonymous namespace)::multiply_tile<4, 6, true>\n"
        "    25.00%|_core.so   |[.] pdnn::threads::Barrier::wait\n"
        "    10.00%|libpython3.11.so.1.0|[.] _PyEval_EvalFrameDefault\n"
        "     4.00%|[kernel.kallsyms]|[k] clear_page\n"
        "     1.00%|_core.so   |[.] pdnn::Trainer::other|operator\n"
    )
    found = phases.shares(report)
    assert sum(found.values()) == pytest.approx(1)
    assert [phases.phase_of(*key) for key in found] == [
        "products: tiles",
        "waiting",
        phases.PYTHON,
        phases.KERNEL,
        phases.OTHER,
    ]


def test_phases_say_what_is_missing(
    benchmark: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit):
        benchmark("phases").main([])
    assert "there is no `perf` here; install" in capsys.readouterr().err


def test_what_perf_says_when_it_fails_is_told(
    benchmark: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    perf = tmp_path / "perf"
    perf.write_text("#!/bin/sh\necho may not look >&2\nexit 255\n")
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    phases, peers = benchmark("phases"), benchmark("peers")
    network = peers.Network("4-3-2", (4, 3, 2), "tanh", True, 2, steps=3)
    sample = phases.profiled(network, "serial", "", "cpu-clock", 0.01)
    with pytest.raises(RuntimeError, match="perf record failed: may not look"):
        sample()
