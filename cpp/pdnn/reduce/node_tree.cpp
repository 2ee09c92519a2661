#include "pdnn/reduce/node_tree.hpp"

#include <array>

#include "pdnn/core/errors.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::reduce {

NodeTree::NodeTree(Index leaves, int ranks) : leaves_(leaves) {
  require(ranks <= leaves, "reproducible sums: a batch in ", leaves, " leaves has none for some of ", ranks,
          " ranks; use ", ranks, " leaves or more");
  std::vector<Range> nodes;
  for (int rank = 0; rank < ranks; ++rank) {
    first_.push_back(std::ssize(nodes));
    for (const Range& node : nodes_of(share(leaves, rank, ranks), leaves)) nodes.push_back(node);
  }
  first_.push_back(std::ssize(nodes));
  joins_.resize(nodes.size());
  std::size_t last = 0;  // of the nodes that are there; the first of its joins names it
  join_nodes(nodes, leaves, [&](std::size_t, std::size_t right) {
    last = std::max(last, right);
    ++joins_[last];
  });
}

/// Block by block, so that what waits stays in cache.
template <class T>
void NodeTree::add_up(const Member& member, std::span<const T* const> nodes, Range range, T* out) const {
  constexpr Index kBlock = 256;
  constexpr std::size_t kMost = 48;  // sums that wait, of more nodes than there can be
  std::array<std::array<T, kBlock>, kMost> room;
  std::array<const T*, kMost + 1> waiting;
  const Range mine = member.range(range.size());
  for (Index at = range.begin + mine.begin; at < range.begin + mine.end; at += kBlock) {
    const Index size = std::min(kBlock, range.begin + mine.end - at);
    std::size_t depth = 0;
    for (std::size_t node = 0; node < joins_.size(); ++node) {
      waiting[depth] = nodes[node] + at;
      for (int joins = joins_[node]; joins > 0; --joins, --depth) {
        const bool whole = node + 1 == joins_.size() && joins == 1;
        T* const sum = whole ? out + at : room[depth - 1].data();
        kernels::table<T>().add(Part{}, size, waiting[depth - 1], waiting[depth], sum);
        waiting[depth - 1] = sum;
      }
      ++depth;
    }
    if (joins_.size() == 1) std::copy_n(waiting[0], size, out + at);
  }
}

template void NodeTree::add_up(const Member&, std::span<const float* const>, Range, float*) const;
template void NodeTree::add_up(const Member&, std::span<const double* const>, Range, double*) const;

}  // namespace pdnn::reduce
