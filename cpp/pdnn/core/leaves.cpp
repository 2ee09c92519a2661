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

}  // namespace pdnn
