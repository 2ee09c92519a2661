#pragma once
/// Leaves: the fixed pieces of a batch, and the binary tree in which what is made of them is added up.
///
/// The sums of a batch that is cut into K leaves do not depend on who makes them: a leaf is summed row by row from 0,
/// and leaves are joined by one tree. Node i of level l is the sum of the leaves [i 2ˡ, (i + 1) 2ˡ), as far as they
/// exist; it is its left half plus its right half, or its left half alone.
#include <array>
#include <bit>
#include <span>
#include <vector>

#include "pdnn/core/types.hpp"

namespace pdnn {

/// A batch of `batch` rows in `count` leaves, of which those of `run` are made here. None: the batch is not cut.
struct Leaves {
  Index count = 0, batch = 0;
  Range run{};

  /// Of the batch. A leaf may be empty.
  Range rows(Index leaf) const { return share(batch, leaf, count); }
  Range rows() const { return run.size() > 0 ? Range{rows(run.begin).begin, rows(run.end - 1).end} : Range{}; }
  bool operator==(const Leaves&) const = default;
};

/// The largest nodes of the tree over `count` leaves that lie whole in a run of them, from the left.
std::vector<Range> nodes_of(Range run, Index count);

/// Where an array of the `node`-th of so many nodes begins. The first one's is `first`. Whole gradients of the others
/// lie in `more`, one behind another, and in each of them the array is `at` elements behind its beginning.
template <class T>
T* of_node(Index node, Index nodes, T* first, std::type_identity_t<std::span<T>> more, Index at = 0) {
  return node == 0 ? first : more.data() + (node - 1) * (std::ssize(more) / (nodes - 1)) + at;
}

/// Of leaves that come one by one from the left: how often the sum of leaf i joins the one that has waited last. Others
/// wait: at most ⌈log₂ count⌉ of them.
inline int joins_after(Index leaf, Index count) {
  const auto bits = static_cast<std::size_t>(leaf);
  return leaf + 1 == count ? std::popcount(bits) : std::countr_one(bits);
}

/// Adds up leaves from the left: put(leaf, place) makes a leaf's sum in a place, join(to, from) adds that of the place
/// `from` to another. Places count from 0, where the sum of all is in the end, to at most ⌈log₂ count⌉.
template <class Put, class Join>
void add_leaves(Index count, Put put, Join join) {
  Index place = 0;
  for (Index leaf = 0; leaf < count; ++leaf, ++place) {
    put(leaf, place);
    for (int joins = joins_after(leaf, count); joins > 0; --joins, --place) join(place - 1, place);
  }
}

/// The sum of `count` leaves, leaf(i) each.
template <class T, class Leaf>
T tree_sum(Index count, Leaf leaf) {
  std::array<T, 64> sums;
  sums[0] = T{};
  const auto at = [&](Index place) -> T& { return sums[static_cast<std::size_t>(place)]; };
  add_leaves(
      count, [&](Index i, Index place) { at(place) = leaf(i); },
      [&](Index to, Index from) { at(to) = at(to) + at(from); });
  return at(0);
}

/// Levels of the tree over so many leaves: ⌈log₂ count⌉.
inline Index tree_levels(Index count) {
  return count > 1 ? static_cast<Index>(std::bit_width(static_cast<std::size_t>(count - 1))) : 0;
}

/// What a pass over a run of leaves sums: its nodes, and the ends of all of its leaves. Rows count from the run's
/// first.
class LeafNodes {
 public:
  struct Node {
    Range rows;
    std::span<const Index> ends;  ///< of its leaves, from its own first row on
  };

  LeafNodes() = default;
  explicit LeafNodes(const Leaves& leaves) { cut(leaves); }
  LeafNodes(LeafNodes&&) = default;  // what spans look at stays where it is
  LeafNodes& operator=(LeafNodes&&) = default;
  /// Now those of this run; nothing is allocated where they are the same.
  void cut(const Leaves& leaves);

  const Leaves& leaves() const { return leaves_; }
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const Index> ends() const { return ends_; }
  /// Whether one node is the sum of all leaves.
  bool whole() const { return leaves_.run == Range{0, leaves_.count}; }

 private:
  Leaves leaves_;
  std::vector<Node> nodes_;
  std::vector<Index> ends_, ends_in_nodes_;
};

/// The sum of all leaves, from nodes that cover them from the left: join(left, right) for the numbers of two nodes, of
/// which the left one becomes their sum; at the end node 0 is that of all.
template <class Join>
void join_nodes(std::span<const Range> nodes, Index count, Join join) {
  std::vector<std::pair<Range, std::size_t>> waiting;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Range node = nodes[i];
    std::size_t number = i;
    while (!waiting.empty()) {
      const auto [left, place] = waiting.back();
      const Index size = left.size();  // a power of two, as something stands to its right
      const bool even = left.begin % (2 * size) == 0;
      if (!even || std::min(left.begin + 2 * size, count) != node.end) break;
      join(place, number);
      node = {left.begin, node.end};
      number = place;
      waiting.pop_back();
    }
    waiting.emplace_back(node, number);
  }
}

}  // namespace pdnn
