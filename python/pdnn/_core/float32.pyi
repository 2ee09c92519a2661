from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import pdnn._core
import typing
__all__: list[str] = ['Activation', 'AvgPool2d', 'BCELoss', 'BCEWithLogitsLoss', 'BatchNorm', 'BucketedAllReduce', 'Codec', 'ColumnParallelLinear', 'Conv2d', 'CrossEntropyLoss', 'Curve', 'Custom', 'Dropout', 'Embedding', 'ErrorFeedback', 'Evaluator', 'Flatten', 'GlobalAvgPool2d', 'HuberLoss', 'L1Loss', 'Layer', 'LayerCall', 'LayerNorm', 'LeakyReLU', 'Linear', 'Loss', 'MSELoss', 'MaxPool2d', 'Model', 'NLLLoss', 'Network', 'Optimizer', 'PoissonNLLLoss', 'QuantileLoss', 'Residual', 'RowParallelLinear', 'Session', 'SmoothL1Loss', 'Softmax', 'Source', 'Stepper', 'TAIL', 'Transpose', 'conv2d', 'conv2d_backward', 'dot', 'evaluate_loss', 'inseparable', 'linear_pairs', 'matmul', 'measure_peak', 'measured_cut', 'square_sum', 'stage_seconds', 'times_inverse_hessian', 'zeros']
class Layer:
    def initialize(self, seed: typing.SupportsInt | typing.SupportsIndex, path: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], params: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], buffers: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> None:
        """
        Draws the initial values of the layer at this place: its index in its parent, its parent's, and so on.
        """
    def output_shape(self, sample: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> list[int]:
        ...
class Linear(Layer):
    def __init__(self, inputs: typing.SupportsInt | typing.SupportsIndex, outputs: typing.SupportsInt | typing.SupportsIndex, bias: bool, weight_init: tuple[str, typing.SupportsFloat | typing.SupportsIndex], bias_init: tuple[str, typing.SupportsFloat | typing.SupportsIndex], bfloat16: bool = False) -> None:
        ...
class Conv2d(Layer):
    def __init__(self, inputs: typing.SupportsInt | typing.SupportsIndex, outputs: typing.SupportsInt | typing.SupportsIndex, kernel: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], stride: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], padding: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], dilation: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], groups: typing.SupportsInt | typing.SupportsIndex, bias: bool, weight_init: tuple[str, typing.SupportsFloat | typing.SupportsIndex], bias_init: tuple[str, typing.SupportsFloat | typing.SupportsIndex], bfloat16: bool = False) -> None:
        ...
class Embedding(Layer):
    def __init__(self, count: typing.SupportsInt | typing.SupportsIndex, width: typing.SupportsInt | typing.SupportsIndex, padding: typing.SupportsInt | typing.SupportsIndex | None, init: tuple[str, typing.SupportsFloat | typing.SupportsIndex]) -> None:
        ...
class MaxPool2d(Layer):
    def __init__(self, kernel: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], stride: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], padding: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> None:
        ...
class AvgPool2d(Layer):
    def __init__(self, kernel: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], stride: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], padding: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> None:
        ...
class GlobalAvgPool2d(Layer):
    def __init__(self, line: bool = False) -> None:
        ...
class Activation(Layer):
    def __init__(self, function: str) -> None:
        ...
class BatchNorm(Layer):
    def __init__(self, channels: typing.SupportsInt | typing.SupportsIndex, images: bool, eps: typing.SupportsFloat | typing.SupportsIndex, momentum: typing.SupportsFloat | typing.SupportsIndex, sync: bool) -> None:
        ...
class LayerNorm(Layer):
    def __init__(self, features: typing.SupportsInt | typing.SupportsIndex, eps: typing.SupportsFloat | typing.SupportsIndex) -> None:
        ...
class LeakyReLU(Layer):
    def __init__(self, slope: typing.SupportsFloat | typing.SupportsIndex) -> None:
        ...
class Curve(Layer):
    def __init__(self, function: str, a: typing.SupportsFloat | typing.SupportsIndex = 1, b: typing.SupportsFloat | typing.SupportsIndex = 20) -> None:
        ...
class Residual(Layer):
    def __init__(self, f: Layer) -> None:
        ...
class Softmax(Layer):
    def __init__(self, log: bool) -> None:
        ...
