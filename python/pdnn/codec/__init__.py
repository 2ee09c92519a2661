"""Codecs: arrays as fewer bytes, and sums over ranks that travel so."""

from pdnn.codec.all_reduce import Books, CompressedAllReduce, compressed_all_reduce
from pdnn.codec.codecs import (
    SPECS,
    BFloat16,
    Codec,
    Float16,
    Int8,
    OneBit,
    PowerSGD,
    TopK,
    parse,
)
from pdnn.codec.feedback import ErrorFeedback
from pdnn.codec.recommend import Choice, Recommendation, recommend_codec

__all__ = [
    "SPECS",
    "BFloat16",
    "Books",
    "Choice",
    "Codec",
    "CompressedAllReduce",
    "ErrorFeedback",
    "Float16",
    "Int8",
    "OneBit",
    "PowerSGD",
    "Recommendation",
    "TopK",
    "compressed_all_reduce",
    "parse",
    "recommend_codec",
]
