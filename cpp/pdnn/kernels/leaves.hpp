#pragma once
/// LeafSums: how a sum over rows is cut into leaves (core/leaves.hpp), and where sums of some of them wait for others.
#include "pdnn/core/types.hpp"

namespace pdnn::kernels {

/// The leaves of one node: each is summed from 0 in ascending rows, and they are joined by the tree over them. Of none,
/// or of one, a sum is what it is without leaves.
template <class T>
struct LeafSums {
  const Index* ends = nullptr;  ///< the row behind each leaf, rising; the last is the number of rows
  Index count = 0;              ///< of leaves
  /// Room for ⌈log₂ count⌉ times as many elements as the sums, for the kernels that say so. What is in it is lost.
  T* room = nullptr;

  bool several() const { return count > 1; }
};

}  // namespace pdnn::kernels