class Flatten(Layer):
    def __init__(self) -> None:
        ...
class Transpose(Layer):
    def __init__(self) -> None:
        ...
class Dropout(Layer):
    def __init__(self, p: typing.SupportsFloat | typing.SupportsIndex) -> None:
        ...
class Network(Layer):
    def __init__(self, layers: collections.abc.Sequence[Layer]) -> None:
        ...
class Loss:
    def classifies(self, target_width: typing.SupportsInt | typing.SupportsIndex) -> bool:
        """
        Whether predictions can be right or wrong with targets of this width (0: classes).
        """
    def reduce(self, value: typing.SupportsFloat | typing.SupportsIndex, weight: typing.SupportsFloat | typing.SupportsIndex) -> float:
        """
        The loss of a batch from the sum of its rows' losses, and what these count: their number, unless they are weighed.
        """
class CrossEntropyLoss(Loss):
    def __init__(self, reduction: str, weight: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] = [], label_smoothing: typing.SupportsFloat | typing.SupportsIndex = 0.0) -> None:
        ...
class SmoothL1Loss(Loss):
    def __init__(self, reduction: str, beta: typing.SupportsFloat | typing.SupportsIndex) -> None:
        ...
class HuberLoss(Loss):
    def __init__(self, reduction: str, delta: typing.SupportsFloat | typing.SupportsIndex) -> None:
        ...
class PoissonNLLLoss(Loss):
    def __init__(self, reduction: str, log_input: bool, full: bool, eps: typing.SupportsFloat | typing.SupportsIndex) -> None:
        ...
class QuantileLoss(Loss):
    def __init__(self, reduction: str, quantiles: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex]) -> None:
        ...
class L1Loss(Loss):
    def __init__(self, reduction: str) -> None:
        ...
class NLLLoss(Loss):
    def __init__(self, reduction: str) -> None:
        ...
class MSELoss(Loss):
    def __init__(self, reduction: str) -> None:
        ...
class BCELoss(Loss):
    def __init__(self, reduction: str) -> None:
        ...
class BCEWithLogitsLoss(Loss):
    def __init__(self, reduction: str) -> None:
        ...
class Model:
    def __init__(self, network: Network, seed: typing.SupportsInt | typing.SupportsIndex | None) -> None:
        """
        Zeros without a seed.
        """
    def batch_bytes(self, sample: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], rows: typing.SupportsInt | typing.SupportsIndex) -> int:
        """
        The memory of one pass over a batch.
        """
    def gradient(self, x: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], target: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], loss: Loss, training: bool, seed: typing.SupportsInt | typing.SupportsIndex, out: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None, weight: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None = None) -> tuple[float, numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]]:
        """
        (loss of the batch, flat gradient), the latter in `out` if that is an array; the model is only read.
        """
    def output_shape(self, sample: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> list[int]:
        ...
    def parameters(self) -> list[tuple[str, list[int]]]:
        """
        Name and shape of each parameter, in the order of the flat buffer.
        """
    def predict(self, x: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> numpy.typing.NDArray[typing.Any]:
        """
        The network's outputs for a batch, in evaluation mode.
        """
    @property
    def buffers(self) -> numpy.typing.NDArray[typing.Any]:
        ...
    @property
    def grads(self) -> numpy.typing.NDArray[typing.Any]:
        ...
    @property
    def params(self) -> numpy.typing.NDArray[typing.Any]:
        ...
class Custom(Layer):
    def __init__(self, name: str, layer: typing.Any) -> None:
        ...
    def parameters(self) -> list[tuple[str, list[int]]]:
        """
        Name and shape of each parameter.
        """
class LayerCall:
    def __init__(self, layer: Layer, sample: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> None:
        """
        A layer bound to samples of this shape.
        """
    def backward(self, x: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], y: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], dy: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], params: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], buffers: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], saved: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], grads: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], want_dx: bool, training: bool, seed: typing.SupportsInt | typing.SupportsIndex, number: typing.SupportsInt | typing.SupportsIndex, ranks: pdnn._core.Communicator | None, final: collections.abc.Callable[[int, int], None] | None) -> numpy.typing.NDArray[typing.Any] | None:
        """
        dx, or None; adds to grads and calls final(begin, end) for each slice of them that is final.
        """
    def forward(self, x: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], params: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], buffers: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], training: bool, seed: typing.SupportsInt | typing.SupportsIndex, number: typing.SupportsInt | typing.SupportsIndex, ranks: pdnn._core.Communicator | None) -> tuple[numpy.typing.NDArray[typing.Any], numpy.typing.NDArray[typing.Any]]:
        """
        (y, what backward needs); random numbers are those of (seed, number).
        """
    @property
    def channels_first(self) -> bool:
        """
        Whether images come with their channels first; else last.
        """
    @property
    def output_shape(self) -> list[int]:
        ...
    @property
    def synchronized(self) -> bool:
        """
        Whether ranks that share a batch add up their sums.
        """
