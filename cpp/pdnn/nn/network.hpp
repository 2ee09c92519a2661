#pragma once
/// Network: layers in order, itself a layer. A new one is a description; bound() gives the one that runs, with every
/// shape and offset known, checked and fused.
#include <optional>

#include "pdnn/nn/layers/channel_order.hpp"
#include "pdnn/nn/layout.hpp"

namespace pdnn::nn {

template <class T>
class Network : public Layer<T> {
 public:
  /// `first_number`: of the first layer, if these are some of a longer network's, whose names and random numbers they
  /// keep.
  explicit Network(std::vector<LayerPtr<T>> layers, Index first_number = 0)
      : layers_(std::move(layers)), first_number_(first_number) {}
  const std::vector<LayerPtr<T>>& layers() const { return layers_; }

  std::string_view name() const override { return "Sequential"; }
  /// Every layer's, named "<index of the layer>.<name>".
  std::vector<Parameter> parameters() const override;
  std::vector<Parameter> buffers() const override;
  Traits traits() const override;
  Shape output_shape(const Shape& in) const override;
  Sizes sizes(const Shape& in) const override;
  /// What a pass needs that is forward_only: what layers hand on lies in two places, turn by turn.
  Sizes forward_sizes() const;
  /// As a part of another network: images have their channels last on both sides.
  LayerPtr<T> bind(const Shape& in) const override;
  /// As a whole: images have their channels first on both sides, as users have them.
  std::shared_ptr<const Network> bound(const Shape& in) const;
  /// A bound network, over parameters whose larger weights lie in panels (kernels::PanelMatrix). The same bits, and
  /// members of a team keep out of each other's pages.
  std::shared_ptr<const Network> with_panels() const;
  /// Of a bound network: the layers that are computed as one, which have other bits in two stages of a pipeline.
  std::vector<Range> inseparable() const;
  /// How the parameters of a bound network lie.
  const Layout<T>& layout() const { return layout_; }
  void initialize(Rng rng, std::span<T> params, std::span<T> buffers) const override;
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;
  void commit(const Pass& pass, std::span<const T> saved, Index rows, std::span<T> buffers) const override;

  /// Whether a bound network takes samples as Tensor::sparse.
  bool takes_sparse() const { return stack_.empty() && nodes_.front().layer->traits().sparse; }

  /// Whether one kernel does the whole forward pass, and another the backward pass, which stores gradients and gives no
  /// dx. These two are such passes.
  bool in_stack(const Pass& pass, Index rows) const {
    return !stack_.empty() && rows > 0 && rows <= kernels::kMostStackRows && pass.team->size == 1 && !pass.leaves;
  }
  void stack_forward(const Vars<T>& vars, const Tensor<const T>& x, const Tensor<T>& y) const;
  void stack_backward(const Pass& pass, const Vars<T>& vars, const Tensor<const T>& x, const Tensor<const T>& y,
                      const Tensor<const T>& dy, std::span<T> grads) const;

 private:
  /// A layer in its place. `number` is its index in the description: fusion leaves gaps, names and random numbers do
  /// not care.
  struct Node {
    LayerPtr<T> layer;
    Index number = 0, described = 0;  // how many layers of the description it does
    Shape in, out;
    Sizes sizes;
    Index params = 0, param_count = 0, buffers = 0, buffer_count = 0;
    bool view = false;
    bool composite = false;             // announces its own final slices
    std::optional<std::size_t> source;  // the node whose output is this one's x; none: the network's x
  };
  /// Where a node's saved elements and its output lie among the network's saved ones, each on a cache line.
  struct Place {
    Index saved, output;
  };

  std::vector<Parameter> numbered(std::vector<Parameter> (Layer<T>::*arrays)() const) const;
  Shape add_layers(const Shape& in, bool channels_last);
  void turn_channels(typename ChannelOrder<T>::To to, const Shape& sample);
  void add_node(LayerPtr<T> layer, Index number, const Shape& in);
  void finish();
  void fuse();
  void connect();
  Place place(std::size_t node, Index rows) const;
  Place forward_place(std::size_t node, Index rows) const;
  Vars<T> vars_of(const Node& node, const Place& place, Index rows, const Vars<T>& vars) const;
  std::vector<kernels::StackLayer> as_stack() const;
  bool keeps_output(std::size_t node) const { return node + 1 < nodes_.size() && !nodes_[node].view; }

  std::vector<LayerPtr<T>> layers_;
  Index first_number_;
  // Of a bound network:
  std::vector<Node> nodes_;
  std::size_t first_trained_ = 0;  // the first node with parameters, which other ranks may have where this one has none
  Index widest_ = 0;               // of the tensors between nodes
  Layout<T> layout_;
  std::vector<kernels::StackLayer> stack_;  // empty: it is none
  const kernels::StackKernels<T>* stack_kernels_ = nullptr;
};

}  // namespace pdnn::nn
