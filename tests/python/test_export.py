"""Models as ONNX and as C: onnxruntime, onnx's reference and a C compiler compute what pdnn predicts."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import cli, models, nn
from pdnn.files import safetensors
from processes import Completed
from random_networks import draw_trained
from random_rounds import random_rounds

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx_ir")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx.reference import ReferenceEvaluator  # noqa: E402

COMPILER = shutil.which("cc")
FLAGS = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC"]
FLAGS += ["-Wconversion", "-Wdouble-promotion"]


def by_onnx(path: Path, x: Any) -> list[Any]:
    """Outputs by onnxruntime, and by onnx's reference, of a file that the checker takes."""
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    return [session.run(None, {"input": x})[0], ReferenceEvaluator(str(path)).run(None, {"input": x})[0]]


def by_c(path: Path, x: Any, outputs: tuple[int, ...]) -> Any:
    """Outputs by a C file, in memory that is as long as it says."""
    if COMPILER is None:
        pytest.skip("no C compiler")
    library = path.with_suffix(".so")
    subprocess.run([COMPILER, *FLAGS, "-o", library, path, "-lm"], check=True, timeout=60)
    words = [line.split() for line in path.read_text().splitlines() if line.startswith("#define")]
    sizes = {name.rpartition("_")[2]: int(size) for _, name, size in words}
    assert sizes["INPUTS"] == x[0].size and sizes["OUTPUTS"] == prod(outputs)
    y = np.full((len(x), prod(outputs)), np.nan, x.dtype)
    guarded = np.full(sizes["WORK"] + 1, 7, x.dtype)
    predict = getattr(ctypes.CDLL(str(library)), f"{path.stem}_predict")
    for sample, row in zip(np.ascontiguousarray(x), y, strict=True):
        predict(*(ctypes.c_void_p(array.ctypes.data) for array in (sample, row, guarded)))
    assert guarded[-1] == 7, "it keeps to its workspace"
    return y.reshape(len(x), *outputs)


def check(rng: np.random.Generator, folder: Path) -> None:
    model, shape = draw_trained(rng)
    print(shape, model)
    x = rng.standard_normal((int(rng.integers(1, 5)), *shape)).astype(np.float32)
    want = model.predict(x)
    name = f"net{rng.integers(1 << 60)}"  # a library of the same name would not be loaded again
    model.to_onnx(folder / f"{name}.onnx", shape)
    model.to_c(folder / f"{name}.c", shape)
    for got in [*by_onnx(folder / f"{name}.onnx", x), by_c(folder / f"{name}.c", x, want.shape[1:])]:
        assert got.shape == want.shape and got.dtype == want.dtype
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


def test_random_networks(tmp_path: Path) -> None:
    random_rounds(8, lambda rng: check(rng, tmp_path))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_fifty_random_networks(tmp_path: Path) -> None:
    random_rounds(50, lambda rng: check(rng, tmp_path))


def test_every_layer_is_in_some_network() -> None:
    """A layer that is new in pdnn.nn has to be written, and drawn here or in random_networks."""
    from pdnn.exchange import to_c, to_onnx

    layers = {name for name in nn.__all__ if isinstance(thing := getattr(nn, name), type) and is_layer(thing)}
    drawn: set[str] = set()
    for seed in range(200):
        drawn |= {type(part).__name__ for part in draw_trained(np.random.default_rng(seed))[0].modules()}
    # Embedding's samples are drawn below; CustomLayer is the base of layers that only their extensions know.
    assert drawn | {"Embedding", "CustomLayer"} == layers
    written = {*to_c.FUNCTIONS, "Sequential", "Flatten", "Dropout"}  # three have no function
    assert {*to_onnx.LAYERS} == written == layers - {"CustomLayer"}


def is_layer(thing: type) -> bool:
    """Whether the core runs it, on one rank."""
    builds = issubclass(thing, nn.Module) and thing.build is not nn.Module.build
    return builds and not issubclass(thing, (nn.ColumnParallelLinear, nn.RowParallelLinear))


