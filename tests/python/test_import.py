"""ONNX files of scikit-learn, PyTorch, Keras and pdnn: the imported network predicts what they compute."""

from __future__ import annotations

import copy
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import cli, models, nn, optim
from random_networks import draw_trained
from random_rounds import random_rounds

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx_ir")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

RNG = np.random.default_rng(0)


def save(
    path: Path,
    nodes: list[Any],
    constants: dict[str, Any],
    shape: list[Any],
    outputs: list[str] | None = None,
    opset: int = 17,
    rank: int = 2,
) -> Path:
    """A file with these nodes, from x to the last one's output unless others are named."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "test",
        [info("x", TensorProto.FLOAT, ["batch", *shape])],
        [
            info(name, TensorProto.INT64, ["batch"])
            if name == "label"
            else info(name, TensorProto.FLOAT, ["batch", *[None] * (rank - 1)])
            for name in outputs or [nodes[-1].output[0]]
        ],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    domain = "ai.onnx.ml" if op in ("ArrayFeatureExtractor", "LinearRegressor", "Scaler", "ZipMap") else ""
    return helper.make_node(op, inputs.split(), [output], name=f"node_{output}", domain=domain, **attributes)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def assert_same(path: Path, x: Any, output: str | None = None, images: Any = None) -> nn.Sequential:
    """The network of a file, which predicts what the file computes; `images`: x as pdnn takes it."""
    evaluator = ReferenceEvaluator(str(path))
    name = output or evaluator.output_names[-1]
    (want,) = evaluator.run([name], {evaluator.input_names[0]: x})
    model = models.from_onnx(path)
    got = model.predict(np.ascontiguousarray(x if images is None else images))
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
    return model


def kinds(model: nn.Module) -> list[str]:
    return [type(layer).__name__ for layer in model.children()]


def through_torchs_file(network: Any, x: Any, folder: Path) -> nn.Sequential:
    """A torch network that torch exports and pdnn imports; both predict the same."""
    import torch

    path = folder / "torch.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter is not torch's newest, which needs onnxscript
        options = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}, "opset_version": 17}
        torch.onnx.export(network, (x,), path, dynamo=False, **options)
    model = models.from_onnx(path)
    want = network(x).detach().numpy()
    assert np.abs(model.predict(x.numpy()) - want).max() <= 1e-5 * np.abs(want).max()
    return model


# ---- pdnn's own


def check_own(rng: np.random.Generator, folder: Path) -> None:
    model, shape = draw_trained(rng)
    print(shape, model)
    x = rng.standard_normal((3, *shape)).astype(np.float32)
    model.to_onnx(folder / "own.onnx", shape)
    got, want = models.from_onnx(folder / "own.onnx").predict(x), model.predict(x)
    assert np.abs(got - want).max() <= 1e-6 * np.abs(want).max()


def test_what_pdnn_wrote(tmp_path: Path) -> None:
    random_rounds(20, lambda rng: check_own(rng, tmp_path))


def test_windows_of_any_kind(tmp_path: Path) -> None:
    constants = {"w1": normal(4, 1, 3, 2), "w2": normal(6, 4, 2, 3), "b": normal(6), "up": normal(4, 1, 1)}
    nodes = [
        node("Conv", "x w1", "grouped", group=2, strides=[2, 1], pads=[1, 0, 1, 0]),
        node("Add", "grouped up", "more"),
        node("Conv", "more w2 b", "dilated", dilations=[1, 2], pads=[0, 2, 0, 2]),
        node("MaxPool", "dilated", "pool", kernel_shape=[1, 3], strides=[1, 2]),
        node("AveragePool", "pool", "y", kernel_shape=[2, 1], strides=[1, 1]),
    ]
    path = save(tmp_path / "a.onnx", nodes, constants, [2, 7, 9], rank=4)
    assert_same(path, normal(3, 2, 7, 9))
    grouped, dilated, pool, _ = models.from_onnx(path).layers
    assert "stride=(2, 1), padding=(1, 0), groups=2" in repr(grouped)
    assert "padding=(0, 2), dilation=(1, 2)" in repr(dilated) and "stride=(1, 2)" in repr(pool)


def test_double_numbers_stay(tmp_path: Path) -> None:
    layers = [nn.Linear(4, 5), nn.LayerNorm(5), nn.LeakyReLU(0.2), nn.BatchNorm1d(5, momentum=0.3), nn.GELU()]
    model = nn.Sequential(*layers, dtype="float64", seed=1)
    model.to_onnx(tmp_path / "own.onnx")
    again = models.from_onnx(tmp_path / "own.onnx")
    assert again.dtype == "float64" and repr(again) == repr(model)
    assert again.fingerprint() == model.fingerprint()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "numbers", [(1.0, 3.0), (0.7, 0.5), (2.5, -0.3), (2.5, 0.3), (0.3, 20.0), (1.0, 20.0)]
)
def test_softplus_comes_back_with_its_numbers(numbers: Any, dtype: str, tmp_path: Path) -> None:
    layers = [nn.Linear(4, 5), nn.ReLU(), nn.Softplus(*numbers), nn.Linear(5, 2), nn.Softplus(*numbers)]
    model = nn.Sequential(*layers, dtype=dtype, seed=1)
    model.to_onnx(tmp_path / "own.onnx")
    again = models.from_onnx(tmp_path / "own.onnx")
    assert repr(again) == repr(model)
    assert again.fingerprint() == model.fingerprint()


# ---- scikit-learn's, as skl2onnx lays them out


def of_scikit_learn(path: Path, estimator: Any, scaler: Any = None) -> Path:
    """What skl2onnx 1.20 writes for an MLP, after a StandardScaler if there is one."""
    nodes, constants, at = [], {}, "x"
    if scaler is not None:
        numbers = {"offset": scaler.mean_.astype("f4"), "scale": (1 / scaler.scale_).astype("f4")}
        nodes, at = [node("Scaler", "x", "variable", **numbers)], "variable"
    nodes.append(node("Cast", at, "cast_input", to=TensorProto.FLOAT))
    at = "cast_input"
    operators = {"relu": "Relu", "tanh": "Tanh", "logistic": "Sigmoid", "softmax": "Softmax"}
    last = len(estimator.coefs_) - 1
    for index, (weight, bias) in enumerate(zip(estimator.coefs_, estimator.intercepts_, strict=True)):
        constants |= {f"coef{index}": weight.astype("f4"), f"bias{index}": bias[None].astype("f4")}
        nodes.append(node("MatMul", f"{at} coef{index}", f"mul{index}"))
        nodes.append(node("Add", f"mul{index} bias{index}", at := f"add{index}"))
        function = estimator.out_activation_ if index == last else estimator.activation
        if function != "identity":
            nodes.append(node(operators[function], at, at := f"active{index}"))
    if not hasattr(estimator, "classes_"):
        constants["shape"] = np.array([-1, 1])
        return save(path, [*nodes, node("Reshape", f"{at} shape", "variable_out")], constants, [4])
    if len(estimator.classes_) == 2:
        constants["unity"] = np.float32(1)
        nodes += [node("Sub", f"unity {at}", "negative"), node("Concat", f"negative {at}", "p", axis=1)]
    else:
        nodes.append(node("Identity", at, "p"))
    constants |= {"classes": estimator.classes_.astype(np.int32), "flat": np.array([-1])}
    nodes += [
        node("ArgMax", "p", "best", axis=1),
        node("ArrayFeatureExtractor", "classes best", "found"),
        node("Reshape", "found flat", "reshaped"),
        node("Cast", "reshaped", "label", to=TensorProto.INT64),
    ]
    return save(path, nodes, constants, [4], ["label", "p"])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
def test_classifiers_of_scikit_learn(classes: int, activation: str, tmp_path: Path) -> None:
    neural_network = pytest.importorskip("sklearn.neural_network")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    x, y = RNG.normal(3, 2, (60, 4)), RNG.integers(0, classes, 60)
    scaler = preprocessing.StandardScaler().fit(x)
    estimator = neural_network.MLPClassifier((6, 5), activation=activation, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged
        estimator.set_params(max_iter=20).fit(scaler.transform(x), y)
    path = of_scikit_learn(tmp_path / "mlp.onnx", estimator, scaler)
    model = assert_same(path, x.astype(np.float32), "p")
    assert kinds(model)[0] == "Linear" and kinds(model)[-1] == "Softmax"
    want = estimator.predict_proba(scaler.transform(x))
    np.testing.assert_allclose(model.predict(x.astype(np.float32)), want, atol=1e-5)
    body = copy.deepcopy(model[:-1])  # to train with CrossEntropyLoss
    assert (body.predict(x.astype(np.float32)).argmax(axis=1) == want.argmax(axis=1)).all()
    data, criterion = (x.astype(np.float32), y), nn.CrossEntropyLoss()
    trainer = pdnn.Trainer(body, criterion, optim.Adam(body.parameters(), lr=0.01), strategy="serial")
    before = trainer.evaluate(data)["loss"]
    trainer.fit(data, epochs=5, batch_size=10, shuffle=False, verbose=False)
    assert trainer.evaluate(data)["loss"] < before


def test_a_regressor_of_scikit_learn_learns_on(tmp_path: Path) -> None:
    neural_network = pytest.importorskip("sklearn.neural_network")
    x = RNG.standard_normal((60, 4))
    y = x[:, 0] * x[:, 1]
    estimator = neural_network.MLPRegressor(hidden_layer_sizes=(20,), max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(x, y)
    path = of_scikit_learn(tmp_path / "mlp.onnx", estimator)
    model = assert_same(path, x.astype(np.float32))
    data = (x.astype(np.float32), y[:, None].astype(np.float32))
    trainer = pdnn.Trainer(model, nn.MSELoss(), optim.Adam(model.parameters(), lr=0.01), strategy="serial")
    before = trainer.evaluate(data)["loss"]
    trainer.fit(data, epochs=20, batch_size=10, verbose=False)
    assert trainer.evaluate(data)["loss"] < 0.5 * before


def test_a_file_of_skl2onnx(tmp_path: Path) -> None:
    skl2onnx = pytest.importorskip("skl2onnx", reason="pip install skl2onnx")
    neural_network = pytest.importorskip("sklearn.neural_network")
    pipeline, preprocessing = (
        pytest.importorskip("sklearn.pipeline"),
        pytest.importorskip("sklearn.preprocessing"),
    )
    x, y = (
        RNG.normal(3, 2, (60, 4)).astype(np.float32),
        np.array(["no", "maybe", "yes"])[RNG.integers(0, 3, 60)],
    )
    mlp = neural_network.MLPClassifier((6,), max_iter=20, random_state=0)
    whole = pipeline.make_pipeline(preprocessing.StandardScaler(), mlp)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole.fit(x, y)
        (tmp_path / "mlp.onnx").write_bytes(skl2onnx.to_onnx(whole, x[:1]).SerializeToString())  # with ZipMap
    got = models.from_onnx(tmp_path / "mlp.onnx").predict(x)
    np.testing.assert_allclose(got, whole.predict_proba(x), atol=1e-5)


@pytest.mark.parametrize(
    "chosen",
    [
        [node("ZipMap", "p", "y", classlabels_strings=["maybe", "no", "yes"])],
        [node("ArgMax", "p", "best", axis=1), node("ArrayFeatureExtractor", "names best", "y")],
    ],
)
def test_names_of_classes_come_with_scikit_learns_files(
    chosen: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    constants = {"w": np.eye(3, dtype="f4"), "names": np.array(["maybe", "no", "yes"], object)}
    nodes = [node("MatMul", "x w", "a"), node("Softmax", "a", "p"), *chosen]
    path = save(tmp_path / "a.onnx", nodes, constants, [3], ["p", "y"])
    classes = models.from_onnx(path).classes
    assert classes is not None and classes.tolist() == ["maybe", "no", "yes"]
    np.save(tmp_path / "x.npy", np.eye(3, dtype="f4")[[2, 0]])
    assert cli.main(["import", str(path), str(tmp_path / "a.safetensors")]) == 0
    capsys.readouterr()
    assert cli.main(["predict", str(tmp_path / "a.safetensors"), str(tmp_path / "x.npy")]) == 0
    assert capsys.readouterr().out == "yes\nmaybe\n"


# ---- PyTorch's


def test_a_network_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch: pip install torch")

    class Added(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, fn: Any) -> None:
            super().__init__()
            self.fn = fn

        def forward(self, x: Any) -> Any:
            return x + self.fn(x)

    class Viewed(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x.view(x.size(0), -1)

    m = torch.nn
    torch.manual_seed(0)
    network = m.Sequential(
        *(m.Conv2d(3, 8, 3, padding=1), m.BatchNorm2d(8), m.ReLU(), m.MaxPool2d(2)),
        Added(m.Sequential(m.Conv2d(8, 8, 3, padding=1), m.SiLU(), Added(m.Tanh()))),
        *(m.AvgPool2d(2), m.BatchNorm2d(8), m.GELU(), m.Conv2d(8, 6, 2), m.Sigmoid(), Viewed()),
        *(m.Linear(54, 7), m.LayerNorm(7), m.LeakyReLU(0.2), m.Dropout(), m.Linear(7, 7, bias=False)),
        *(
            m.BatchNorm1d(7, momentum=0.3),
            m.GELU(),
            m.Linear(7, 4),
            m.LogSoftmax(1),
        ),
    )
    for layer in network.modules():
        if isinstance(layer, (m.BatchNorm1d, m.BatchNorm2d)):
            layer.running_mean.normal_(), layer.running_var.uniform_(0.5, 2)
    x = torch.randn(5, 3, 16, 16)
    model = through_torchs_file(network.eval(), x, tmp_path)
    assert [layer for layer in kinds(model) if layer in ("Residual", "GELU", "LayerNorm")] == [
        *("Residual", "GELU", "LayerNorm", "GELU")
    ]


def test_a_network_as_the_newest_exporter_of_torch_lays_it_out(tmp_path: Path) -> None:
    """What torch.onnx.export wrote with torch 2.13 and onnxscript 0.7.2: means, reshapes, Gemm without c."""
    windows = {"auto_pad": "NOTSET", "dilations": [1, 1], "pads": [0, 0, 0, 0], "strides": [2, 2]}
    conv = {**windows, "pads": [1, 1, 1, 1], "strides": [1, 1], "kernel_shape": [3, 3], "group": 1}
    constants = {
        "w1": normal(4, 3, 3, 3), "b1": normal(4), "w2": normal(5, 4), "w3": normal(2, 5), "b3": normal(2),
        "axes": np.array([-1, -2]), "shape": np.array([-1, 4]), "gain": normal(5), "offset": normal(5),
    }  # fmt: skip
    nodes = [
        node("Conv", "x w1 b1", "getitem", **conv),
        node("Sigmoid", "getitem", "val_10"),
        node("Mul", "getitem val_10", "silu"),
        node("Add", "getitem silu", "add_30"),
        node("MaxPool", "add_30", "max_pool2d", **windows, kernel_shape=[2, 2], ceil_mode=0, storage_order=0),
        node("AveragePool", "max_pool2d", "avg_pool2d", **windows, kernel_shape=[2, 2], count_include_pad=1),
        node("ReduceMean", "avg_pool2d axes", "mean", keepdims=1, noop_with_empty_axes=0),
        node("Reshape", "mean shape", "view", allowzero=1),
        node("Gemm", "view w2", "linear", transB=1, transA=0, alpha=1.0, beta=1.0),
        node("LayerNormalization", "linear gain offset", "layer_norm", axis=-1, epsilon=1e-5, stash_type=1),
        node("Gelu", "layer_norm", "gelu", approximate="none"),
        node("Gemm", "gelu w3 b3", "linear_1", transB=1, transA=0, alpha=1.0, beta=1.0),
    ]
    path = save(tmp_path / "torch.onnx", nodes, constants, [3, 9, 9], opset=20)
    model = assert_same(path, normal(4, 3, 9, 9))
    assert kinds(model)[1:6] == ["Residual", "MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "Flatten"]


@pytest.mark.parametrize("over", [[-2, -1], [-1], [2, 3]])
def test_the_mean_of_lines_as_the_newest_exporter_of_torch_lays_it_out(
    over: list[int], tmp_path: Path
) -> None:
    """AdaptiveAvgPool1d; over the row alone it is none."""
    nodes = [
        *(node("Conv", "x w", "a"), node("Unsqueeze", "a row", "b"), node("ReduceMean", "b over", "c")),
        *(node("Squeeze", "c row", "d"), node("Reshape", "d flat", "e"), node("MatMul", "e v", "y")),
    ]
    constants = {"w": normal(4, 3, 2), "v": normal(4, 2), "row": np.array([-2]), "flat": np.array([-1, 4])}
    constants |= {"over": np.array(over)}
    path = save(tmp_path / "a.onnx", nodes, constants, [3, 7], opset=18)
    if len(over) == 2:
        assert kinds(assert_same(path, normal(5, 3, 7)))[1:] == ["AdaptiveAvgPool1d", "Flatten", "Linear"]
        return
    with pytest.raises(ValueError, match='Unsqueeze "node_b": pdnn has no such layer'):
        models.from_onnx(path)


def test_the_mean_of_one_row_after_another_is_no_mean_of_lines(tmp_path: Path) -> None:
    nodes = [
        node("Unsqueeze", "x row", "b"),
        node("ReduceMean", "b over", "c"),
        node("Squeeze", "c row", "y"),
    ]
    constants = {"row": np.array([-2]), "over": np.array([-1, -2])}
    path = save(tmp_path / "a.onnx", nodes, constants, [3, 4, 5], opset=18, rank=4)
    with pytest.raises(ValueError, match=r'Squeeze "node_y": takes samples of shape \(3, 4, 5\)'):
        models.from_onnx(path)


def test_lines_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch: pip install torch")
    m = torch.nn
    torch.manual_seed(0)
    network = m.Sequential(
        *(m.BatchNorm1d(3), m.Conv1d(3, 8, 3, 2, 2, groups=1), m.ReLU(), m.MaxPool1d(2), m.AvgPool1d(2, 1)),
        *(m.Conv1d(8, 8, 2, dilation=2, groups=8), m.BatchNorm1d(8), m.GELU(), m.AdaptiveAvgPool1d(1)),
        *(m.Flatten(), m.Linear(8, 4)),
    ).eval()
    x = torch.randn(5, 3, 33)
    model = through_torchs_file(network, x, tmp_path)
    assert {"Conv1d", "MaxPool1d", "AvgPool1d", "AdaptiveAvgPool1d"} <= {*kinds(model)}


def test_embeddings_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch: pip install torch")
    network = torch.nn.Sequential(torch.nn.Embedding(7, 3), torch.nn.Flatten(), torch.nn.Linear(12, 2))
    x = torch.arange(20).reshape(5, 4) % 7
    model = through_torchs_file(network, x, tmp_path)
    assert kinds(model) == ["Embedding", "Flatten", "Linear"]


def test_lines_of_any_kind(tmp_path: Path) -> None:
    constants = {"w": normal(4, 3, 3), "up": normal(4, 1), "axes": np.array([2]), "w3": normal(4, 2)}
    nodes = [
        node("Conv", "x w", "conv", auto_pad="SAME_LOWER", kernel_shape=[3], strides=[3]),
        node("Mul", "conv up", "more"),
        node("Tanh", "more", "curve"),
        node("Add", "curve up", "added"),
        node("ReduceMean", "added axes", "mean", keepdims=0),
        node("MatMul", "mean w3", "y"),
    ]
    path = save(tmp_path / "a.onnx", nodes, constants, [3, 10], opset=20)
    model = assert_same(path, normal(5, 3, 10))
    assert kinds(model) == ["Conv1d", "Tanh", "BatchNorm1d", "AdaptiveAvgPool1d", "Flatten", "Linear"]


# ---- Keras'


def test_lines_of_keras_have_channels_last(tmp_path: Path) -> None:
    """Transposes around convolutions, whose biases are added behind them; means over the places."""
    constants = {"w1": normal(4, 3, 3), "b1": normal(1, 1, 4), "scale": normal(4), "w2": normal(5, 4, 2),
                 "b2": normal(1, 1, 5), "weight": normal(5, 2), "bias": normal(2)}  # fmt: skip
    nodes = [
        node("Transpose", "x", "first", perm=[0, 2, 1]),
        node("Conv", "first w1", "conv1", pads=[1, 1]),
        node("Transpose", "conv1", "last1", perm=[0, 2, 1]),
        node("Add", "last1 b1", "added1"),
        node("Relu", "added1", "relu1"),
        node("Mul", "relu1 scale", "scaled"),
        node("Transpose", "scaled", "first2", perm=[0, 2, 1]),
        node("Conv", "first2 w2", "conv2"),
        node("Transpose", "conv2", "last2", perm=[0, 2, 1]),
        node("Add", "last2 b2", "added2"),
        node("ReduceMean", "added2", "mean", axes=[1], keepdims=0),
        node("MatMul", "mean weight", "product"),
        node("Add", "product bias", "y"),
    ]
    model = assert_same(save(tmp_path / "a.onnx", nodes, constants, [9, 3], rank=2), normal(4, 9, 3))
    layers = ["Transpose", "Conv1d", "ReLU", "Conv1d", "AdaptiveAvgPool1d", "Flatten", "Linear"]
    assert kinds(model) == layers
    flat = [*nodes[:6], node("Flatten", "scaled", "flat"), node("MatMul", "flat wide", "y")]
    path = save(tmp_path / "b.onnx", flat, {**constants, "wide": normal(36, 2)}, [9, 3], rank=2)
    model = assert_same(path, normal(4, 9, 3))
    assert kinds(model)[-3:] == ["Transpose", "Flatten", "Linear"]
    rows = [*nodes[:6], node("Add", "scaled row", "y")]  # a number a place
    path = save(tmp_path / "c.onnx", rows, {**constants, "row": normal(9, 1)}, [9, 3], rank=3)
    assert kinds(assert_same(path, normal(4, 9, 3)))[-2:] == ["Transpose", "BatchNorm1d"]


def test_shapes_of_constants_may_be_computed(tmp_path: Path) -> None:
    """As Keras' torch backend writes the bias of a depthwise convolution."""
    constants = {"w": normal(4, 3), "bias": normal(1, 3), "one": np.array(1), "axis": np.array([0]),
                 "before": np.array([1])}  # fmt: skip
    sizes = [
        node("Gather", "shape one", "size"),
        node("Unsqueeze", "size axis", "sizes"),
        node("Concat", "before sizes", "whole", axis=0),
        node("Reshape", "bias whole", "row"),
    ]
    last = [node("MatMul", "x w", "product"), node("Add", "product row", "y")]
    nodes = [node("Shape", "weights", "shape"), *sizes, *last]
    nodes.insert(0, node("Identity", "w", "weights"))
    assert_same(save(tmp_path / "a.onnx", nodes, constants, [4]), normal(5, 4))
    nodes = [node("Shape", "x", "shape"), *sizes, *last]
    constants["bias"] = normal(1, 4)
    constants["w"] = normal(4, 4)
    assert_same(save(tmp_path / "b.onnx", nodes, constants, [4]), normal(5, 4))
    with pytest.raises(ValueError, match=r"makes a constant that is not read|has shape"):
        models.from_onnx(save(tmp_path / "c.onnx", nodes, constants, ["unknown"]))


