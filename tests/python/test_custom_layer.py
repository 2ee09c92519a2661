"""Layers of one's own in C++: an extension compiled against the package's headers, and examples/cpp_layer."""

from __future__ import annotations

import copy
import os
import pickle
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from processes import Completed, run

CLASS = """
import {extension}
from pdnn import nn

class {name}(nn.CustomLayer):
    dtype_of_all = None

    def __init__(self, features: int) -> None:
        super().__init__(features=features)

    def make(self, dtype: str) -> object:
        return {extension}.make(self.dtype_of_all or dtype, self.features)
"""


@pytest.fixture(scope="module")
def compiler() -> list[str]:
    """A command that compiles against the package's headers."""
    program = shutil.which("c++")
    if program is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("no C++ compiler or no headers of Python here")
    return [program, "-std=c++20", f"-I{pdnn.get_include()}", f"-I{sysconfig.get_path('include')}"]


@pytest.fixture(scope="module")
def scale(compiler: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[nn.CustomLayer]]:
    """The class Scale of the module `scale`."""
    folder = tmp_path_factory.mktemp("scale")
    (folder / "scale.py").write_text(CLASS.format(extension="_scale", name="Scale"))
    command = [*compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
    command += ["-DINIT=PyInit__scale", '-DNAME="_scale"']
    target = folder / f"_scale{sysconfig.get_config_var('EXT_SUFFIX')}"
    undefined = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    run([*command, *undefined, Path(__file__).with_name("custom_layer.cpp"), "-o", target], timeout=60)
    sys.path.insert(0, str(folder))
    from scale import Scale

    yield Scale
    sys.path.remove(str(folder))


def network(scale: type[nn.CustomLayer], **options: object) -> nn.Sequential:
    layers = (nn.Linear(6, 4), scale(4), nn.Tanh(), nn.Linear(4, 2))
    return nn.Sequential(*layers, **{"seed": 3, "dtype": "float64"} | options)


def test_the_layer_of_the_docs_compiles(root: Path, compiler: list[str], tmp_path: Path) -> None:
    page = (root / "docs" / "custom-layer.md").read_text()
    parts = re.findall(r"^```cpp\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    source = tmp_path / "scale.cpp"
    source.write_text("".join(parts).replace("…", ""))
    run([*compiler, "-fsyntax-only", source], timeout=60)


def test_its_gradients_are_finite_differences(scale: type[nn.CustomLayer]) -> None:
    model = network(scale)
    random = np.random.default_rng(5)
    model.flat_parameters[:] = random.normal(size=model.flat_parameters.size)
    x, y = random.normal(size=(7, 6)), random.normal(size=(7, 2))
    _, gradient = model.gradient(x, y, nn.MSELoss())
    for at in range(gradient.size):
        values = []
        for step in (1e-6, -1e-6):
            model.flat_parameters[at] += step
            values.append(model.gradient(x, y, nn.MSELoss())[0])
            model.flat_parameters[at] -= step
        assert gradient[at] == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-6, abs=1e-8)
    outputs = model(x)  # eager: the same layer, called from Python
    nn.MSELoss()(outputs, y).backward()
    np.testing.assert_allclose(model.flat_gradients, gradient, rtol=1e-12)


@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 3)])
def test_channels_come_last(scale: type[nn.CustomLayer], shape: tuple[int, ...]) -> None:
    model = nn.Sequential(scale(3), dtype="float64")
    model.flat_parameters[:] = [1, 10, 100]
    x = np.arange(1.0, 1 + np.prod((1, *shape))).reshape(1, *shape)
    memory = np.moveaxis(x, 1, -1)
    expected = memory.reshape(-1) * np.resize(model.flat_parameters, x.size)
    np.testing.assert_array_equal(model.predict(x), np.moveaxis(expected.reshape(memory.shape), -1, 1))