class Optimizer:
    def __init__(self, count: typing.SupportsInt | typing.SupportsIndex, rule: pdnn._core.SGD | pdnn._core.Adam | pdnn._core.RMSprop | pdnn._core.Lion) -> None:
        ...
    def apply(self, params: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], grads: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> None:
        """
        One step from gradients made elsewhere.
        """
    def scale_state(self, factor: typing.SupportsFloat | typing.SupportsIndex) -> None:
        """
        Multiplies the rule's state.
        """
    def set_clip(self, norm: typing.SupportsFloat | typing.SupportsIndex | None, value: typing.SupportsFloat | typing.SupportsIndex | None) -> None:
        """
        Has gradients clipped before an update; at most one is given.
        """
    def set_segments(self, segments: collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, bool, typing.SupportsInt | typing.SupportsIndex]]) -> None:
        """
        Parameter groups as (end, lr, weight decay, frozen, group), in the order of the flat buffer.
        """
    def squares(self, params: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> list[float]:
        """
        The sum of squares of each group's parameters, in double.
        """
    @property
    def state(self) -> list[numpy.typing.NDArray[typing.Any]]:
        """
        The rule's state, as arrays that share its memory.
        """
    @property
    def steps(self) -> int:
        ...
    @steps.setter
    def steps(self, arg1: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
class Codec:
    def __init__(self, spec: pdnn._core.CodecSpec, count: typing.SupportsInt | typing.SupportsIndex, shapes: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]] = []) -> None:
        ...
    def bytes(self, count: typing.SupportsInt | typing.SupportsIndex) -> int:
        """
        Bytes that so many values become.
        """
    def decode(self, data: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], out: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> None:
        ...
    def encode(self, values: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], out: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> None:
        ...
    @property
    def spec(self) -> str:
        ...
class ErrorFeedback(Codec):
    def __init__(self, spec: pdnn._core.CodecSpec, count: typing.SupportsInt | typing.SupportsIndex, shapes: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]] = []) -> None:
        ...
    @property
    def given(self) -> float:
        ...
    @property
    def lost(self) -> float:
        ...
    @property
    def residual(self) -> numpy.typing.NDArray[typing.Any]:
        """
        What was lost so far, as an array that shares its memory.
        """
