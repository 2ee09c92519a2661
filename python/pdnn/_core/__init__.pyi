"""
The C++ core of pdnn.
"""
from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing
from . import float32
from . import float64
__all__: list[str] = ['Aborted', 'Adam', 'CODECS', 'CodecSpec', 'CommunicationError', 'Communicator', 'Compression', 'CompressionStats', 'DataParallelConfig', 'Died', 'ElasticAveragingConfig', 'EpochSums', 'GridConfig', 'HogwildConfig', 'Lion', 'ModelAveragingConfig', 'OnNonfinite', 'Op', 'Pause', 'PipelineConfig', 'PoolConfig', 'QuadraticModel', 'RMSprop', 'RankFailed', 'ReducerOptions', 'Request', 'SGD', 'ScatterGatherConfig', 'SharedMemory', 'TeamConfig', 'ThreadGroup', 'Traffic', 'active_isa', 'available_cores', 'build_info', 'cut_by_cost', 'default_isa', 'die_after', 'draw_rows', 'epoch_order', 'float32', 'float64', 'interface', 'isa_obstacles', 'make_self', 'measure_bfloat16', 'measure_round_trip', 'nodes_of_ranks', 'numbers', 'pipeline_bubble', 'pipeline_in_flight', 'pipeline_programs', 'pipeline_with_messages', 'plain_rows', 'read_cores', 'recording', 'remove_record', 'simulate_pipeline', 'state_of_job', 'supported_isas', 'uniform', 'wants_feedback']
class CommunicationError(RuntimeError):
    """
    The world's fault: MPI failed, a rank was lost, or a wait took longer than PDNN_TIMEOUT.
    """
class Aborted(CommunicationError):
    """
    A wait was cut short because another rank failed.
    """
class Died(BaseException):
    """
    Ends a thread that is a rank and has died; nobody should catch it.
    """
class RankFailed(CommunicationError):
    """
    Another rank died. The ranks that are left can go on in the group that `Communicator.shrink` makes.
    """
    @property
    def ranks(self) -> list[int]:
        """
        Those that died, as the group counts them that all others were split off.
        """