@pytest.mark.parametrize(("flat", "dtype"), [(True, "float32"), (True, "float64"), (False, "float32")])
def test_embeddings(flat: bool, dtype: str, tmp_path: Path) -> None:
    rest = [nn.Flatten(), nn.Linear(6, 4), nn.Tanh()] if flat else [nn.Conv1d(3, 2, 2)]
    model = nn.Sequential(nn.Embedding(9, 2, 1), *rest, dtype=dtype, seed=1)
    x = np.random.default_rng(0).integers(0, 9, (5, 3)).astype(dtype)
    want = model.predict(x)
    model.to_onnx(tmp_path / "a.onnx", (3,))
    name = f"embedding{flat}{dtype}"
    model.to_c(tmp_path / f"{name}.c", (3,))
    for got in [*by_onnx(tmp_path / "a.onnx", x), by_c(tmp_path / f"{name}.c", x, want.shape[1:])]:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    again = pdnn.models.from_onnx(tmp_path / "a.onnx")
    np.testing.assert_array_equal(again.predict(x), want)
    for none in (np.nan, -1, 9, 0.5):
        x[3, 1] = none
        assert np.isnan(by_c(tmp_path / f"{name}.c", x, want.shape[1:])[3]).any(), none


@pytest.mark.parametrize(
    "layer",
    [
        *(
            lambda: nn.ELU(2),
            lambda: nn.LeakyReLU(0),
            lambda: nn.Softplus(2, 10),
            lambda: nn.LayerNorm(6, eps=1),
        ),
        *(lambda: nn.BatchNorm1d(6, eps=1, momentum=1), lambda: nn.BatchNorm1d(6, momentum=0)),
    ],
)
def test_numbers_may_be_integers(layer: Callable[[], nn.Module], tmp_path: Path) -> None:
    model = nn.Sequential(layer())
    model.eval()
    x = np.linspace(-2, 3, 12, dtype=np.float32).reshape(2, 6)
    model.to_onnx(tmp_path / "a.onnx", (6,))
    for got in by_onnx(tmp_path / "a.onnx", x):
        np.testing.assert_allclose(got, model.predict(x), rtol=1e-5, atol=1e-6)
    assert pdnn.models.from_onnx(tmp_path / "a.onnx").predict(x).shape == (2, 6)


@pytest.mark.parametrize("layers", [[], [nn.Dropout()], [nn.Residual(nn.Sequential())]])
def test_networks_that_compute_little(layers: list[nn.Module], tmp_path: Path) -> None:
    model = nn.Sequential(*layers)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    model.to_onnx(tmp_path / "none.onnx", (3,))
    model.to_c(tmp_path / f"little{len(str(model))}.c", (3,))
    results = [*by_onnx(tmp_path / "none.onnx", x), by_c(tmp_path / f"little{len(str(model))}.c", x, (3,))]
    assert all((got == model.predict(x)).all() for got in results)


NAMES = ["cat", 'say "float"', "o\u0308tzi\\n", "1.5f ??/*/"]
"""Names of classes that are hard to write."""


def test_names_of_classes_leave_and_come_back(tmp_path: Path) -> None:
    model = pdnn.models.mlp([2, 4], dtype="float64", seed=1)
    with pytest.raises(TypeError, match="expected a sequence of names"):
        model.classes = [1, 2, 3, 4]
    with pytest.raises(ValueError, match="a name is there twice"):
        model.classes = ["a", "a"]
    assert model.classes is None
    model.classes = NAMES
    model.save(tmp_path / "model.safetensors")
    words = ["export", str(tmp_path / "model.safetensors")]
    assert cli.main([*words, str(tmp_path / "model.onnx")]) == 0
    assert cli.main([*words, str(tmp_path / "named.c")]) == 0
    metadata = onnxruntime.InferenceSession(tmp_path / "model.onnx").get_modelmeta().custom_metadata_map
    assert json.loads(metadata["pdnn.classes"]) == NAMES
    loaded, without = (pdnn.models.mlp([2, 4], dtype="float64", seed=2) for _ in range(2))
    without.save(tmp_path / "without.safetensors")
    loaded.load(tmp_path / "model.safetensors")
    assert loaded.fingerprint() == model.fingerprint()
    loaded.load(tmp_path / "without.safetensors")  # which says nothing of names
    for back in (
        loaded,
        pdnn.load_model(tmp_path / "model.safetensors"),
        pdnn.models.from_onnx(tmp_path / "model.onnx"),
    ):
        assert back.classes is not None and back.classes.tolist() == NAMES
    x = np.ones((1, 2))
    np.testing.assert_allclose(by_c(tmp_path / "named.c", x, (4,)), model.predict(x))
    library = ctypes.CDLL(str(tmp_path / "named.so"))
    names = (ctypes.c_char_p * 4).in_dll(library, "named_classes")
    assert [name.decode() for name in names] == NAMES


