#include "pdnn/nn/network.hpp"

#include "pdnn/core/memory.hpp"
#include "pdnn/kernels/table.hpp"
#include "pdnn/nn/layers/identity.hpp"

namespace pdnn::nn {

namespace {

template <class T>
constexpr Index kLine = Index{kCacheLine / sizeof(T)};

template <class T>
Index align(Index count) {
  return (count + kLine<T> - 1) / kLine<T> * kLine<T>;
}

}  // namespace

template <class T>
std::vector<Parameter> Network<T>::numbered(std::vector<Parameter> (Layer<T>::*arrays)() const) const {
  std::vector<Parameter> all;
  Index number = first_number_;
  for (const LayerPtr<T>& layer : layers_) {
    for (Parameter& array : ((*layer).*arrays)())
      all.push_back({std::to_string(number) + "." + array.name, std::move(array.shape)});
    ++number;
  }
  return all;
}

template <class T>
std::vector<Parameter> Network<T>::parameters() const {
  return numbered(&Layer<T>::parameters);
}

template <class T>
std::vector<Parameter> Network<T>::buffers() const {
  return numbered(&Layer<T>::buffers);
}

template <class T>
Traits Network<T>::traits() const {
  Traits all;
  for (const LayerPtr<T>& layer : layers_) {
    const Traits own = layer->traits();
    all.synchronized |= own.synchronized;
    all.communicates |= own.communicates;
    all.own_statistics |= own.own_statistics;
    all.indices |= own.indices;
  }
  return all;
}

template <class T>
Shape Network<T>::output_shape(const Shape& in) const {
  Shape shape = in;
  for (const LayerPtr<T>& layer : layers_) shape = layer->output_shape(shape);
  return shape;
}

/// Images lie with channels last between layers. A network that begins with a view, like Flatten, takes them as they
/// come.
template <class T>
std::shared_ptr<const Network<T>> Network<T>::bound(const Shape& in) const {
  auto network = std::make_shared<Network>(layers_, first_number_);
  const bool channels_last = layers_.empty() || !layers_.front()->traits().view;
  if (channels_last) network->turn_channels(ChannelOrder<T>::To::last, in);
  const Shape out = network->add_layers(in, channels_last);
  network->turn_channels(ChannelOrder<T>::To::first, out);
  network->finish();
  return network;
}

template <class T>
LayerPtr<T> Network<T>::bind(const Shape& in) const {
  auto network = std::make_shared<Network>(layers_, first_number_);
  network->add_layers(in, true);
  network->finish();
  return network;
}

template <class T>
Shape Network<T>::add_layers(const Shape& in, bool channels_last) {
  Shape shape = in;
  if (layers_.empty()) add_node(std::make_shared<Identity<T>>(), first_number_, in);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i]->traits().view && channels_last) turn_channels(ChannelOrder<T>::To::first, shape);
    add_node(layers_[i], first_number_ + static_cast<Index>(i), shape);
    nodes_.back().described = 1;
    shape = nodes_.back().out;
  }
  return shape;
}

template <class T>
void Network<T>::turn_channels(typename ChannelOrder<T>::To to, const Shape& sample) {
  if (ChannelOrder<T>::matters(sample))
    add_node(std::make_shared<ChannelOrder<T>>(to), first_number_ + std::ssize(layers_), sample);
}

template <class T>
void Network<T>::finish() {
  fuse();
  connect();
  stack_ = as_stack();
  Index widest = 0;
  for (const kernels::StackLayer& layer : stack_) widest = std::max({widest, layer.inputs, layer.outputs});
  stack_kernels_ = &kernels::table_of_width<T>(widest);
  for (const kernels::StackLayer& layer : stack_)
    if (layer.factors == kernels::Factors::pairs) stack_kernels_ = kernels::rounded<T>(kernels::Precision::bfloat16);
}

template <class T>
std::shared_ptr<const Network<T>> Network<T>::with_panels() const {
  auto network = std::make_shared<Network>(*this);
  if (!stack_.empty()) return network;  // whose weights are short as they are
  for (Node& node : network->nodes_) {
    LayerPtr<T> in_panels = node.layer->in_panels();
    if (!in_panels) continue;
    node.layer = std::move(in_panels);
    const std::vector<Index> weight = node.layer->parameters().front().shape;
    network->layout_.put_in_panels({.offset = node.params, .rows = weight[0], .cols = weight[1]});
  }
  return network;
}

