"""Codecs: arrays in fewer bytes, and compressed sums over ranks."""

from pdnn.codec.all_reduce import CompressedAllReduce, CompressionStats, compressed_all_reduce
from pdnn.codec.codecs import (
    SPECS,
    BFloat16,
    Codec,
    Float16,
    Int4,
    Int8,
    OneBit,
    PowerSGD,
    TopK,
    parse,
)
from pdnn.codec.custom import CustomCodec
from pdnn.codec.feedback import ErrorFeedback
from pdnn.codec.recommend import Choice, Recommendation, recommend_codec
from pdnn.moved import moved

__all__ = [
    "SPECS",
    "BFloat16",
    "Choice",
    "Codec",
    "CompressedAllReduce",
    "CompressionStats",
    "CustomCodec",
    "ErrorFeedback",
    "Float16",
    "Int4",
    "Int8",
    "OneBit",
    "PowerSGD",
    "Recommendation",
    "TopK",
    "compressed_all_reduce",
    "parse",
    "recommend_codec",
]

__getattr__ = moved(__name__, Books="pdnn.codec.CompressionStats")