class Op:
    """
    What a reduction does with the ranks' values.
    
    Members:
    
      sum
    
      mean
    
      max
    
      min
    """
    __members__: typing.ClassVar[dict[str, Op]]
    max: typing.ClassVar[Op]
    mean: typing.ClassVar[Op]
    min: typing.ClassVar[Op]
    sum: typing.ClassVar[Op]
    @typing.overload
    def __eq__(self, other: Op) -> bool:
        ...
    @typing.overload
    def __eq__(self, other: typing.Any) -> bool:
        ...
    def __getstate__(self) -> int:
        ...
    def __hash__(self) -> int:
        ...
    def __index__(self) -> int:
        ...
    def __init__(self, value: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def __int__(self) -> int:
        ...
    @typing.overload
    def __ne__(self, other: Op) -> bool:
        ...
    @typing.overload
    def __ne__(self, other: typing.Any) -> bool:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, state: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def __str__(self) -> str:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def value(self) -> int:
        ...
class Request:
    """
    A call under way; it keeps its arrays alive.
    """
    def calls_side_by_side(self) -> str:
        """
        The ranks' calls at this collective one if they differ, a line each after a new line; else empty.
        """
    def test(self) -> bool:
        """
        Whether the call is done.
        """
    def wait(self, call: str | None = None) -> None:
        """
        Returns when the call is done; a message about a wait that lasts too long speaks of `call`.
        """
class SharedMemory:
    """
    Bytes that several ranks see.
    """
class Traffic:
    """
    What a rank has sent to others, and how long it has waited.
    """
    @property
    def bytes(self) -> int:
        """
        Sent; of a collective call what a good algorithm for it sends (docs/algorithms.md).
        """
    @property
    def seconds(self) -> float:
        """
        In waits for calls.
        """
    @property
    def shared_bytes(self) -> int:
        """
        Read where other ranks wrote, in memory that they share.
        """
class Communicator:
    """
    One rank's end of a group.
    """
    def agree(self, bits: typing.SupportsInt | typing.SupportsIndex, patient: bool) -> int:
        """
        Collective over the ranks that live: the bits that all of them have given.
        """
    def at_step(self, step: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Tells which training step this rank is at.
        """
    def die(self) -> None:
        """
        This rank dies.
        """
    def end_record(self, how: str) -> None:
        """
        This rank makes no more calls, as those are told that wait for it.
        """
    def ranks_of_machine(self) -> Communicator:
        """
        Collective: the group of the ranks of this one's machine.
        """
    def share(self, bytes: typing.SupportsInt | typing.SupportsIndex) -> SharedMemory | None:
        """
        Collective: memory that all ranks see; None, on all of them, if one of them cannot.
        """
    def shrink(self) -> Communicator:
        """
        Collective over the ranks that live: the group of those.
        """
    def split(self, color: typing.SupportsInt | typing.SupportsIndex, key: typing.SupportsInt | typing.SupportsIndex) -> Communicator:
        """
        Collective: the group of the ranks with this rank's color, ordered by (key, rank).
        """
    def start_all_gather(self, mine: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], all: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], counts: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], announces: str = '') -> Request:
        ...
    def start_all_reduce(self, input: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], out: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], op: Op) -> Request:
        ...
    def start_barrier(self) -> Request:
        ...
    def start_broadcast(self, data: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], root: typing.SupportsInt | typing.SupportsIndex) -> Request:
        ...
    def start_gather(self, mine: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], all: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None, counts: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], root: typing.SupportsInt | typing.SupportsIndex) -> Request:
        ...
    def start_recv(self, data: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], source: typing.SupportsInt | typing.SupportsIndex, tag: typing.SupportsInt | typing.SupportsIndex) -> Request:
        ...
    def start_reduce(self, input: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], out: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None, root: typing.SupportsInt | typing.SupportsIndex, op: Op) -> Request:
        ...
    def start_reduce_scatter(self, all: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], mine: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], counts: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], op: Op) -> Request:
        ...
    def start_scatter(self, all: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None, counts: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], mine: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], root: typing.SupportsInt | typing.SupportsIndex) -> Request:
        ...
    def start_send(self, data: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], dest: typing.SupportsInt | typing.SupportsIndex, tag: typing.SupportsInt | typing.SupportsIndex) -> Request:
        ...
    def use_all_reduce(self, name: str, function: typing.Any) -> None:
        """
        Sums of floats are made by function(communicator, array), in place; inherited by groups split off.
        """
    def use_own_all_reduce(self) -> None:
        """
        Ends use_all_reduce().
        """
    @property
    def all_reduce_name(self) -> str | None:
        """
        What use_all_reduce() was told; None at first.
        """
    @property
    def rank(self) -> int:
        """
        This rank's number, from 0.
        """
    @property
    def size(self) -> int:
        """
        How many ranks there are.
        """
    @property
    def step(self) -> int:
        """
        What at_step was told last; -1 at first.
        """
    @property
    def survives(self) -> bool:
        """
        Whether the ranks that are left when one dies can go on.
        """
    @property
    def traffic(self) -> Traffic:
        """
        Of all calls of this rank in this group so far, as a copy.
        """
class ThreadGroup:
    """
    Ranks that are threads of this process.
    """
    def __init__(self, size: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def abort(self, rank: typing.SupportsInt | typing.SupportsIndex | None = None) -> None:
        """
        Releases all ranks that wait, now or later, with Aborted, which names the rank that failed.
        """
    def communicator(self, rank: typing.SupportsInt | typing.SupportsIndex) -> Communicator:
        """
        The end of one rank, for the thread that will be it.
        """
class CompressionStats:
    @property
    def bytes(self) -> int:
        ...
    @property
    def bytes_uncompressed(self) -> int:
        ...
    @property
    def decode_seconds(self) -> float:
        ...
    @property
    def encode_seconds(self) -> float:
        ...
    @property
    def given(self) -> float:
        ...
    @property
    def lost(self) -> float:
        ...
    @property
    def sums(self) -> int:
        ...
class CodecSpec:
    """
    Which codec is wanted.
    """
    @typing.overload
    def __init__(self, words: str) -> None:
        """
        One of the core's, by the string that spells it.
        """
    @typing.overload
    def __init__(self, name: str, codec: typing.Any, feedback: bool) -> None:
        """
        One in Python, with size(count, dtype), write(values, size) and read(bytes, count, dtype).
        """
class Pause:
    """
    Operations are not recorded within it.
    """
    def __enter__(self) -> typing.Any:
        ...
    def __exit__(self, arg0: typing.Any, arg1: typing.Any, arg2: typing.Any) -> None:
        ...
    def __init__(self) -> None:
        ...
class SGD:
    def __init__(self, *, momentum: typing.SupportsFloat | typing.SupportsIndex, nesterov: bool) -> None:
        ...
class Adam:
    def __init__(self, *, beta1: typing.SupportsFloat | typing.SupportsIndex, beta2: typing.SupportsFloat | typing.SupportsIndex, eps: typing.SupportsFloat | typing.SupportsIndex, decoupled: bool) -> None:
        ...
class RMSprop:
    def __init__(self, *, alpha: typing.SupportsFloat | typing.SupportsIndex, eps: typing.SupportsFloat | typing.SupportsIndex, momentum: typing.SupportsFloat | typing.SupportsIndex, centered: bool) -> None:
        ...
class Lion:
    def __init__(self, *, beta1: typing.SupportsFloat | typing.SupportsIndex, beta2: typing.SupportsFloat | typing.SupportsIndex) -> None:
        ...
class Compression:
    def __init__(self, codec: CodecSpec, feedback: bool | None, measure_every: typing.SupportsInt | typing.SupportsIndex, form: str = 'best') -> None:
        ...
class ReducerOptions:
    def __init__(self, shared_memory: bool | None = None, bucket_bytes: typing.SupportsInt | typing.SupportsIndex = 0, compression: Compression | None = None) -> None:
        ...
class TeamConfig:
    def __init__(self, threads: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
class PoolConfig:
    def __init__(self, workers: typing.SupportsInt | typing.SupportsIndex, pieces: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
class PipelineConfig:
    def __init__(self, schedule: str, micro_batches: typing.SupportsInt | typing.SupportsIndex, threads: typing.SupportsInt | typing.SupportsIndex, codec: CodecSpec, programs: collections.abc.Sequence[collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]]] = []) -> None:
        ...
class DataParallelConfig:
    def __init__(self, engine: TeamConfig | PoolConfig, sum_of_means: bool, reducer: ReducerOptions, leaves: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
class ModelAveragingConfig:
    def __init__(self, engine: TeamConfig | PoolConfig, every: typing.SupportsInt | typing.SupportsIndex, by_master: bool, compression: Compression | None) -> None:
        ...
class ElasticAveragingConfig:
    def __init__(self, engine: TeamConfig | PoolConfig, every: typing.SupportsInt | typing.SupportsIndex, moving_rate: typing.SupportsFloat | typing.SupportsIndex) -> None:
        ...
class HogwildConfig:
    def __init__(self, threads: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
class ScatterGatherConfig:
    def __init__(self, engine: TeamConfig | PoolConfig, once: bool) -> None:
        ...
class GridConfig:
    def __init__(self, stages: typing.SupportsInt | typing.SupportsIndex, tensor: typing.SupportsInt | typing.SupportsIndex, chunks: typing.SupportsInt | typing.SupportsIndex, pipeline: PipelineConfig, cut: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], sum_of_means: bool, reducer: ReducerOptions, leaves: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
class OnNonfinite:
    """
    Members:
    
      ignore
    
      skip
    
      stop
    """
    __members__: typing.ClassVar[dict[str, OnNonfinite]]
    ignore: typing.ClassVar[OnNonfinite]
    skip: typing.ClassVar[OnNonfinite]
    stop: typing.ClassVar[OnNonfinite]
    @typing.overload
    def __eq__(self, other: OnNonfinite) -> bool:
        ...
    @typing.overload
    def __eq__(self, other: typing.Any) -> bool:
        ...
    def __getstate__(self) -> int:
        ...
    def __hash__(self) -> int:
        ...
    def __index__(self) -> int:
        ...
    def __init__(self, value: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def __int__(self) -> int:
        ...
    @typing.overload
    def __ne__(self, other: OnNonfinite) -> bool:
        ...
    @typing.overload
    def __ne__(self, other: typing.Any) -> bool:
        ...
    def __repr__(self) -> str:
        ...
    def __setstate__(self, state: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    def __str__(self) -> str:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def value(self) -> int:
        ...
class EpochSums:
    def __init__(self, numbers: collections.abc.Mapping[str, typing.SupportsFloat | typing.SupportsIndex] = {}) -> None:
        """
        From their numbers, as `numbers` names them; those that are left out are 0.
        """
    @property
    def bytes(self) -> int:
        ...
    @property
    def compression(self) -> CompressionStats:
        ...
    @property
    def correct(self) -> float:
        ...
    @property
    def loss(self) -> float:
        ...
    @property
    def max_staleness(self) -> int:
        ...
    @property
    def mean_staleness(self) -> float:
        ...
    @property
    def nonfinite(self) -> tuple[int, int, int] | None:
        """
        The step that ended the epoch because it was not finite, and was undone; the first element of the flat parameters that it would have spoiled, -1 for the loss itself; the rank whose own it was, or -1.
        """
    @property
    def numbers(self) -> dict[str, float]:
        """
        All of them, by name.
        """
    @property
    def phases(self) -> dict[str, float]:
        ...
    @property
    def rows(self) -> int:
        ...
    @property
    def seconds(self) -> float:
        ...
    @property
    def shared_bytes(self) -> int:
        ...
    @property
    def skipped(self) -> int:
        ...
    @property
    def steps(self) -> int:
        ...
    @property
    def stopped(self) -> bool:
        ...
    @property
    def updates(self) -> int:
        ...
    @property
    def weight(self) -> float:
        """
        What these rows count in the means: their number, unless they are weighed.
        """
class QuadraticModel:
    def __init__(self, model: float64.Model, loss: float64.Loss, sample: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], trained: collections.abc.Sequence[bool], fisher: bool, threads: typing.SupportsInt | typing.SupportsIndex, ranks: Communicator | None) -> None:
        ...
    def diagonal(self) -> numpy.typing.NDArray[numpy.float64]:
        """
        Of the matrix B.
        """
    def linearize(self) -> numpy.typing.NDArray[numpy.float64]:
        """
        Makes the model at the parameters as they are; returns the gradient.
        """
    def loss(self) -> tuple[float, float, float]:
        """
        (sum of the rows' losses, that of right predictions, what the rows count), at the parameters as they are.
        """
    def solve_cg(self, diag: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], right: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], tolerance: typing.SupportsFloat | typing.SupportsIndex, most: typing.SupportsInt | typing.SupportsIndex) -> numpy.typing.NDArray[numpy.float64]:
        """
        (B + diag)⁻¹ right by conjugate gradients.
        """
    def solve_kernel(self, damping: typing.SupportsFloat | typing.SupportsIndex) -> numpy.typing.NDArray[numpy.float64] | None:
        """
        (B + damping)⁻¹ gradient by decomposing a matrix of rows; None if it is singular or not finite.
        """
    def solve_normal(self, diag: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], right: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> numpy.typing.NDArray[numpy.float64] | None:
        """
        (B + diag)⁻¹ right by decomposing a matrix of parameters; None if it is singular or not finite.
        """
    def take(self, source: typing.Any, rows: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> None:
        """
        From now on these rows are the batch.
        """
    @property
    def rows(self) -> int:
        """
        Of the Jacobian.
        """
def active_isa() -> str:
    """
    The instruction set that the kernels run on: v2, v3, v4, v4-bf16 or v4-amx; on arm64 v2, neon or neon-bf16. PDNN_ISA forces one.
    """
def available_cores() -> int:
    """
    Cores that this process may use: min(affinity, quota).
    """
def build_info() -> dict[str, str]:
    """
    Version, compiler and C++ standard of this build.
    """
def cut_by_cost(costs: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex], stages: typing.SupportsInt | typing.SupportsIndex) -> list[int]:
    """
    The layers with which later stages begin, so that the dearest costs least.
    """
def default_isa() -> str:
    """
    The instruction set that is taken unless PDNN_ISA forces one.
    """
def die_after(calls: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    This thread, which is a rank, dies at its so many-th call of any group of several ranks; 0: it does not.
    """
def draw_rows(seed: typing.SupportsInt | typing.SupportsIndex, epoch: typing.SupportsInt | typing.SupportsIndex, count: typing.SupportsInt | typing.SupportsIndex, rows: typing.SupportsInt | typing.SupportsIndex) -> numpy.typing.NDArray[numpy.int64]:
    """
    Rows drawn with replacement.
    """
def epoch_order(seed: typing.SupportsInt | typing.SupportsIndex, epoch: typing.SupportsInt | typing.SupportsIndex, count: typing.SupportsInt | typing.SupportsIndex) -> numpy.typing.NDArray[numpy.int64]:
    """
    The order in which an epoch takes its rows.
    """
def interface() -> str:
    """
    What this module and the other one pass to one another, as a hash.
    """
def isa_obstacles() -> dict[str, str]:
    """
    The instruction sets that do not run here, and why.
    """
def make_self() -> Communicator:
    """
    The group of this rank alone.
    """
def measure_bfloat16(isa: str, seconds: typing.SupportsFloat | typing.SupportsIndex) -> float:
    """
    Operations a second of a product of 64 x 256 by 256 x 256 numbers in bfloat16 on an instruction set.
    """
def measure_round_trip() -> float:
    """
    Seconds that a word takes from one core to another and back, measured now.
    """
def nodes_of_ranks(leaves: typing.SupportsInt | typing.SupportsIndex, ranks: typing.SupportsInt | typing.SupportsIndex) -> list[int]:
    """
    How many nodes of the tree over a batch's leaves each rank makes, of the largest that lie whole in its run.
    """
def numbers(words: list[str]) -> numpy.typing.NDArray[numpy.float64]:
    """
    The numbers that are written in a list of str. Raises ValueError if one is none.
    """
def pipeline_bubble(lanes: collections.abc.Sequence[collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex, typing.SupportsFloat | typing.SupportsIndex]]]) -> float:
    """
    The share of all ranks' time in which they compute nothing.
    """
def pipeline_in_flight(programs: collections.abc.Sequence[collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]]]) -> list[int]:
    """
    The most passes that each rank has between forward and backward.
    """