def test_more_names_of_classes_than_outputs_are_refused(tmp_path: Path) -> None:
    for outputs in (1, 3):
        model = pdnn.models.mlp([2, outputs], seed=1)
        model.classes = ["a", "b"]
        model.to_c(tmp_path / "model.c")
        model.classes = ["a", "b", "c", "d"]
        for name, write in (("to_c", model.to_c), ("to_onnx", model.to_onnx)):
            with pytest.raises(ValueError, match=f"{name}: model.classes has 4 names for {outputs} outputs"):
                write(tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["model.c"]


@pytest.mark.parametrize("names", ["[", "7", '["a", "a"]', '[["a"]]', "[" * 10000])
def test_metadata_without_names_are_refused(names: str, tmp_path: Path) -> None:
    model = pdnn.models.mlp([2, 3], seed=1)
    model.save(tmp_path / "model.safetensors")
    arrays, metadata = safetensors.read(tmp_path / "model.safetensors")
    safetensors.write(tmp_path / "broken.safetensors", arrays, metadata | {"pdnn.classes": names})
    with pytest.raises(ValueError, match=r"broken\.safetensors: its metadata pdnn\.classes has no names"):
        pdnn.load_model(tmp_path / "broken.safetensors")
    other = pdnn.models.mlp([2, 3], seed=2)
    before = other.fingerprint()
    with pytest.raises(ValueError, match=r"broken\.safetensors: its metadata pdnn\.classes has no names"):
        other.load(tmp_path / "broken.safetensors")
    assert other.fingerprint() == before and other.classes is None


def test_what_the_file_says_of_the_model(tmp_path: Path) -> None:
    model = pdnn.models.mlp([4, 5, 3], dtype="bfloat16", seed=1)
    model.to_onnx(tmp_path / "a.onnx")
    written = onnx.load(tmp_path / "a.onnx")
    assert (written.producer_name, written.producer_version) == ("pdnn", pdnn.__version__)
    assert {entry.key: entry.value for entry in written.metadata_props} == {
        "pdnn.fingerprint": model.fingerprint(),
        "pdnn.input_shape": "[4]",
    }
    (array,) = (onnx.numpy_helper.to_array(a) for a in written.graph.initializer if a.name == "0.weight")
    assert array.dtype == np.float32 and (array == model[0].weight.data).all()
    model.to_c(tmp_path / "7-nets.c")
    text = (tmp_path / "7-nets.c").read_text()
    assert model.fingerprint() in text and "void model_7_nets_predict(const float *x" in text


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float64_stays_or_is_rounded(dtype: str, tmp_path: Path) -> None:
    model = pdnn.models.mlp([6, 9, 4], "tanh", dtype="float64", seed=2)
    x = np.random.default_rng(0).standard_normal((3, 6)).astype(dtype)
    want = model.predict(x.astype("float64"))
    model.to_onnx(tmp_path / "a.onnx", dtype=dtype)
    model.to_c(tmp_path / f"{dtype}.c", dtype=dtype)
    for got in [*by_onnx(tmp_path / "a.onnx", x), by_c(tmp_path / f"{dtype}.c", x, (4,))]:
        assert got.dtype == dtype
        assert np.abs(got - want).max() <= {"float32": 1e-5, "float64": 1e-14}[dtype] * np.abs(want).max()


@pytest.mark.parametrize(("beta", "threshold"), [(2.5, 20), (0.5, 0.3), (1, -1), (1.5, 200)])
def test_softplus_of_any_numbers(beta: float, threshold: float, tmp_path: Path) -> None:
    """Also of those whose exponential overflows."""
    model = nn.Sequential(nn.Softplus(beta, threshold))
    x = np.linspace(-30, 80 if threshold > 100 else 30, 12, dtype=np.float32).reshape(2, 6)
    model.to_onnx(tmp_path / "a.onnx", (6,))
    model.to_c(tmp_path / f"softplus{int(10 * beta)}.c", (6,))
    for got in [*by_onnx(tmp_path / "a.onnx", x), by_c(tmp_path / f"softplus{int(10 * beta)}.c", x, (6,))]:
        np.testing.assert_allclose(got, model.predict(x), rtol=1e-5)


CURVES = ["ReLU", "LeakyReLU", "Sigmoid", "Tanh", "ELU", "SiLU", "Softplus", "GELU"]


@pytest.mark.parametrize(
    ("layer", "dtype"),
    [*((curve, "float32") for curve in CURVES), ("GELU", "float64"), ("MaxPool1d", "float64")],
)
def test_all_numbers_and_nan_in_c(layer: str, dtype: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.MaxPool1d(2) if layer == "MaxPool1d" else getattr(nn, layer)(), dtype=dtype)
    x = np.array([[[np.nan, 1, 2, np.nan, -1, 3, -0.0, 0, np.inf, -np.inf, -200, -9, -5, 300]]], dtype)
    model.to_c(tmp_path / f"all_{layer}{dtype}.c", (1, 14))
    want = model.predict(x)
    assert np.isnan(want).any()
    got = by_c(tmp_path / f"all_{layer}{dtype}.c", x, want.shape[1:])
    np.testing.assert_allclose(got, want, rtol=5e-6 if dtype == "float32" else 1e-13)


def test_layer_norms_of_many_features_far_from_0(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LayerNorm(2048))
    x = (np.random.default_rng(0).standard_normal((3, 2048)) + 100).astype(np.float32)
    model.to_c(tmp_path / "far.c")
    got, want = by_c(tmp_path / "far.c", x, (2048,)), model.predict(x)
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([nn.Tanh(), nn.Linear(7, 2)], [7]),
        ([nn.Residual(nn.Sequential(nn.ReLU(), nn.BatchNorm1d(5)))], [5]),
        ([nn.Sequential(nn.Dropout()), nn.Sequential(nn.LayerNorm(4))], [4]),
        ([nn.LayerNorm(4), nn.Linear(4, 2)], [4]),
        ([nn.Flatten(), nn.Linear(12, 2)], None),
        ([nn.Conv2d(1, 2, 3)], None),
        ([nn.ReLU()], None),
        ([nn.Embedding(5, 2)], None),
        ([nn.BatchNorm2d(3)], None),
        ([nn.Softmax(), nn.Sequential(), nn.Linear(3, 2)], [3]),
    ],
)
def test_the_shape_of_samples_is_asked_for_where_no_layer_says_it(
    layers: list[nn.Module], shape: list[int] | None, tmp_path: Path
) -> None:
    model = nn.Sequential(*layers)
    if shape is None:
        with pytest.raises(ValueError, match=r"several shapes; .*input_shape=\(3, 32, 32\)"):
            model.to_onnx(tmp_path / "a.onnx")
        return
    model.to_onnx(tmp_path / "a.onnx")
    sizes = onnx.load(tmp_path / "a.onnx").graph.input[0].type.tensor_type.shape.dim
    assert [sizes[0].dim_param, *(size.dim_value for size in sizes[1:])] == ["batch", *shape]