def test_a_network_of_keras_has_channels_last(tmp_path: Path) -> None:
    """Transposes around convolutions, SAME padding, a Reshape of images with channels last, Rescaling."""
    constants = {
        "scale": np.float32(1 / 3), "shift": np.float32(-1), "w1": normal(4, 3, 2, 2),
        "w2": normal(4, 4, 3, 3), "b1": normal(4), "add": normal(4, 1, 1),
        "weight": normal(4 * 3 * 2, 5), "bias": normal(5),
        "mean": normal(5), "var": np.exp(normal(5)), "w3": normal(5, 2), "b3": normal(2),
        "flat": np.array([-1, 4 * 3 * 2]),
    }  # fmt: skip
    nodes = [
        node("Mul", "x scale", "rescaled"),
        node("Add", "rescaled shift", "shifted"),
        node("Transpose", "shifted", "first", perm=[0, 3, 1, 2]),
        node("Conv", "first w1 b1", "conv1", kernel_shape=[2, 2], strides=[1, 1], auto_pad="VALID"),
        node("Relu", "conv1", "relu1"),
        node("MaxPool", "relu1", "pool", kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID"),
        node("Conv", "pool w2", "conv2", kernel_shape=[3, 3], strides=[1, 1], auto_pad="SAME_UPPER"),
        node("Add", "conv2 add", "added"),
        node("Transpose", "added", "last", perm=[0, 2, 3, 1]),
        node("Relu", "last", "relu2"),
        node("Reshape", "relu2 flat", "flattened"),
        node("MatMul", "flattened weight", "product"),
        node("Add", "product bias", "dense"),
        node("BatchNormalization", "dense bias mean bias var", "normal", momentum=0.99, epsilon=1e-3),
        node("Tanh", "normal", "tanh"),
        node("MatMul", "tanh w3", "product2"),
        node("Add", "product2 b3", "dense2"),
        node("Softmax", "dense2", "y", axis=-1),
    ]
    path = save(tmp_path / "keras.onnx", nodes, constants, [7, 5, 3])
    x = normal(4, 7, 5, 3)
    with np.errstate(invalid="ignore"):
        model = assert_same(path, x, images=x.transpose(0, 3, 1, 2))
    assert kinds(model) == [
        *("Conv2d", "ReLU", "MaxPool2d", "Conv2d", "ReLU", "Flatten", "Linear", "BatchNorm1d", "Tanh"),
        *("Linear", "Softmax"),
    ]
    assert model[7].config() == {"num_features": 5, "eps": 0.001, "momentum": 0.01, "sync": False}


@pytest.mark.parametrize(
    "nodes",
    [
        [node("LayerNormalization", "flat scale shift", "own")],
        [node("BatchNormalization", "flat scale shift mean var", "own")],
        [node("Mul", "flat scale", "own")],
        [node("Mul", "flat scale", "a"), node("Add", "a shift", "b"), node("Relu", "b", "own")],
    ],
)
def test_features_of_channels_last_have_numbers_of_their_own(nodes: list[Any], tmp_path: Path) -> None:
    nodes = [
        *(node("Transpose", "x", "first", perm=[0, 3, 1, 2]), node("Conv", "first w1", "conv")),
        *(node("Transpose", "conv", "last", perm=[0, 2, 3, 1]), node("Flatten", "last", "flat")),
        *(*nodes, node("MatMul", "own w2", "y")),
    ]
    constants = {name: np.exp(normal(24)) for name in ("scale", "shift", "mean", "var")}
    constants |= {"w1": normal(4, 3, 2, 2), "w2": normal(24, 5)}
    x = normal(3, 4, 3, 3)
    assert_same(save(tmp_path / "a.onnx", nodes, constants, [4, 3, 3]), x, images=x.transpose(0, 3, 1, 2))


def test_samples_may_be_put_in_the_order_of_channels_last(tmp_path: Path) -> None:
    nodes = [node("Transpose", "x", "last", perm=[0, 2, 3, 1]), node("Flatten", "last", "flat")]
    path = save(tmp_path / "a.onnx", [*nodes, node("MatMul", "flat w", "y")], {"w": normal(24, 5)}, [3, 4, 2])
    assert_same(path, normal(2, 3, 4, 2))


@pytest.mark.parametrize("end", [[], [node("Flatten", "last", "y")]])
def test_outputs_in_another_order_are_refused(end: list[Any], tmp_path: Path) -> None:
    nodes = [node("Transpose", "x", "first", perm=[0, 3, 1, 2]), node("Conv", "first w", "conv")]
    nodes += [node("Transpose", "conv", "last", perm=[0, 2, 3, 1]), *end]
    path = save(tmp_path / "a.onnx", nodes, {"w": normal(4, 3, 2, 2)}, [4, 3, 3], rank=4 - 2 * len(end))
    with pytest.raises(ValueError, match="its outputs are in another order than pdnn's"):
        models.from_onnx(path)


def test_a_residual_of_keras_begins_with_the_samples(tmp_path: Path) -> None:
    """As Keras 3.15 exports it by PyTorch: Casts everywhere, transposes around each convolution alone."""
    constants = {
        "w1": normal(4, 4, 3, 3),
        "b1": normal(1, 1, 1, 4),
        "w2": normal(4, 2),
        "scale": normal(1, 1, 1, 4),
    }
    nodes = [
        node("Cast", "x", "cast", to=TensorProto.FLOAT),
        node("Transpose", "cast", "first", perm=[0, 3, 1, 2]),
        node("Conv", "first w1", "conv", pads=[1, 1, 1, 1]),
        node("Transpose", "conv", "last", perm=[0, 2, 3, 1]),
        node("Add", "last b1", "biased"),
        node("Relu", "biased", "relu"),
        node("Cast", "cast", "one", to=TensorProto.FLOAT),
        node("Cast", "relu", "other", to=TensorProto.FLOAT),
        node("Add", "one other", "sum"),
        node("Mul", "sum scale", "scaled"),
        node("ReduceMean", "scaled", "mean", axes=[1, 2], keepdims=0),
        node("MatMul", "mean w2", "y"),
    ]
    x = normal(2, 8, 7, 4)
    path = save(tmp_path / "keras.onnx", nodes, constants, [8, 7, 4])
    model = assert_same(path, x, images=x.transpose(0, 3, 1, 2))
    assert kinds(model) == ["Residual", "BatchNorm2d", "AdaptiveAvgPool2d", "Flatten", "Linear"]


# ---- details


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        ([node("Div", "x two", "a"), node("Sub", "one a", "b"), node("MatMul", "b w", "y")], ["Linear"]),
        ([node("MatMul", "x w", "a"), node("Mul", "a half", "b"), node("Sub", "b row", "y")], ["Linear"]),
        (
            [node("Dropout", "x", "a"), node("Gemm", "a w row", "y", alpha=0.5, beta=2.0)],
            ["Dropout", "Linear"],
        ),
        (
            [node("Identity", "w", "v"), node("Transpose", "v", "t"), node("Gemm", "x t", "y", transB=1)],
            ["Linear"],
        ),
        (
            [
                *(
                    node("Shape", "x", "s"),
                    node("Gather", "s zero", "n"),
                    node("Unsqueeze", "n nought", "n1"),
                ),
                *(node("Concat", "n1 minus", "to", axis=0), node("Reshape", "x to", "a")),
                node("MatMul", "a w", "y"),
            ],
            ["Linear"],
        ),
        ([node("Gemm", "x w row", "a"), node("Mul", "a half", "y")], ["Linear"]),
        ([node("LeakyRelu", "x", "a", alpha=0.3), node("Add", "a x", "y")], ["Residual"]),
        (
            [node("Sub", "x row", "a"), node("Mul", "a half", "b"), node("Relu", "b", "y")],
            ["BatchNorm1d", "ReLU"],
        ),
        (  # a batch normalization in parts
            [
                *(node("Pow", "half square", "v"), node("Add", "v one", "v1"), node("Sqrt", "v1", "s")),
                *(node("Reciprocal", "s", "r"), node("Mul", "r half", "g")),
                *(node("Sub", "x row", "a"), node("Mul", "a g", "b"), node("MatMul", "b w", "y")),
            ],
            ["Linear"],
        ),
        (
            [
                *(node("Cast", "x", name, to=1) for name in "ab"),
                node("Tanh", "a", "c"),
                node("Add", "b c", "y"),
            ],
            ["Residual"],
        ),
    ],
)
def test_constants_are_taken_into_weights(nodes: list[Any], want: list[str], tmp_path: Path) -> None:
    constants = {
        "w": normal(6, 6), "two": normal(1, 6), "one": np.float32(1), "half": normal(6), "row": normal(6),
        "square": np.float32(2), "zero": np.array(0), "nought": np.array([0]), "minus": np.array([-1]),
    }  # fmt: skip
    model = assert_same(save(tmp_path / "a.onnx", nodes, constants, [6]), normal(3, 6))
    assert kinds(model) == want