class Source:
    @typing.overload
    def __init__(self, x: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], target: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], scale: typing.SupportsFloat | typing.SupportsIndex = 1.0, shift: typing.SupportsFloat | typing.SupportsIndex = 0.0, weight: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None = None) -> None:
        ...
    @typing.overload
    def __init__(self, values: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], columns: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], starts: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], width: typing.SupportsInt | typing.SupportsIndex, target: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], weight: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None = None) -> None:
        ...
    def augment(self, padding: typing.SupportsInt | typing.SupportsIndex, flip: bool, seed: typing.SupportsInt | typing.SupportsIndex, epoch: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        From now on images are padded, cut and mirrored as they are gathered.
        """
    def gather(self, rows: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> numpy.typing.NDArray[typing.Any]:
        """
        The samples of these rows, as an array.
        """
class ColumnParallelLinear(Layer):
    def __init__(self, whole: Linear, group: pdnn._core.Communicator) -> None:
        ...
class RowParallelLinear(Layer):
    def __init__(self, whole: Linear, group: pdnn._core.Communicator) -> None:
        ...
class Evaluator:
    def __init__(self, model: Model, threads: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def gradient(self, loss: Loss, source: Source, target_width: typing.SupportsInt | typing.SupportsIndex, rows: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], out: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> float:
        """
        The loss of these rows; their gradient lies in `out` then.
        """
    def loss(self, loss: Loss, source: Source, target_width: typing.SupportsInt | typing.SupportsIndex, rows: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], ranks: pdnn._core.Communicator | None, outputs: bool) -> tuple[float, float, float, numpy.typing.NDArray[typing.Any] | None]:
        """
        (sum of the rows' losses, that of right predictions, what the rows count, the outputs or None).
        """
    def predict(self, source: Source, rows: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> numpy.typing.NDArray[typing.Any]:
        ...
class Stepper:
    def __init__(self, model: Model, loss: Loss, optimizer: Optimizer, sample: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], takes_classes: bool) -> None:
        ...
    def step(self, x: typing.Any, y: typing.Any, training: bool, seed: typing.SupportsInt | typing.SupportsIndex, number: typing.SupportsInt | typing.SupportsIndex, ranks: pdnn._core.Communicator | None, weight: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None = None) -> float | None:
        """
        The loss of the rows before an update by its gradient; None, and nothing done, if the arrays are not as it takes them in place.
        """
class BucketedAllReduce:
    def __init__(self, comm: pdnn._core.Communicator, buckets: collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]], compression: pdnn._core.Compression | None, shapes: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]]) -> None:
        ...
    def finish(self) -> list[float]:
        """
        Starts what was not ready, and waits for all; returns the sums of the counts.
        """
    def ready(self, begin: typing.SupportsInt | typing.SupportsIndex, end: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        These elements are final: starts and moves along what can be.
        """
    def start(self, array: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], counts: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] = [], mean: bool = False) -> None:
        """
        `counts` are added up beside; with `mean` the array is divided by the sum of the first, unless that is 0.
        """
    def test(self) -> bool:
        """
        Moves it along; whether all that was started is there.
        """
    @property
    def array(self) -> typing.Any:
        """
        What is added up, from start() to finish(); None otherwise.
        """
    @property
    def bytes_sent(self) -> int:
        """
        Bytes that leave this rank in a sum by the codec.
        """
    @property
    def started(self) -> int:
        """
        Buckets of the latest sum.
        """
    @property
    def stats(self) -> pdnn._core.CompressionStats:
        ...
class Session:
    def __init__(self, *, config: pdnn._core.DataParallelConfig | pdnn._core.ModelAveragingConfig | pdnn._core.ElasticAveragingConfig | pdnn._core.HogwildConfig | pdnn._core.ScatterGatherConfig | pdnn._core.GridConfig, model: Model, loss: Loss, optimizer: Optimizer, comm: pdnn._core.Communicator, sample: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], target_width: typing.SupportsInt | typing.SupportsIndex, batch_size: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def enter_evaluation(self) -> None:
        """
        Until leave_evaluation() the model is what all ranks would agree on now.
        """
    def finish(self) -> None:
        """
        After the last epoch: all ranks hold the same model.
        """
    def leave(self) -> None:
        """
        Releases the ranks that wait for this one in the session, now or later, with Aborted.
        """
    def leave_evaluation(self) -> None:
        ...
    def record(self) -> None:
        """
        From now on the times of a step an epoch are kept.
        """
    def run_epoch(self, source: Source, order: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], batch_size: typing.SupportsInt | typing.SupportsIndex, seed: typing.SupportsInt | typing.SupportsIndex, first_step: typing.SupportsInt | typing.SupportsIndex, rates: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], on_nonfinite: pdnn._core.OnNonfinite, poll: collections.abc.Callable[[pdnn._core.EpochSums], bool], first_row: typing.SupportsInt | typing.SupportsIndex = 0, before: pdnn._core.EpochSums | None = None, most_steps: typing.SupportsInt | typing.SupportsIndex = 0, pause_after: typing.SupportsFloat | typing.SupportsIndex | None = None) -> pdnn._core.EpochSums:
        """
        Trains on an epoch, or from `first_row` on; returns early if a rank stops, or for a pause.
        """
    def run_epochs(self, source: Source, orders: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], batch_size: typing.SupportsInt | typing.SupportsIndex, seed: typing.SupportsInt | typing.SupportsIndex, first_step: typing.SupportsInt | typing.SupportsIndex, rates: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], scales: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], on_nonfinite: pdnn._core.OnNonfinite, squares: bool, made: list[tuple[pdnn._core.EpochSums, list[float]]]) -> None:
        """
        Trains on whole epochs, each with its order, learning rates and what the optimizer's state is multiplied by before it. Appends to `made` of each its sums, and the squares of each group's parameters after it if they are wanted, for which the model is looked at after each; ends after one in which a step was not finite.
        """
    def take_compression(self) -> pdnn._core.CompressionStats:
        """
        What was sent by a codec after the last epoch, in finish().
        """
    def timeline(self) -> list[list[tuple[str, int, int, float, float]]]:
        """
        What each rank of this rank's pipeline did when, in that step.
        """
    @property
    def comm(self) -> pdnn._core.Communicator:
        """
        The session's ranks, as a group of its own.
        """
    @property
    def memory(self) -> list[numpy.typing.NDArray[typing.Any]]:
        """
        What it remembers from step to step, such as what a codec lost: arrays that share its memory.
        """
    @property
    def rows_apart(self) -> tuple[float, float]:
        """
        What the rows count that were trained on since all ranks last held the same model: by this rank, and by all together.
        """
    @rows_apart.setter
    def rows_apart(self, arg1: tuple[typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex]) -> None:
        ...