def pipeline_programs(schedule: str, ranks: typing.SupportsInt | typing.SupportsIndex, micro_batches: typing.SupportsInt | typing.SupportsIndex, chunks: typing.SupportsInt | typing.SupportsIndex) -> list[list[tuple[str, int, int]]]:
    """
    What every rank of a pipeline does: (what, micro, chunk) in order.
    """
def pipeline_with_messages(passes: collections.abc.Sequence[collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]]]) -> list[list[tuple[str, int, int]]]:
    """
    What every rank does whose passes are these, checked.
    """
def plain_rows(lines: list[str], delimiter: str, width: typing.SupportsInt | typing.SupportsIndex, places: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], texts: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> tuple[numpy.typing.NDArray[numpy.float64], list[list[str]]] | None:
    """
    Of lines of so many columns: the numbers at these places, row by row, and the texts of these columns. None if one of them is no plain number, a line has another number of columns, or anything is quoted.
    """
def read_cores() -> tuple[int, int, float]:
    """
    (cores online, cores in this process's affinity mask, the cgroup's quota in cores or 0.0 for none).
    """
def recording() -> bool:
    """
    Whether operations are recorded, which a Pause that is entered turns off.
    """
def remove_record(process: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
    Removes the files of that job's record.
    """
def simulate_pipeline(programs: collections.abc.Sequence[collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]]], forward: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex], backward: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex], message: typing.SupportsFloat | typing.SupportsIndex) -> list[list[tuple[str, int, int, float, float]]]:
    """
    The programs against the clock: (what, micro, chunk, begin, end) of every rank.
    """
def state_of_job(process: typing.SupportsInt | typing.SupportsIndex) -> tuple[str, str, bool] | None:
    """
    What each rank of a job does, who waits for whom, and whether a rank has said so when it gave up; None without a record of a job of which `process` is a rank or has started one.
    """
def supported_isas() -> list[str]:
    """
    The instruction sets that run here.
    """
def uniform(seed: typing.SupportsInt | typing.SupportsIndex, index: typing.SupportsInt | typing.SupportsIndex) -> float:
    """
    Element `index` of the uniform [0, 1) stream of a seed.
    """
def wants_feedback(spec: CodecSpec) -> bool:
    """
    Whether a codec's errors grow with the number of steps unless they are fed back.
    """
CODECS: str = '"fp16", "bf16", "int8", "int8:256", "int4", "int4:256", "1bit", "1bit:1024", "topk:0.01", "powersgd:2"'
@typing.type_check_only
class Width(typing.Protocol):
    """
    The module float32 or float64: both hold the same names.
    """
    @property
    def Layer(self) -> type[float32.Layer]:
        ...
    @property
    def Linear(self) -> type[float32.Linear]:
        ...
    @property
    def Conv2d(self) -> type[float32.Conv2d]:
        ...
    @property
    def Embedding(self) -> type[float32.Embedding]:
        ...
    @property
    def MaxPool2d(self) -> type[float32.MaxPool2d]:
        ...
    @property
    def AvgPool2d(self) -> type[float32.AvgPool2d]:
        ...
    @property
    def GlobalAvgPool2d(self) -> type[float32.GlobalAvgPool2d]:
        ...
    @property
    def Activation(self) -> type[float32.Activation]:
        ...
    @property
    def BatchNorm(self) -> type[float32.BatchNorm]:
        ...
    @property
    def LayerNorm(self) -> type[float32.LayerNorm]:
        ...
    @property
    def LeakyReLU(self) -> type[float32.LeakyReLU]:
        ...
    @property
    def Curve(self) -> type[float32.Curve]:
        ...
    @property
    def Residual(self) -> type[float32.Residual]:
        ...
    @property
    def Softmax(self) -> type[float32.Softmax]:
        ...
    @property
    def Flatten(self) -> type[float32.Flatten]:
        ...
    @property
    def Transpose(self) -> type[float32.Transpose]:
        ...
    @property
    def Dropout(self) -> type[float32.Dropout]:
        ...
    @property
    def Network(self) -> type[float32.Network]:
        ...
    @property
    def Loss(self) -> type[float32.Loss]:
        ...
    @property
    def CrossEntropyLoss(self) -> type[float32.CrossEntropyLoss]:
        ...
    @property
    def SmoothL1Loss(self) -> type[float32.SmoothL1Loss]:
        ...
    @property
    def HuberLoss(self) -> type[float32.HuberLoss]:
        ...
    @property
    def PoissonNLLLoss(self) -> type[float32.PoissonNLLLoss]:
        ...
    @property
    def QuantileLoss(self) -> type[float32.QuantileLoss]:
        ...
    @property
    def L1Loss(self) -> type[float32.L1Loss]:
        ...
    @property
    def NLLLoss(self) -> type[float32.NLLLoss]:
        ...
    @property
    def MSELoss(self) -> type[float32.MSELoss]:
        ...
    @property
    def BCELoss(self) -> type[float32.BCELoss]:
        ...
    @property
    def BCEWithLogitsLoss(self) -> type[float32.BCEWithLogitsLoss]:
        ...
    @property
    def Model(self) -> type[float32.Model]:
        ...
    @property
    def Custom(self) -> type[float32.Custom]:
        ...
    @property
    def LayerCall(self) -> type[float32.LayerCall]:
        ...
    @property
    def Optimizer(self) -> type[float32.Optimizer]:
        ...
    @property
    def Codec(self) -> type[float32.Codec]:
        ...
    @property
    def ErrorFeedback(self) -> type[float32.ErrorFeedback]:
        ...
    @property
    def Source(self) -> type[float32.Source]:
        ...
    @property
    def ColumnParallelLinear(self) -> type[float32.ColumnParallelLinear]:
        ...
    @property
    def RowParallelLinear(self) -> type[float32.RowParallelLinear]:
        ...
    @property
    def Evaluator(self) -> type[float32.Evaluator]:
        ...
    @property
    def Stepper(self) -> type[float32.Stepper]:
        ...
    @property
    def BucketedAllReduce(self) -> type[float32.BucketedAllReduce]:
        ...
    @property
    def Session(self) -> type[float32.Session]:
        ...
    def conv2d(self, x: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], w: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], b: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None=None, *, stride: typing.SupportsInt | typing.SupportsIndex=1, padding: typing.SupportsInt | typing.SupportsIndex=0, threads: typing.SupportsInt | typing.SupportsIndex=1) -> numpy.typing.NDArray[typing.Any]:
        ...
    def conv2d_backward(self, x: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], w: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], dy: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], *, stride: typing.SupportsInt | typing.SupportsIndex=1, padding: typing.SupportsInt | typing.SupportsIndex=0, dx: bool=True, dw: bool=True, threads: typing.SupportsInt | typing.SupportsIndex=1) -> tuple[typing.Any, typing.Any, typing.Any]:
        ...
    def dot(self, a: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], b: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> float:
        ...
    def evaluate_loss(self, loss: float32.Loss, outputs: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], targets: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], weight: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None, want_dy: bool) -> tuple[float, float, numpy.typing.NDArray[typing.Any] | None]:
        ...
    def inseparable(self, model: float32.Model, sample: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> list[tuple[int, int]]:
        ...
    def linear_pairs(self, model: float32.Model) -> list[tuple[int, int]]:
        ...
    def matmul(self, a: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], b: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], threads: typing.SupportsInt | typing.SupportsIndex=1, transposed: str='') -> numpy.typing.NDArray[typing.Any]:
        ...
    def measure_peak(self, seconds: typing.SupportsFloat | typing.SupportsIndex=0.01) -> float:
        ...
    def measured_cut(self, model: float32.Model, sample: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], stages: typing.SupportsInt | typing.SupportsIndex, rows: typing.SupportsInt | typing.SupportsIndex) -> list[int]:
        ...
    def square_sum(self, x: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> float:
        ...
    def stage_seconds(self, model: float32.Model, sample: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], cut: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], rows: typing.SupportsInt | typing.SupportsIndex) -> list[tuple[float, float]]:
        ...
    def times_inverse_hessian(self, steps: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], changes: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], curvatures: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], rows: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]], d: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]]) -> None:
        ...
    def zeros(self, count: typing.SupportsInt | typing.SupportsIndex) -> numpy.typing.NDArray[typing.Any]:
        ...