@pytest.mark.parametrize(("mean", "want"), [(300, ["Linear"]), (30_000, ["BatchNorm1d", "Linear"])])
def test_samples_far_from_0_keep_their_digits(mean: float, want: list[str], tmp_path: Path) -> None:
    nodes = [node("Sub", "x m", "a"), node("Div", "a s", "b"), node("MatMul", "b w", "y")]
    constants = {"m": np.float32([mean, 3]), "s": np.float32([1, 2]), "w": normal(2, 3)}
    x = normal(50, 2) + constants["m"]
    assert kinds(assert_same(save(tmp_path / "a.onnx", nodes, constants, [2]), x)) == want


def test_a_convolution_with_padding_takes_no_shift_up(tmp_path: Path) -> None:
    nodes = [node("Add", "x three", "a"), node("Conv", "a w", "y", pads=[1, 1, 1, 1])]
    constants = {"three": np.float32(3), "w": normal(2, 3, 3, 3)}
    path = save(tmp_path / "a.onnx", nodes, constants, [3, 5, 5], rank=4)
    assert kinds(assert_same(path, normal(2, 3, 5, 5))) == ["BatchNorm2d", "Conv2d"]


def test_a_convolution_of_groups_takes_no_scale_up(tmp_path: Path) -> None:
    nodes = [node("Mul", "x each", "a"), node("Conv", "a w", "y", group=2)]
    constants = {"each": normal(4, 1, 1), "w": normal(6, 2, 3, 3)}
    path = save(tmp_path / "a.onnx", nodes, constants, [4, 5, 5], rank=4)
    assert kinds(assert_same(path, normal(2, 4, 5, 5))) == ["BatchNorm2d", "Conv2d"]