template <class T>
void Network<T>::add_node(LayerPtr<T> layer, Index number, const Shape& in) {
  Node node;
  node.number = number;
  node.in = in;
  node.out = layer->output_shape(in);
  node.layer = std::move(layer);
  if (LayerPtr<T> bound = node.layer->bind(in)) {
    node.layer = std::move(bound);
    node.composite = true;
  }
  node.view = node.layer->traits().view;
  node.sizes = node.layer->sizes(in);
  node.param_count = total(node.layer->parameters());
  node.buffer_count = total(node.layer->buffers());
  if (!nodes_.empty()) {
    node.params = nodes_.back().params + nodes_.back().param_count;
    node.buffers = nodes_.back().buffers + nodes_.back().buffer_count;
  }
  nodes_.push_back(std::move(node));
}

template <class T>
void Network<T>::connect() {
  std::optional<std::size_t> source;
  first_trained_ = nodes_.size();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    node.source = source;
    if (keeps_output(i)) source = i;
    if (i > 0) widest_ = std::max(widest_, node.in.count());
    if (node.param_count > 0 || node.layer->traits().communicates) first_trained_ = std::min(first_trained_, i);
  }
}

template <class T>
std::vector<kernels::StackLayer> Network<T>::as_stack() const {
  std::vector<kernels::StackLayer> stack;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].view && i + 1 < nodes_.size()) continue;
    const std::optional<kernels::StackLayer> layer = nodes_[i].layer->in_stack();
    if (!layer) return {};
    stack.push_back(*layer);
  }
  return stack;
}

template <class T>
Sizes Network<T>::sizes(const Shape&) const {
  Sizes all;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    all.saved += node.sizes.saved + 2 * kLine<T>;  // what aligning may cost
    all.saved_row += node.sizes.saved_row + (keeps_output(i) ? node.out.count() : 0);
    all.scratch = std::max(all.scratch, node.sizes.scratch);
    all.scratch_row = std::max(all.scratch_row, node.sizes.scratch_row);
    all.leaf = std::max(all.leaf, node.sizes.leaf);
    all.level = std::max(all.level, node.sizes.level);
  }
  all.scratch += 2 * kLine<T>;
  all.scratch_row += 2 * widest_;
  return all;
}

template <class T>
typename Network<T>::Place Network<T>::place(std::size_t index, Index rows) const {
  Place place{0, 0};
  for (std::size_t i = 0;; ++i) {
    const Node& node = nodes_[i];
    place.output = place.saved + align<T>(node.sizes.saved + rows * node.sizes.saved_row);
    if (i == index) return place;
    place.saved = place.output + (keeps_output(i) ? align<T>(rows * node.out.count()) : 0);
  }
}

template <class T>
Sizes Network<T>::forward_sizes() const {
  Sizes all;
  for (const Node& node : nodes_) {
    all.saved = std::max(all.saved, node.sizes.saved);
    all.saved_row = std::max(all.saved_row, node.sizes.saved_row);
    all.scratch = std::max(all.scratch, node.sizes.scratch);
    all.scratch_row = std::max(all.scratch_row, node.sizes.scratch_row);
  }
  all.saved += 2 * kLine<T>;  // what aligning may cost
  all.saved_row += 2 * widest_;
  return all;
}

/// A node's output lies where that of the node before its neighbor did; what it saves, behind both.
template <class T>
typename Network<T>::Place Network<T>::forward_place(std::size_t index, Index rows) const {
  const Index turn = align<T>(rows * widest_);
  const auto before = nodes_.begin() + static_cast<std::ptrdiff_t>(index);
  const auto computed =
      std::count_if(nodes_.begin(), before, [](const Node& node) { return !node.layer->traits().view; });
  return {2 * turn, computed % 2 * turn};
}

template <class T>
Vars<T> Network<T>::vars_of(const Node& node, const Place& place, Index rows, const Vars<T>& vars) const {
  return {slice(vars.params, node.params, node.param_count),
          slice(vars.buffers, node.buffers, node.buffer_count),
          slice(vars.saved, place.saved, node.sizes.saved + rows * node.sizes.saved_row),
          slice(vars.scratch, 0, node.sizes.scratch + rows * node.sizes.scratch_row),
          vars.updates,
          vars.leaf_room,
          vars.more_nodes};
}