class Doubled(nn.ReLU):
    def forward(self, x: Any) -> Any:
        return x + x


class Mine(nn.ReLU):
    pass


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for write in (nn.Sequential.to_onnx, nn.Sequential.to_c):
        path = tmp_path / "a.file"
        with pytest.raises(TypeError, match="Doubled has its forward in Python"):
            write(nn.Sequential(Doubled()), path, (2,))
        with pytest.raises(ValueError, match=r"layer 1\.fn, Mine: cannot be written as"):
            write(nn.Sequential(nn.ReLU(), nn.Residual(Mine())), path, (2,))
        with pytest.raises(ValueError, match="this layer takes 4"):
            write(nn.Sequential(nn.Linear(4, 2)), path, (3,))
        with pytest.raises(ValueError, match="dtype float16"):
            write(nn.Sequential(nn.Linear(4, 2)), path, dtype="float16")
        assert not path.exists()
    model = nn.Sequential(nn.Linear(2, 2))
    for number in (np.nan, np.inf, -np.inf):
        model.flat_parameters[0] = number
        with pytest.raises(ValueError, match="layer 0, Linear: its weight is not finite"):
            model.to_c(tmp_path / "a.c")


def test_part_of_a_model_is_written_alone(tmp_path: Path) -> None:
    part = pdnn.models.mlp([5, 4, 3], seed=3)[:2]
    x = np.random.default_rng(1).random((2, 5), np.float32)
    part.to_onnx(tmp_path / "part.onnx")
    for got in by_onnx(tmp_path / "part.onnx", x):
        np.testing.assert_allclose(got, part.predict(x), rtol=1e-6)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3), seed=4)
    model.save(tmp_path / "model.safetensors")
    x = np.random.default_rng(1).random((2, 1, 4, 4), np.float32)
    words = ["export", str(tmp_path / "model.safetensors")]
    assert cli.main([*words, str(tmp_path / "model.onnx")]) == 1
    assert "--input-shape 3x32x32" in capsys.readouterr().err
    for ending in ("onnx", "c"):
        assert cli.main([*words, str(tmp_path / f"cnn.{ending}"), "--input-shape", "1x4x4"]) == 0
    for got in [*by_onnx(tmp_path / "cnn.onnx", x), by_c(tmp_path / "cnn.c", x, (3,))]:
        np.testing.assert_allclose(got, model.predict(x), rtol=1e-5)
    for wrong, said in [
        (["model.pb"], "'model.pb' ends in neither .onnx nor .c"),
        (["model.onnx", "--input-shape", "3x"], "'3x' is no shape"),
    ]:
        with pytest.raises(SystemExit):
            cli.main([*words, *wrong])
        assert said in capsys.readouterr().err