def conv2d(x: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], w: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], b: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None = None, *, stride: typing.SupportsInt | typing.SupportsIndex = 1, padding: typing.SupportsInt | typing.SupportsIndex = 0, threads: typing.SupportsInt | typing.SupportsIndex = 1) -> numpy.typing.NDArray[typing.Any]:
    """
    The convolution of images (n, height, width, inputs) with w (kernel, kernel, inputs, outputs).
    """
def conv2d_backward(x: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], w: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], dy: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], *, stride: typing.SupportsInt | typing.SupportsIndex = 1, padding: typing.SupportsInt | typing.SupportsIndex = 0, dx: bool = True, dw: bool = True, threads: typing.SupportsInt | typing.SupportsIndex = 1) -> tuple[typing.Any, typing.Any, typing.Any]:
    """
    (dx, dw, db) of conv2d from its gradient dy, shaped like y; None for what is not wanted.
    """
def dot(a: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], b: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> float:
    """
    In double, in an order that depends on the length alone.
    """
def evaluate_loss(loss: Loss, outputs: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], targets: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], weight: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None, want_dy: bool) -> tuple[float, float, numpy.typing.NDArray[typing.Any] | None]:
    """
    (loss of the batch, what its rows count, gradient for the outputs or None).
    """
def inseparable(model: Model, sample: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> list[tuple[int, int]]:
    """
    Layers, from one to before another, that have other bits in two stages.
    """
def linear_pairs(model: Model) -> list[tuple[int, int]]:
    """
    Numbers of the Linears that tensor parallel cuts together.
    """
def matmul(a: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], b: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], threads: typing.SupportsInt | typing.SupportsIndex = 1, transposed: str = '') -> numpy.typing.NDArray[typing.Any]:
    """
    a @ b for C-ordered matrices; transposed: "a" for a.T @ b, "b" for a @ b.T.
    """
def measure_peak(seconds: typing.SupportsFloat | typing.SupportsIndex = 0.01) -> float:
    """
    Floating-point operations a second of fused multiply-adds on one core, measured.
    """
def measured_cut(model: Model, sample: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], stages: typing.SupportsInt | typing.SupportsIndex, rows: typing.SupportsInt | typing.SupportsIndex) -> list[int]:
    """
    The layers with which the later stages of a pipeline begin, so that the slowest takes least for so many rows.
    """
def square_sum(x: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> float:
    """
    Σ x², in an order that depends on the number of elements only.
    """
def stage_seconds(model: Model, sample: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], cut: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], rows: typing.SupportsInt | typing.SupportsIndex) -> list[tuple[float, float]]:
    """
    Seconds forward and backward of each stage, measured now on one thread.
    """
def times_inverse_hessian(steps: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], changes: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], curvatures: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], rows: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], d: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> None:
    """
    d becomes H d, H made of these rows of the differences, the oldest first.
    """
def zeros(count: typing.SupportsInt | typing.SupportsIndex) -> numpy.typing.NDArray[typing.Any]:
    """
    An array of zeros that starts on a cache line.
    """
TAIL: int = 3