template <class T>
void Network<T>::initialize(Rng rng, std::span<T> params, std::span<T> buffers) const {
  Index at = 0, buffers_at = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Index count = total(layers_[i]->parameters()), buffer_count = total(layers_[i]->buffers());
    layers_[i]->initialize(rng.child(i), slice(params, at, count), slice(buffers, buffers_at, buffer_count));
    at += count;
    buffers_at += buffer_count;
  }
}

template <class T>
void Network<T>::forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  if (in_stack(pass, x.batch) && !pass.forward_only) return stack_forward(vars, x, y);
  const Pass inside = pass.inside();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const bool last = i + 1 == nodes_.size();
    if (node.view && !last) {
      x.sample = node.out;
      continue;
    }
    const Place here = pass.forward_only ? forward_place(i, x.batch) : place(i, x.batch);
    const Tensor<T> out{last ? y.data : vars.saved.data() + here.output, x.batch, node.out};
    node.layer->forward(inside.child(node.number, node.params), vars_of(node, here, x.batch, vars), x, out);
    pass.team->barrier();
    x = out;
  }
}

template <class T>
void Network<T>::backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy,
                          Tensor<T> dx, std::span<T> grads) const {
  if (in_stack(pass, x.batch) && !pass.add && !dx.wanted()) return stack_backward(pass, vars, x, y, dy, grads);
  const Pass inside = pass.inside();
  const Index rows = x.batch, turn = align<T>(rows * widest_);
  T *next = vars.scratch.data(), *previous = next + turn;  // dx goes to one, dy came from the other
  vars.scratch = vars.scratch.subspan(static_cast<std::size_t>(2 * turn));

  const std::size_t lowest = dx.wanted() ? 0 : first_trained_;  // below it no gradient is needed
  for (std::size_t i = nodes_.size(); i-- > lowest;) {
    const Node& node = nodes_[i];
    const bool last = i + 1 == nodes_.size();
    if (node.view && !last && i > 0) {
      dy.sample = node.in;
      continue;
    }
    const Place here = place(i, rows);
    const T* const in = node.source ? vars.saved.data() + place(*node.source, rows).output : x.data;
    const T* const out = last ? y.data : vars.saved.data() + here.output;
    T* const din = i == 0 ? dx.data : i == lowest ? nullptr : next;
    const Pass own = inside.child(node.number, node.params);
    const Vars<T> own_vars = vars_of(node, here, rows, vars);
    const auto* const sparse = node.source ? nullptr : x.sparse;
    node.layer->backward(own, own_vars, {in, rows, node.in, sparse}, {out, rows, node.out}, dy, {din, rows, node.in},
                         slice(grads, node.params, node.param_count));
    pass.team->barrier();
    const Index updated = node.layer->updated(own, own_vars);
    if (pass.final && updated < node.param_count && !node.composite)
      (*pass.final)(*pass.team, {own.offset + updated, own.offset + node.param_count});
    dy = {din, rows, node.in};
    std::swap(next, previous);
  }
}

template <class T>
void Network<T>::stack_forward(const Vars<T>& vars, const Tensor<const T>& x, const Tensor<T>& y) const {
  stack_kernels_->stack_forward(stack_.data(), std::ssize(stack_), x.batch, x.data, vars.params.data(),
                                vars.saved.data(), y.data);
}

template <class T>
void Network<T>::stack_backward(const Pass& pass, const Vars<T>& vars, const Tensor<const T>& x,
                                const Tensor<const T>& y, const Tensor<const T>& dy, std::span<T> grads) const {
  stack_kernels_->stack_backward(stack_.data(), std::ssize(stack_), x.batch, x.data, vars.params.data(),
                                 vars.saved.data(), y.data, dy.data, grads.data());
  if (pass.final)
    (*pass.final)(*pass.team, {pass.offset, pass.offset + nodes_.back().params + nodes_.back().param_count});
}

template <class T>
void Network<T>::commit(const Pass& pass, std::span<const T> saved, Index rows, std::span<T> buffers) const {
  if (buffers.empty()) return;
  const Pass inside = pass.inside();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.buffer_count == 0) continue;
    const std::span<const T> own = slice(saved, place(i, rows).saved, node.sizes.saved + rows * node.sizes.saved_row);
    node.layer->commit(inside.child(node.number, node.params), own, rows,
                       slice(buffers, node.buffers, node.buffer_count));
  }
}

template class Network<float>;
template class Network<double>;

}  // namespace pdnn::nn