def test_what_a_training_has_noted_leaves_and_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, noted = models.mlp([2, 3, 1], seed=1), {"pdnn.loss": "mse", "pdnn.columns": '["a", "b"]'}
    first, onnx, last = (str(tmp_path / name) for name in ("a.safetensors", "m.onnx", "b.safetensors"))
    model.save(first, noted | {"mine": "stays"})
    assert cli.main(["export", first, onnx]) == cli.main(["import", onnx, last]) == 0
    assert noted.items() <= models.read_onnx(onnx)[1].items()
    table = tmp_path / "table.csv"
    table.write_text("a,c,price\n1,2,3\n4,5,6\n")
    assert cli.main(["predict", last, str(table), "--target", "price"]) == 1
    assert "b.safetensors was trained on ['a', 'b']" in capsys.readouterr().err
    model.to_onnx(onnx, metadata={"mine": "too", "pdnn.fingerprint": "stays pdnn's"})
    found = models.read_onnx(onnx)[1]
    assert (found["mine"], found["pdnn.fingerprint"]) == ("too", model.fingerprint())
    numbers: Any = {"epochs": 5}
    with pytest.raises(TypeError, match="to_onnx: metadata 'epochs' is 5, expected a string"):
        model.to_onnx(onnx, metadata=numbers)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_model_without_parameters_keeps_its_dtype(dtype: str, tmp_path: Path) -> None:
    nn.Sequential(nn.Tanh(), dtype=dtype).to_onnx(tmp_path / "tanh.onnx", (3,))
    assert models.from_onnx(tmp_path / "tanh.onnx").dtype == dtype


def test_what_an_onnx_file_cannot_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pdnn.exchange import to_onnx

    model = nn.Sequential(nn.Linear(9, 3))
    monkeypatch.setattr(to_onnx, "_MOST_BYTES", 120)
    with pytest.raises(ValueError, match=r"model\.onnx: the model has 120 bytes of parameters"):
        model.to_onnx(tmp_path / "model.onnx", (9,))
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(to_onnx, "_MOST_BYTES", 121)
    model.to_onnx(tmp_path / "model.onnx", (9,))


def test_without_onnx_ir_an_error_says_what_to_install(run_python: Callable[..., Completed]) -> None:
    code = """
import sys
sys.modules["onnx_ir"] = None
import pdnn
model = pdnn.models.mlp([2, 2])
try:
    model.to_onnx("never.onnx")
except ImportError as error:
    print(error)
"""
    assert "pip install onnx-ir" in run_python(["-c", code]).stdout


def test_an_onnx_ir_that_is_broken_is_not_told_as_missing(
    run_python: Callable[..., Completed], tmp_path: Path
) -> None:
    (tmp_path / "onnx_ir.py").write_text("from numpy import no_such_thing\n")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import pdnn
for call in (pdnn.models.mlp([2, 2]).to_onnx, pdnn.models.from_onnx):
    try:
        call("never.onnx")
    except ImportError as error:
        print(error)
"""
    said = run_python(["-c", code]).stdout
    assert said.count("no_such_thing") == 2 and "pip install" not in said
