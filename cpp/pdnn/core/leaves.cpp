#include "pdnn/core/leaves.hpp"

namespace pdnn {

std::vector<Range> nodes_of(Range run, Index count) {
  std::vector<Range> nodes;
  for (Index begin = run.begin; begin < run.end;) {
    Index size = 1;
    while (begin % (2 * size) == 0 && begin + size < count && std::min(begin + 2 * size, count) <= run.end) size *= 2;
    nodes.push_back({begin, std::min(begin + size, count)});
    begin = nodes.back().end;
  }
  return nodes;
}

void LeafNodes::cut(const Leaves& leaves) {
  if (leaves == leaves_) return;
  leaves_ = leaves;
  nodes_.clear(), ends_.clear(), ends_in_nodes_.clear();
  const std::vector<Range> nodes = nodes_of(leaves.run, leaves.count);
  const Index first = leaves.rows().begin;
  ends_in_nodes_.reserve(static_cast<std::size_t>(leaves.run.size()));  // so that spans of it stay
  for (const Range& node : nodes) {
    const Range rows{leaves.rows(node.begin).begin, leaves.rows(node.end - 1).end};
    for (Index leaf = node.begin; leaf < node.end; ++leaf) {
      ends_.push_back(leaves.rows(leaf).end - first);
      ends_in_nodes_.push_back(leaves.rows(leaf).end - rows.begin);
    }
    nodes_.push_back(
        {{rows.begin - first, rows.end - first}, {ends_in_nodes_.end() - node.size(), ends_in_nodes_.end()}});
  }
}

}  // namespace pdnn