def test_padding_on_one_side_alone_is_refused(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "y", auto_pad="SAME_UPPER")]
    path = save(tmp_path / "a.onnx", nodes, {"w": normal(2, 3, 2, 2)}, [3, 5, 5], rank=4)
    with pytest.raises(ValueError, match="its padding is not the same on opposite sides"):
        models.from_onnx(path)


def test_linear_models_of_scikit_learn_are_linear(tmp_path: Path) -> None:
    numbers = {"coefficients": [1.0, 2.0, 3.0, -1.0, 0.5, 0.25], "intercepts": [0.5, -1.0], "targets": 2}
    path = save(tmp_path / "a.onnx", [node("LinearRegressor", "x", "y", **numbers)], {}, [3])
    assert kinds(assert_same(path, normal(4, 3))) == ["Linear"]
    changed = [node("LinearRegressor", "x", "y", **numbers, post_transform="SOFTMAX")]
    with pytest.raises(ValueError, match="transforms its outputs"):
        models.from_onnx(save(tmp_path / "b.onnx", changed, {}, [3]))


def test_valid_windows_have_no_padding_whatever_is_said(tmp_path: Path) -> None:
    windows = {"kernel_shape": [3], "pads": [1, 1], "strides": [1]}
    for name, automatic in (("valid", "VALID"), ("said", "NOTSET")):
        nodes = [node("MaxPool", "x", "y", **windows, auto_pad=automatic)]
        (pool,) = models.from_onnx(save(tmp_path / f"{name}.onnx", nodes, {}, [3, 7], rank=3))
        assert pool.padding == (automatic == "NOTSET")


