#pragma once
/// BucketSum: one slice of a flat array on its way to its sum over the ranks.
#include <span>
#include <vector>

#include "pdnn/data/metrics.hpp"

namespace pdnn::reduce {

using data::CompressionStats;

/// Several may be under way at once, started in the same order on every rank and finished in the same order. Allocates
/// nothing after construction.
template <class T>
class BucketSum {
 public:
  BucketSum() = default;
  virtual ~BucketSum() = default;
  BucketSum(const BucketSum&) = delete;
  BucketSum& operator=(const BucketSum&) = delete;

  /// Sends this rank's slice of the array, which is this object's until finish(); never waits.
  virtual void start(std::span<T> array) = 0;
  /// Moves it along; true when finish() need not wait for what was sent first.
  virtual bool test() = 0;
  /// Waits, and leaves the sum in the slice.
  virtual void finish() = 0;

  // Of a sum by a codec:

  virtual CompressionStats stats() const { return {}; }
  /// Those since the last call.
  virtual CompressionStats take_stats() { return {}; }
  /// Bytes that leave this rank in a sum.
  virtual Index bytes_sent() const { return 0; }
  /// What is remembered from sum to sum, as long on every rank.
  virtual std::vector<std::span<T>> memory() { return {}; }
  /// The next sum's errors are counted, if any are.
  virtual void measure() {}
};

}  // namespace pdnn::reduce
