"""Codecs on one core: microseconds, bytes and what is lost of an array like the gradient of a network.

    python benchmarks/codec.py --json codecs.json
    python benchmarks/codec.py --quick

Encodes and decodes 203,530 values, as many as 784-256-10 has parameters, normal with a size that differs from
layer to layer, and prints for each codec: microseconds to encode and to decode, gigabytes a second of the
values themselves, bytes beside theirs, and ‖x − decoded‖ / ‖x‖; and, fed back, the microseconds to encode
with error feedback. How it is measured: measure.py.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import measure
from workers import Runner, Side

SHAPES = ((784, 256), (256,), (256, 10), (10,))
SIZES = (1e-3, 3e-3, 1e-2, 3e-2)
SPECS = ("fp16", "bf16", "int8", "int4", "1bit", "topk:0.01", "topk:0.1", "powersgd:2")
ROUNDS = 50


def gradient(dtype: str) -> Any:
    """The array: layer after layer, in one."""
    import numpy as np

    rng = np.random.default_rng(0)
    parts = [size * rng.standard_normal(math.prod(shape)) for shape, size in zip(SHAPES, SIZES, strict=True)]
    return np.concatenate(parts).astype(dtype)


def make_coder(spec: str, dtype: str, feedback: bool) -> tuple[Any, Any, Any]:
    """A core's codec, the array, and room for its bytes."""
    import numpy as np

    from pdnn._core import CodecSpec
    from pdnn.core import core_for

    core, array = core_for(dtype), gradient(dtype)
    coder = (core.ErrorFeedback if feedback else core.Codec)(CodecSpec(spec), array.size, SHAPES)
    return coder, array, np.empty(coder.bytes(array.size), np.uint8)


def encoding(spec: str, dtype: str, feedback: bool) -> Runner:
    """Encodes; tells ‖x − decoded‖ / ‖x‖ of the first time, which error feedback only adds to later."""
    import numpy as np

    coder, array, room = make_coder(spec, dtype, feedback)
    back = np.empty_like(array)
    coder.encode(array, room)
    coder.decode(room, back)
    error = float(np.linalg.norm(array - back) / np.linalg.norm(array))

    def run() -> tuple[float, float]:
        began = perf_counter()
        for _ in range(ROUNDS):
            coder.encode(array, room)
        return (perf_counter() - began) / ROUNDS, error

    return run


def decoding(spec: str, dtype: str) -> Runner:
    """Decodes; tells how many bytes."""
    import numpy as np

    coder, array, room = make_coder(spec, dtype, False)
    coder.encode(array, room)
    back = np.empty_like(array)

    def run() -> tuple[float, float]:
        began = perf_counter()
        for _ in range(ROUNDS):
            coder.decode(room, back)
        return (perf_counter() - began) / ROUNDS, float(room.size)

    return run


def compare(specs: Sequence[str], dtype: str, blocks: int, warm_up: float) -> list[dict[str, Any]]:
    """Measures codecs, in turns.

    Returns
    -------
    list of dict
        As the JSON file holds it, one a codec.
    """
    sides = []
    for spec in specs:
        sides += [
            Side(f"{spec} encode", encoding, (spec, dtype, False)),
            Side(f"{spec} encode, feedback", encoding, (spec, dtype, True)),
            Side(f"{spec} decode", decoding, (spec, dtype)),
        ]
    results, _ = measure.alternate(sides, blocks, lambda: 0.0, warm_up)
    size = sum(map(math.prod, SHAPES)) * {"float32": 4, "float64": 8}[dtype]
    rows = []
    for number, spec in enumerate(specs):
        encode, fed_back, decode = results[3 * number : 3 * number + 3]
        times = [1e6 * measure.fastest_quarter(side.seconds) for side in (encode, fed_back, decode)]
        rows.append(
            {
                "codec": spec,
                "dtype": dtype,
                "encode": times[0],
                "encode_feedback": times[1],
                "decode": times[2],
                "gigabytes_per_second": size / (times[0] + times[2]) / 1e3,
                "bytes": int(decode.check),
                "of_the_bytes": decode.check / size,
                "error": encode.check,
            }
        )
    return rows


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument("--codecs", default=",".join(SPECS), help="which (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few blocks: rough figures")
    parser.add_argument("--blocks", type=measure.count, help="blocks a side (default 20; quick: 3)")
    measure.add_warm_up(parser)
    parser.add_argument("--json", type=measure.destination, metavar="FILE", help="write everything measured")
    options = parser.parse_args(arguments)

    report = measure.begin()
    print(f"an array of {options.dtype}, one core")
    blocks = options.blocks or (3 if options.quick else 20)
    report["results"] = compare(options.codecs.split(","), options.dtype, blocks, 1e-3 * options.warm_up)
    print(
        f"{'codec':12}{'encode':>10}{'fed back':>10}{'decode':>10}{'both':>10}"
        f"{'GB/s':>8}{'bytes':>18}{'lost':>9}"
    )
    for row in report["results"]:
        both = row["encode"] + row["decode"]
        print(
            f"{row['codec']:12}{row['encode']:7.1f} µs{row['encode_feedback']:7.1f} µs{row['decode']:7.1f} µs"
            f"{both:7.1f} µs{row['gigabytes_per_second']:8.1f}{row['bytes']:10,} {row['of_the_bytes']:6.1%}"
            f"{row['error']:9.4f}"
        )
    measure.write(report, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