@pytest.mark.parametrize(
    "last",
    [node("ReduceMean", "lines", "y", axes=[-1]), node("Transpose", "lines", "y", perm=[0, 3, 1, 2])],
)
def test_what_stands_behind_a_missed_node_hides_it_not(last: Any, tmp_path: Path) -> None:
    nodes = [node("Cos", "x", "cos"), node("Transpose", "cos", "lines", perm=[0, 2, 1]), last]
    rank = 4 if last.op_type == "Transpose" else 3
    path = save(tmp_path / "a.onnx", nodes, {}, [3, 7, 5][: rank - 1], rank=rank)
    with pytest.raises(ValueError, match='Cos "node_cos": pdnn has no such layer'):
        models.from_onnx(path)


def test_a_linear_model_has_as_many_numbers_as_it_says(tmp_path: Path) -> None:
    nodes = [node("LinearRegressor", "x", "y", coefficients=[1.0] * 5, intercepts=[0.5], targets=2)]
    with pytest.raises(ValueError, match="has 5 coefficients and 1 intercepts for 2 targets"):
        models.from_onnx(save(tmp_path / "a.onnx", nodes, {}, [3]))


@pytest.mark.parametrize("model", [b"bytes", onnx.ModelProto()])
def test_only_files_are_read(model: Any) -> None:
    with pytest.raises(TypeError, match=r"from_onnx: got \w+, expected the path of a file; onnx.save"):
        models.from_onnx(model)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_gelu_of_16_bits_is_known(kind: str, tmp_path: Path) -> None:
    dtype = np.float16 if kind == "float16" else helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
    numbers = {"root": np.sqrt(2), "one": 1.0, "half": 0.5}
    constants = {name: np.array(number).astype(dtype) for name, number in numbers.items()}
    nodes = [
        node("Div", "x root", "a"),
        node("Erf", "a", "b"),
        node("Add", "b one", "c"),
        node("Mul", "x c", "d"),
        node("Mul", "d half", "y"),
    ]
    path = save(tmp_path / "a.onnx", nodes, constants, [3])
    model = onnx.load(path)
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    onnx.save(model, path)
    assert kinds(models.from_onnx(path)) == ["GELU"]


def test_pools_may_have_padding(tmp_path: Path) -> None:
    windows = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 0], "strides": [2, 1]}
    nodes = [node("MaxPool", "x", "largest", **windows, auto_pad="NOTSET")]
    nodes += [node("AveragePool", "largest", "y", **windows, count_include_pad=1)]
    path = save(tmp_path / "a.onnx", nodes, {}, [3, 6, 7], rank=4)
    assert_same(path, normal(2, 3, 6, 7) - 4)  # all below the padding's zeros
    assert [layer.padding for layer in models.from_onnx(path)] == [(1, 0), (1, 0)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"strides": [0, 0]}, r"its strides is \[0, 0\], expected 2 numbers from 1"),
        ({"strides": [1]}, r"its strides is \[1\], expected 2 numbers from 1"),
        ({"auto_pad": "SOMEHOW"}, "its auto_pad is 'SOMEHOW'"),
        ({"pads": [1, 1]}, r"its pads are \[1, 1\], expected 4 numbers from 0"),
        ({"pads": [-1, 0, -1, 0]}, r"its pads are \[-1, 0, -1, 0\], expected 4 numbers from 0"),
        ({"pads": [1, 1, 1, 1]}, "its means leave padding out"),
        ({"pads": [2, 2, 2, 2], "count_include_pad": 1}, "wider than half of its windows"),
    ],
)
def test_windows_that_pdnn_has_not_are_told(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    windows = {"kernel_shape": [3, 3], "strides": [1, 1], **changes}
    path = save(tmp_path / "a.onnx", [node("AveragePool", "x", "y", **windows)], {}, [3, 6, 7], rank=4)
    with pytest.raises(ValueError, match=f"AveragePool .*{said}"):
        models.from_onnx(path)


@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool"])
def test_windows_that_are_no_whole_ones_are_refused(pool: str, tmp_path: Path) -> None:
    nodes = [node(pool, "x", "y", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)]
    assert_same(save(tmp_path / "a.onnx", nodes, {}, [3, 4, 4], rank=4), normal(2, 3, 4, 4))
    with pytest.raises(ValueError, match="rounds the number of windows up"):
        models.from_onnx(save(tmp_path / "b.onnx", nodes, {}, [3, 4, 5], rank=4))


def test_lines_with_an_axis_of_height_are_refused(tmp_path: Path) -> None:
    nodes = [node("Unsqueeze", "x axis", "a"), node("Transpose", "a", "b", perm=[0, 3, 1, 2])]
    nodes += [node("Conv", "b w", "c"), node("Squeeze", "c two", "y")]
    constants = {"axis": np.array([1]), "two": np.array([2]), "w": normal(4, 3, 1, 3)}
    path = save(tmp_path / "a.onnx", nodes, constants, [9, 3], rank=3)
    with pytest.raises(ValueError, match='Unsqueeze "node_a": pdnn has no such layer'):
        models.from_onnx(path)


def test_the_last_axis_of_one_pixel_may_be_of_its_channels(tmp_path: Path) -> None:
    nodes = [
        *(node("Conv", "x w", "a"), node("Transpose", "a", "b", perm=[0, 2, 3, 1])),
        *(node("Squeeze", "b places", "c"), node("MatMul", "c v", "y")),
    ]
    constants = {"w": normal(4, 3, 3, 3), "places": np.array([1, 2]), "v": normal(4, 2)}
    model = assert_same(save(tmp_path / "a.onnx", nodes, constants, [3, 3, 3]), normal(5, 3, 3, 3))
    assert kinds(model) == ["Conv2d", "Flatten", "Linear"]


def test_a_reshape_to_the_same_shape_is_nothing(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "a"), node("Reshape", "a same", "b"), node("Tanh", "b", "y")]
    path = save(tmp_path / "a.onnx", nodes, {"same": np.array([0, 0, 0, -1])}, [2, 3, 5], rank=4)
    assert kinds(assert_same(path, normal(4, 2, 3, 5))) == ["ReLU", "Tanh"]


