#pragma once
/// Books: what a rank has sent of gradients and activations, what it cost and what it lost.
#include "pdnn/core/types.hpp"

namespace pdnn::parallel {

struct Books {
  Index sums = 0;                ///< over ranks, where something is added up
  Index bytes = 0;               ///< that left this rank, each as often as it is sent
  Index bytes_uncompressed = 0;  ///< of the values themselves; of a sum what an all-reduce sends at least: 2 (p − 1)/p
  double encode_seconds = 0, decode_seconds = 0;
  double lost = 0, given = 0;  ///< Σ (x − decoded)² and Σ x² of what was encoded and measured; 0 where nothing is

  Books& operator+=(const Books& other) {
    sums += other.sums;
    bytes += other.bytes;
    bytes_uncompressed += other.bytes_uncompressed;
    encode_seconds += other.encode_seconds;
    decode_seconds += other.decode_seconds;
    lost += other.lost;
    given += other.given;
    return *this;
  }
};

}  // namespace pdnn::parallel