def test_threads_and_ranks_change_nothing_but_rounding(scale: type[nn.CustomLayer]) -> None:
    random = np.random.default_rng(5)
    x, y = random.normal(size=(60, 6)), random.normal(size=(60, 2))

    def trained(strategy: str) -> np.ndarray:
        model = network(scale)
        optimizer = optim.SGD(model.parameters(), lr=0.01)
        pdnn.Trainer(model, nn.MSELoss(), optimizer, strategy=strategy, seed=1).fit(
            (x, y), epochs=2, batch_size=12, verbose=False
        )
        return model.flat_parameters.copy()

    serial = trained("serial")
    for strategy, ranks in (("team:2", 1), ("pool:2/3", 1), ("ddp", 2), ("pipeline:2", 2)):
        for values in pdnn.run(trained, strategy, ranks=ranks, backend="threads"):
            np.testing.assert_allclose(values, serial, rtol=1e-12)
    leaves = [trained("serial/4"), *pdnn.run(trained, "ddp/4", ranks=2, backend="threads")]
    assert all((values == leaves[0]).all() for values in leaves)


def test_files_and_pickles_bring_it_back(scale: type[nn.CustomLayer], tmp_path: Path) -> None:
    model = network(scale, dtype="float32")
    assert model.flat_parameters.size == 42
    assert model[1].weight.data[3] == model[1].weight.data[0] + 3
    assert repr(model[1]) == "Scale(features=4)"
    changed = scale(3)
    changed.features = 4
    assert changed.config() == {"features": 4}
    model.save(tmp_path / "model.safetensors")
    copies = [pdnn.load_model(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))]
    for other in [*copies, copy.deepcopy(model)]:
        assert other.fingerprint() == model.fingerprint()
        assert type(other[1]) is scale


