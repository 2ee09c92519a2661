// Which layers of a bound network are computed together.
#include "pdnn/nn/network.hpp"

namespace pdnn::nn {

/// From the last layer to the first, so that what follows a layer is fused already when its turn comes.
template <class T>
void Network<T>::fuse() {
  const auto change = [](Node& node, const LayerPtr<T>& layer) {
    node.layer = layer;
    node.view = layer->traits().view;
    node.sizes = layer->sizes(node.in);
  };
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    while (i + 1 < nodes_.size()) {
      Node &node = nodes_[i], &next = nodes_[i + 1];
      const std::vector<LayerPtr<T>> fused = node.layer->fused(next.layer, node.in);
      if (fused.empty()) break;
      change(node, fused.front());
      if (fused.size() == 2) {
        change(next, fused.back());
        break;
      }
      node.out = next.out;
      node.described += next.described;
      nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
}

template <class T>
std::vector<Range> Network<T>::inseparable() const {
  std::vector<Range> all;
  for (const Node& node : nodes_)
    if (node.layer->traits().own_order) all.push_back({node.number, node.number + node.described});
  return all;
}

template void Network<float>::fuse();
template void Network<double>::fuse();
template std::vector<Range> Network<float>::inseparable() const;
template std::vector<Range> Network<double>::inseparable() const;

}  // namespace pdnn::nn