def test_a_reshape_of_samples_is_left_to_the_caller(tmp_path: Path) -> None:
    nodes = [
        node("Reshape", "x image", "a"),
        node("Conv", "a w", "b"),
        node("Flatten", "b", "c"),
        node("MatMul", "c v", "y"),
    ]
    constants = {"image": np.array([0, 1, -1, 7]), "w": normal(2, 1, 3, 3), "v": normal(50, 3)}
    x = normal(4, 49)
    assert_same(save(tmp_path / "a.onnx", nodes, constants, [49]), x, images=x.reshape(4, 1, 7, 7))


SIZES = {f"at{axis}": np.array([axis]) for axis in range(5)} | {"minus": np.array([-1])}


def reshaped_by(parts: str) -> list[Any]:
    """Images reshaped by sizes that the graph computes, between two layers."""
    return [
        node("Relu", "x", "a"),
        node("Shape", "x", "s"),
        *(node("Gather", f"s at{axis}", name) for axis, name in enumerate("nchw")),
        *(node("Slice", "s at0 at2", "nc"), node("Mul", "h w", "hw"), node("Mul", "c hw", "chw")),
        *(node("Concat", parts, "to", axis=0), node("Reshape", "a to", "b"), node("Tanh", "b", "y")),
    ]


@pytest.mark.parametrize("parts", ["n minus", "n chw", "minus chw"])
def test_a_reshape_by_computed_sizes(parts: str, tmp_path: Path) -> None:
    path = save(tmp_path / "a.onnx", reshaped_by(parts), SIZES, [2, 3, 5])
    assert kinds(assert_same(path, normal(4, 2, 3, 5))) == ["ReLU", "Flatten", "Tanh"]


def test_a_shape_may_be_of_some_axes(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "a"), node("Shape", "x", "n", start=0, end=1)]
    nodes += [node("Concat", "n minus", "to", axis=0), node("Reshape", "a to", "b"), node("Tanh", "b", "y")]
    path = save(tmp_path / "a.onnx", nodes, {"minus": np.array([-1])}, [2, 3, 5])
    assert kinds(assert_same(path, normal(4, 2, 3, 5))) == ["ReLU", "Flatten", "Tanh"]


@pytest.mark.parametrize("parts", ["nc minus", "n c minus", "n c hw", "c minus", "n w minus", "n c w minus"])
def test_a_reshape_that_keeps_axes_or_changes_their_order_is_refused(parts: str, tmp_path: Path) -> None:
    path = save(tmp_path / "a.onnx", reshaped_by(parts), SIZES, [2, 3, 5], rank=len(parts.split()))
    with pytest.raises(ValueError, match=r'Reshape "node_b": makes '):
        models.from_onnx(path)


SHAPED = [
    *(node("Shape", "x", "s"), node("Gather", "s at0", "n"), node("Mul", "n n", "nn")),
    *(node("Reshape", "nn minus", "n1"), node("Concat", "n1 minus", "to", axis=0)),
    node("Reshape", "x to", "y"),
]
SAME = helper.make_graph(
    [node("Identity", "x", "inner")],
    "same",
    [],
    [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
)
CHOSEN = [
    *(node("Shape", "x", "s"), node("Gather", "s at0", "n"), node("Equal", "n at1", "single")),
    *(node("If", "single", "a", then_branch=SAME, else_branch=SAME), node("Reshape", "a at1", "b")),
    node("Add", "x b", "y"),
]


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (SHAPED, 'Reshape "node_y": makes a shape that is computed'),
        (CHOSEN, 'If "node_a": pdnn has no such layer'),
        (
            [node("Reshape", "x five", "a"), node("Transpose", "a", "y", perm=[0, 2, 1, 3, 4])],
            r"puts the axes of 4-dimensional samples in the order \(0, 2, 1, 3, 4\)",
        ),
        (
            [node("QuantizeLinear", "half one", "a"), node("Reshape", "x a", "y")],
            'QuantizeLinear "node_a": makes a constant that is not read',
        ),
    ],
    ids=["reshaped sizes", "If", "five axes", "constant"],
)
def test_what_is_made_of_sizes_and_of_graphs_within_is_listed(
    nodes: list[Any], said: str, tmp_path: Path
) -> None:
    more = {"five": np.array([0, 2, 1, 3, 5]), "half": np.float32([0.5]), "one": np.float32(1)}
    path = save(tmp_path / "a.onnx", nodes, SIZES | more, [2, 3, 5], rank=4)
    with pytest.raises(ValueError, match=rf"of its \d nodes are not understood:\n(?s:.*){said}"):
        models.from_onnx(path)


def test_features_that_become_images_are_not_shifted_one_by_one(tmp_path: Path) -> None:
    nodes = [node("Sub", "x mean", "a"), node("Reshape", "a image", "b"), node("Conv", "b w", "y")]
    constants = {"mean": normal(49), "image": np.array([0, 1, 7, 7]), "w": normal(2, 1, 3, 3)}
    path = save(tmp_path / "a.onnx", nodes, constants, [49], rank=4)
    with pytest.raises(
        ValueError, match=r"a\.onnx: 1 of its 3 nodes .*\n  Reshape .*samples of shape \(49,\)"
    ):
        models.from_onnx(path)


