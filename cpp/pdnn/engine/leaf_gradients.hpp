#pragma once
/// LeafGradients: gradients of leaves that are made from the left, added up by the tree of core/leaves.hpp.
#include <vector>

#include "pdnn/core/leaves.hpp"
#include "pdnn/core/memory.hpp"
#include "pdnn/nn/loss.hpp"
#include "pdnn/threads/team.hpp"

namespace pdnn::engine {

using threads::Member;

/// Room for those that wait for their right neighbor. Leaves are counted within a node; what is at `sum` in the end is
/// the node's gradient.
template <class T>
class LeafGradients {
 public:
  /// Of so many elements each, in nodes of at most `leaves` leaves: ⌊log₂ leaves⌋ of them wait beside `sum`.
  LeafGradients(Index elements, Index leaves);

  /// Where the gradient of a leaf belongs.
  T* of(Index leaf, T* sum) { return place(std::popcount(static_cast<std::size_t>(leaf)), sum); }
  /// Takes it from an array, which holds something else afterwards.
  void take(Index leaf, AlignedArray<T>& from, T* sum);
  /// This member's part of a slice of the sums that end with this leaf, of a node of `leaves`.
  void join(const Member& member, Index leaf, Index leaves, Range slice, T* sum);

 private:
  /// The sum that so many others wait on the left of.
  T* place(int depth, T* sum) { return depth == 0 ? sum : waiting_[static_cast<std::size_t>(depth) - 1].data(); }

  std::vector<AlignedArray<T>> waiting_;
};

/// The sums of a batch from those of its leaves.
nn::LossValue sum_of_leaves(std::span<const nn::LossValue> leaves);

}  // namespace pdnn::engine