def test_a_file_of_an_unknown_layer_says_so(
    scale: type[nn.CustomLayer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network(scale).save(tmp_path / "model.safetensors")
    monkeypatch.setattr(nn.CustomLayer, "kinds", {})
    with pytest.raises(ValueError, match=r"Scale is no layer of pdnn.nn, and no nn.CustomLayer that was"):
        pdnn.load_model(tmp_path / "model.safetensors")


def test_errors_are_python_s(scale: type[nn.CustomLayer]) -> None:
    with pytest.raises(ValueError, match="expected a feature"):
        scale(0)
    with pytest.raises(ValueError, match='Scale: "make" cannot be the name of a parameter'):
        scale(13)
    with pytest.raises(ValueError, match="Scale: expected 4 features"):
        nn.Sequential(scale(4)).output_shape((5,))
    model = nn.Sequential(nn.Flatten(), scale(4), dtype="float64")
    data, optimizer = (np.full((8, 4), 1000.0), np.ones((8, 4))), optim.SGD(model.parameters(), lr=0.1)
    for strategy in ("serial", "team:2"):
        trainer = pdnn.Trainer(model, nn.MSELoss(), optimizer, strategy=strategy)
        with pytest.raises(RuntimeError, match="Scale: too bright"):
            trainer.fit(data, epochs=1, batch_size=4, verbose=False)
    bright = np.full((8, 4), 1e5), data[1]
    with pytest.raises(RuntimeError, match="Scale: too bri\ufffd"):  # its words are no UTF-8
        trainer.fit(bright, epochs=1, batch_size=4, verbose=False)
    with pytest.raises(ValueError, match=r"saves 9223372036854775807 elements a row; expected .* 2\*\*40"):
        nn.Sequential(scale(17)).predict(np.ones((2, 17), np.float32))
    with pytest.raises(ValueError, match="layer 1, Scale: cannot be written as C"):
        model.to_c("model.c", (4,))


def test_what_is_no_layer_is_refused(scale: type[nn.CustomLayer], monkeypatch: pytest.MonkeyPatch) -> None:
    layer = scale(4)
    monkeypatch.setattr(scale, "dtype_of_all", "float64")
    with pytest.raises(ValueError, match="whose numbers have 8 bytes, expected 4"):
        layer.build(pdnn.core.core_for("float32"))
    monkeypatch.setattr(scale, "dtype_of_all", "float16")
    with pytest.raises(ValueError, match='dtype "float16"; expected'):
        layer.build(pdnn.core.core_for("float32"))
    monkeypatch.setattr(scale, "make", lambda self, dtype: "a layer")
    with pytest.raises(TypeError, match=r"Scale: got str, expected what pdnn::custom::layer_capsule"):
        scale(4)
    monkeypatch.undo()
    made = layer.make("float32")
    monkeypatch.setattr(scale, "make", lambda self, dtype: made)
    layer.build(pdnn.core.core_for("float32"))
    with pytest.raises(ValueError, match="in use already; make a new one each time"):
        layer.build(pdnn.core.core_for("float32"))


def test_arguments_that_files_could_not_bring_back_are_refused(scale: type[nn.CustomLayer]) -> None:
    with pytest.raises(TypeError, match=r"Scale: files of models cannot hold the arguments .*int64"):
        scale(np.int64(4))  # type: ignore[arg-type]

    def other_names(self: nn.CustomLayer, width: int) -> None:
        nn.CustomLayer.__init__(self, features=width)

    other = type("Other", (scale,), {"__init__": other_names, "__module__": scale.__module__})
    with pytest.raises(
        TypeError, match=r"Other: files of models could not make it again by Other\(.*their own"
    ):
        other(4)


def test_arguments_that_files_would_lose_are_refused(scale: type[nn.CustomLayer]) -> None:
    def with_more(self: nn.CustomLayer, features: int, more: float = 0.5, **others: float) -> None:
        nn.CustomLayer.__init__(self, features=features)

    lossy = type("Lossy", (scale,), {"__init__": with_more, "__module__": scale.__module__})
    with pytest.raises(TypeError, match=r"could not make it again by Lossy\(.*\(without more\); hand its"):
        lossy(4, more=0.25)

    for name in ("training", "type", "dtype", "config"):

        def named(self: nn.CustomLayer, features: int, **given: object) -> None:
            nn.CustomLayer.__init__(self, features=features, **given)

        taken = type("Taken", (scale,), {"__init__": named, "__module__": scale.__module__})
        with pytest.raises(ValueError, match=f'Taken: "{name}" cannot be the name of an argument'):
            taken(4, **{name: True})


def test_sizes_that_have_changed_are_told(scale: type[nn.CustomLayer]) -> None:
    layers = scale(4), nn.Linear(4, 4), nn.BatchNorm1d(4)
    for layer, name in zip(layers, ("features", "out_features", "num_features"), strict=True):
        setattr(layer, name, 8)
        with pytest.raises(ValueError, match="a layer's sizes were changed after it was made; make a new"):
            nn.Sequential(nn.Linear(8, 4), layer).parameters()


def test_names_that_files_could_not_tell_apart_are_refused(scale: type[nn.CustomLayer]) -> None:
    with pytest.raises(TypeError, match=r"pdnn\.nn\.layers has a layer of this name"):
        type("Linear", (nn.CustomLayer,), {})
    with pytest.raises(TypeError, match="scale has a layer of this name"):
        type("Scale", (nn.CustomLayer,), {"__module__": "another"})


@pytest.mark.long
def test_the_example_trains_as_the_builtin_layer(
    root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("no CMake here")
    configure = ["cmake", "-S", root / "examples" / "cpp_layer", "-B", tmp_path]
    run([*configure, f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_CXX_FLAGS=-O1"], timeout=60)
    run(["cmake", "--build", tmp_path], timeout=100)
    train = [root / "examples" / "cpp_layer" / "train.py"]
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    for words in (["serial"], ["team:2"], ["ddp", "2"], ["pipeline:2", "2"]):
        said = run_python([*train, *words], env={"PYTHONPATH": path}).stdout
        assert float(said.split()[-1]) < 1e-13