def test_all_that_is_not_understood_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    constants = {
        "w1": normal(4, 1, 3, 3), "w2": normal(4, 4, 3, 1), "w3": normal(4, 4, 3, 3), "row": normal(4, 5, 5),
        "w4": normal(2, 100), "axes": np.array([0]),
    }  # fmt: skip
    nodes = [
        node("MaxPool", "x", "apart", kernel_shape=[2, 2], strides=[1, 1], dilations=[2, 1]),
        node("Conv", "apart w1", "grouped", group=2),
        node("HardSwish", "grouped", "swish"),
        node("Conv", "swish w2", "oblong", pads=[1, 0, 1, 0]),
        node("MaxPool", "oblong", "pool", kernel_shape=[3, 3], strides=[1, 1], pads=[2, 2, 2, 2]),
        node("Relu", "pool", "relu"),
        node("Conv", "relu w3", "dilated", dilations=[2, 2], pads=[2, 2, 2, 2]),
        node("Conv", "relu w3", "lopsided", pads=[0, 0, 2, 2]),
        node("Add", "dilated lopsided", "sum"),
        node("Add", "sum row", "map"),
        node("Flatten", "map", "flat"),
        node("Gemm", "flat w4", "y", transB=1),
        node("ReduceMax", "y", "top", axes=[1]),
    ]
    path = save(tmp_path / "bad.onnx", nodes, constants, [2, 5, 5], ["top"])
    assert cli.main(["import", str(path), str(tmp_path / "never.safetensors")]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].endswith("bad.onnx: 7 of its 13 nodes are not understood:")
    assert [line.split(":")[0] for line in said[1:]] == [
        f'  {each.op_type} "{each.name}"'
        for each in nodes
        if each.output[0] not in ("grouped", "oblong", "relu", "dilated", "flat", "y")
    ]
    assert said[1].endswith("its windows are dilated, pdnn's pools' are not")
    assert not (tmp_path / "never.safetensors").exists()


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([node("Gelu", "x", "y", approximate="tanh")], "approximates GELU by tanh"),
        ([node("Cast", "x", "a", to=TensorProto.INT32), node("Cast", "a", "y", to=1)], "makes integers"),
        ([node("Div", "one x", "a"), node("MatMul", "a w", "y")], 'Div "node_a": pdnn has no such layer'),
        ([node("MatMul", "x x", "y")], "2 of its inputs vary, expected 1"),
        ([node("MatMul", "x w1", "a"), node("Add", "a row", "y")], r"its constant has shape \(4,\)"),
        ([node("LayerNormalization", "x w row", "y", axis=0)], "is not over the features of a sample"),
        (
            [helper.make_node("Dropout", ["x"], ["a", "mask"]), node("Cast", "mask", "y", to=1)],
            "another output than its first is used",
        ),
        ([node("Transpose", "x", "y", perm=[1, 0])], "puts the axes"),
        ([node("ArgMax", "x", "a", axis=0), node("Cast", "a", "y", to=1)], 'ArgMax "node_a": pdnn has no'),
        (
            [node("MatMul", "x w", "a"), node("Clip", "a", "b"), node("Add", "b three", "y")],
            r"2 of its 3 nodes (?s:.*)Clip (?s:.*)Add .*scales 3 of 4 outputs",
        ),
        ([node("Gemm", "x w rows", "y")], r"its bias has shape \(3, 4\), expected a number a feature"),
        ([node("Reshape", "x pair", "y")], r"makes \[2, -1\] of a batch of any number of samples"),
        ([node("Reshape", "x none", "y")], r"makes \[\] of samples"),
        ([node("MatMul", "x w1", "a"), node("Squeeze", "a last", "y")], r"Squeeze .*shape \(n, 1\); export"),
        ([node("MatMul", "x w1", "a"), node("Reshape", "a last", "y")], r"Reshape .*shape \(n, 1\); export"),
        (
            [
                *(node("Softplus", "x", "a"), node("Greater", "x one", "b")),
                node("Where", "b a x", "y"),  # the other way round
            ],
            "3 of its inputs vary",
        ),
        (
            [
                node("Relu", "x", "a"),
                node("Tanh", "a", "b"),
                node("Sigmoid", "x", "c"),
                node("Add", "b c", "y"),
            ],
            "neither of its inputs is made of the other",
        ),
        (
            [
                *(node("Relu", "x", "a"), node("Tanh", "a", "b"), node("MatMul", "b w", "c")),
                *(node("MatMul", "x w", "d"), node("Add", "d c", "y")),
            ],
            "neither of its inputs is made of the other",
        ),
    ],
)
def test_single_nodes_that_pdnn_has_not(nodes: list[Any], said: str, tmp_path: Path) -> None:
    constants = {"row": normal(4), "w": normal(4, 4), "w1": normal(4, 1), "one": np.float32(1)}
    constants |= {"three": normal(1, 3), "last": np.array([-1])}
    constants |= {"rows": normal(3, 4), "pair": np.array([2, -1]), "none": np.zeros(0, np.int64)}
    path = save(tmp_path / "a.onnx", nodes, constants, [4], opset=20)
    with pytest.raises(ValueError, match=said):
        models.from_onnx(path)


AXES = {"two": np.array([2]), "three": np.array([3]), "last": np.array([-1]), "batch": np.array([0, 3])}


@pytest.mark.parametrize("first", ["last", "three", "two"])
def test_places_may_be_squeezed_one_after_another(first: str, tmp_path: Path) -> None:
    nodes = [node("GlobalAveragePool", "x", "a"), node("Squeeze", f"a {first}", "b")]
    nodes += [node("Squeeze", "b last", "c"), node("MatMul", "c w", "y")]
    path = save(tmp_path / "a.onnx", nodes, {"w": normal(4, 3)} | AXES, [4, 5, 6])
    assert kinds(assert_same(path, normal(3, 4, 5, 6))) == ["AdaptiveAvgPool2d", "Flatten", "Linear"]


@pytest.mark.parametrize("squeezed", ["a two", "a last", "a batch"])
def test_a_squeeze_that_leaves_other_axes_than_the_channels_is_refused(squeezed: str, tmp_path: Path) -> None:
    nodes = [node("GlobalAveragePool", "x", "a"), node("Squeeze", squeezed, "b")]
    nodes += [node("Softmax", "b", "y", axis=-1)]  # over one place, not over the channels
    path = save(tmp_path / "a.onnx", nodes, AXES, [4, 5, 6], rank=3)
    with pytest.raises(ValueError, match=r'Squeeze "node_b": leaves the axes .* of \(4, 1, 1\) a sample'):
        models.from_onnx(path)


def test_numbers_that_a_layer_refuses_are_said_with_the_name_of_the_file(tmp_path: Path) -> None:
    ones = {name: np.ones(4, np.float32) for name in "sbmv"}
    path = save(tmp_path / "eps.onnx", [node("BatchNormalization", "x s b m v", "y", epsilon=0.0)], ones, [4])
    with pytest.raises(ValueError, match=r"eps\.onnx: BatchNorm1d: eps = 0\.0; expected a number above 0"):
        models.from_onnx(path)
    path = save(
        tmp_path / "3d.onnx", [node("MaxPool", "x", "y", kernel_shape=[2] * 3)], {}, [2, 4, 4, 4], rank=5
    )
    with pytest.raises(ValueError, match=r"MaxPool .*takes samples of shape \(2, 4, 4, 4\)"):
        models.from_onnx(path)


def test_a_batch_normalization_that_was_written_in_training_is_refused(tmp_path: Path) -> None:
    """Until opset 14 more outputs said it."""
    ones = {name: np.ones(4, np.float32) for name in "sbmv"}
    last = helper.make_node("BatchNormalization", [*"xsbmv"], ["y", *"cdef"])
    path = save(tmp_path / "old.onnx", [last], ones, [4], opset=9)
    with pytest.raises(ValueError, match="is in training mode"):
        models.from_onnx(path)


def test_the_ratio_of_a_dropout_may_have_an_axis(tmp_path: Path) -> None:
    path = save(tmp_path / "a.onnx", [node("Dropout", "x p", "y")], {"p": np.array([0.3], np.float32)}, [4])
    assert models.from_onnx(path).layers[0].config()["p"] == 0.3


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no such thing")
    with pytest.raises(ValueError, match="is no ONNX file"):
        models.from_onnx(tmp_path / "text.onnx")
    path = save(tmp_path / "two.onnx", [node("Relu", "x", "a"), node("Tanh", "x", "b")], {}, [4], ["a", "b"])
    with pytest.raises(ValueError, match="its outputs are a of Relu, b of Tanh; expected one"):
        models.from_onnx(path)
    path = save(tmp_path / "flat.onnx", [node("Relu", "x", "y")], {}, [], rank=1)
    with pytest.raises(ValueError, match="expected a batch of samples"):
        models.from_onnx(path)
    with pytest.raises(FileNotFoundError):
        models.from_onnx(tmp_path / "none.onnx")


def test_weights_in_a_second_file(tmp_path: Path) -> None:
    path, data = tmp_path / "a.onnx", tmp_path / "a.data"
    network = onnx.load(save(path, [node("MatMul", "x w", "y")], {"w": normal(40, 30)}, [40]))
    onnx.save(network, path, save_as_external_data=True, location="a.data", size_threshold=0)
    assert_same(path, normal(3, 40))
    data.write_bytes(data.read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"a\.onnx: is no ONNX file that onnx reads .*'w'"):
        models.from_onnx(path)
    data.unlink()
    with pytest.raises(ValueError, match=r"a\.onnx: is no ONNX file that onnx reads .*a\.data"):
        models.from_onnx(path)


def test_weights_of_another_size_are_refused_by_the_name_of_the_file(tmp_path: Path) -> None:
    path = save(tmp_path / "a.onnx", [node("MatMul", "x w", "y")], {"w": normal(4, 3)}, [4])
    network = onnx.load(path)
    network.graph.initializer[0].raw_data += bytes(4)
    onnx.save(network, path)
    with pytest.raises(ValueError, match=r"a\.onnx: "):
        models.from_onnx(path)


