#pragma once
/// NodeTree: who makes which nodes of the tree over the leaves of a batch, and their sum in the order of that tree.
#include <span>
#include <vector>

#include "pdnn/core/leaves.hpp"
#include "pdnn/threads/team.hpp"

namespace pdnn::reduce {

using threads::Member;

/// Each rank has a run of the leaves, and makes the largest nodes that lie whole in it. Nodes are numbered from the
/// left, so a rank's follow those of the rank before.
class NodeTree {
 public:
  /// Throws ValueError if there are more ranks than leaves.
  NodeTree(Index leaves, int ranks);

  Index leaves() const { return leaves_; }
  Index count() const { return std::ssize(joins_); }
  Range of_rank(int rank) const {
    return {first_[static_cast<std::size_t>(rank)], first_[static_cast<std::size_t>(rank) + 1]};
  }
  /// This member's part of out = the sum of all nodes over a range of their elements; out lies as they do, and apart.
  template <class T>
  void add_up(const Member& member, std::span<const T* const> nodes, Range range, T* out) const;

 private:
  Index leaves_;
  std::vector<Index> first_;  // node of each rank; behind them the number of nodes
  std::vector<int> joins_;    // how often the sum that ends with a node joins the one before
};

}  // namespace pdnn::reduce