def test_an_output_may_have_no_shape(tmp_path: Path) -> None:
    path = save(tmp_path / "a.onnx", [node("MatMul", "x w", "y")], {"w": normal(4, 3)}, [4])
    network = onnx.load(path)
    network.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(network, path)
    assert_same(path, normal(3, 4))


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    layers = [nn.Linear(3, 3), nn.SiLU(), nn.Residual(nn.GELU()), nn.LayerNorm(3)]
    nn.Sequential(*layers).to_onnx(tmp_path / "whole.onnx")
    whole = (tmp_path / "whole.onnx").read_bytes()

    def damage(rng: np.random.Generator) -> None:
        data = bytearray(whole)
        at = int(rng.integers(len(data)))
        data[at : at + int(rng.integers(2))] = rng.bytes(int(rng.integers(2)))
        (tmp_path / "damaged.onnx").write_bytes(data)
        try:
            model = models.from_onnx(tmp_path / "damaged.onnx")
        except ValueError:
            return
        assert isinstance(model, nn.Sequential)

    random_rounds(40, damage)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = models.mlp([4, 5, 3], "gelu", seed=1)
    model.to_onnx(tmp_path / "a.onnx")
    assert cli.main(["import", str(tmp_path / "a.onnx"), str(tmp_path / "a.safetensors")]) == 0
    for words in (["import", str(tmp_path / "a.onnx"), str(tmp_path / "a.onnx")], ["train", "--save", "a.c"]):
        with pytest.raises(SystemExit, match="2"):
            cli.main(words)
    said = capsys.readouterr()
    assert "(1): GELU()" in said.out and said.err.count("names another format; expected .safetensors") == 2
    assert models.load_model(tmp_path / "a.safetensors").fingerprint() == model.fingerprint()
    assert cli.main(["export", str(tmp_path / "a.onnx"), str(tmp_path / "a.c")]) == 1
    assert "file; pdnn import and models.from_onnx read ONNX files" in capsys.readouterr().err


def test_a_reshape_of_images_is_refused(tmp_path: Path) -> None:
    """It was left out: another picture of the same values."""
    constants = {"s": np.array([0, 4, 6, 4]), "w": normal(2, 4, 3, 3)}
    nodes = [node("Reshape", "x s", "a"), node("Conv", "a w", "b"), node("GlobalAveragePool", "b", "y")]
    path = save(tmp_path / "a.onnx", nodes, constants, [4, 3, 8], rank=4)
    with pytest.raises(ValueError, match=r'"node_a": makes \[0, 4, 6, 4\] of samples of shape \(4, 3, 8\)'):
        models.from_onnx(path)


def test_a_reshape_of_scaled_features_is_refused_by_name(tmp_path: Path) -> None:
    nodes = [
        *(node("Mul", "x k", "a"), node("Reshape", "a s", "b")),
        node("MaxPool", "b", "y", kernel_shape=[1, 1]),
    ]
    path = save(tmp_path / "a.onnx", nodes, {"k": normal(4), "s": np.array([-1, 1, 2, 2])}, [4], rank=4)
    with pytest.raises(ValueError, match=r'"node_b": makes \[-1, 1, 2, 2\] of samples of shape \(4,\)'):
        models.from_onnx(path)


def test_a_dropout_in_training_is_refused(tmp_path: Path) -> None:
    constants = {"p": np.float32(0.5), "on": np.array(True)}
    path = save(tmp_path / "a.onnx", [node("Dropout", "x p on", "y")], constants, [4])
    with pytest.raises(ValueError, match="is in training mode"):
        models.from_onnx(path)


@pytest.mark.parametrize("rank", [3, 5])
def test_a_constant_with_more_axes_than_samples_is_refused(rank: int, tmp_path: Path) -> None:
    constants = {"c": normal(*(1,) * rank)}
    path = save(tmp_path / "a.onnx", [node("Mul", "x c", "y")], constants, [4], rank=rank)
    with pytest.raises(ValueError, match="more axes than the 2 of a batch"):
        models.from_onnx(path)


def test_a_reshape_before_opset_5_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "a.onnx", [node("Reshape", "x", "y", shape=[0, -1])], {}, [3, 4], opset=4)
    with pytest.raises(ValueError, match="has its shape in an attribute"):
        models.from_onnx(path)


def test_probabilities_joined_along_samples_are_refused(tmp_path: Path) -> None:
    nodes = [
        *(node("MatMul", "x w", "z"), node("Sigmoid", "z", "p"), node("Sub", "one p", "q")),
        node("Concat", "q p", "y", axis=0),
    ]
    path = save(tmp_path / "a.onnx", nodes, {"w": normal(4, 1), "one": np.float32(1)}, [4])
    with pytest.raises(ValueError, match='Concat "node_y": 2 of its inputs vary'):
        models.from_onnx(path)


def test_a_bias_that_an_empty_name_leaves_out(tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["x", "w", ""], ["y"])
    path = save(tmp_path / "a.onnx", [conv], {"w": normal(2, 3, 2, 2)}, [3, 4, 4], rank=4)
    assert_same(path, normal(5, 3, 4, 4))


def test_a_transpose_that_nothing_uses(tmp_path: Path) -> None:
    dead = node("Transpose", "x", "dead", perm=[0, 3, 1, 2])
    nodes = [dead, node("Conv", "x w", "y")]
    path = save(tmp_path / "a.onnx", nodes, {"w": normal(2, 3, 2, 2)}, [3, 4, 4], rank=4)
    assert_same(path, normal(5, 3, 4, 4))
    models.from_onnx(save(tmp_path / "b.onnx", [dead, node("Identity", "x", "y")], {}, [3, 4, 4], rank=4))


def of_integers(path: Path, nodes: list[Any], constants: dict[str, Any], kind: int) -> Path:
    """The same with an input of integers."""
    save(path, nodes, constants, [3])
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = kind
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        ([node("Add", "x c", "a")], TensorProto.UINT8),
        ([node("Sub", "x c", "a")], TensorProto.UINT8),
        ([node("Div", "x c", "a")], TensorProto.INT64),
        ([node("Add", "x x", "a")], TensorProto.UINT8),
    ],
)
def test_arithmetic_of_integers_is_refused(nodes: list[Any], kind: int, tmp_path: Path) -> None:
    """It wraps or rounds."""
    constant = np.array(200, helper.tensor_dtype_to_np_dtype(kind))
    after = [node("Cast", "a", "b", to=TensorProto.FLOAT), node("MatMul", "b w", "y")]
    path = of_integers(tmp_path / "q.onnx", [*nodes, *after], {"c": constant, "w": normal(3, 2)}, kind)
    with pytest.raises(ValueError, match=r'"node_a": computes with integers, which wrap'):
        models.from_onnx(path)


@pytest.mark.parametrize("op", ["Add", "Identity", "Relu"])
def test_operators_of_others_are_none_of_onnx(op: str, tmp_path: Path) -> None:
    inputs = "a x" if op == "Add" else "a"
    foreign = helper.make_node(op, inputs.split(), ["y"], name="node_y", domain="mine")
    path = save(
        tmp_path / "q.onnx", [node("MatMul", "x w", "a"), node("Relu", "a", "y")], {"w": normal(3, 3)}, [3]
    )
    model = onnx.load(path)
    model.graph.node[1].CopyFrom(foreign)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    onnx.save(model, path)
    with pytest.raises(ValueError, match=rf'mine.{op} "node_y": '):
        models.from_onnx(path)


def test_long_chains_of_elements_are_read_soon(tmp_path: Path) -> None:
    nodes = []
    for number in range(60):
        before = f"a{number - 1}" if number else "x"
        nodes += [node("Relu", before, f"r{number}"), node("Add", f"{before} r{number}", f"a{number}")]
    path = save(tmp_path / "q.onnx", [*nodes, node("MatMul", "a59 w", "y")], {"w": normal(3, 3)}, [3])
    began = time.monotonic()
    assert_same(path, normal(4, 3))
    assert time.monotonic() - began < 30
