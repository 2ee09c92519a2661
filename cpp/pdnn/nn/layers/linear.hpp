#pragma once
/// Linear: y = f(x w + b), with an activation that binding may fuse into it.
#include <algorithm>

#include "pdnn/kernels/table.hpp"
#include "pdnn/nn/init.hpp"
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

using kernels::Activation;
using kernels::Precision;

/// x: [batch, inputs], w: [inputs, outputs], b: [outputs], y: [batch, outputs]. With Precision::bfloat16 the factors of
/// its three products are rounded (kernels::products); w, b, sums and gradients are of T.
template <class T>
class Linear : public Layer<T> {
 public:
  Linear(Index inputs, Index outputs, bool bias, Init weight_init, Init bias_init,
         Precision precision = Precision::full);

  /// Of the weight, the first of the parameters. A rank that holds a part of a layer may have none.
  Index inputs() const { return inputs_; }
  Index outputs() const { return outputs_; }
  bool has_bias() const { return bias_; }

  std::string_view name() const override { return "Linear"; }
  Traits traits() const override { return {.sparse = precision_ == Precision::full}; }
  std::vector<Parameter> parameters() const override;
  Shape output_shape(const Shape& in) const override;
  Sizes sizes(const Shape& in) const override;
  std::vector<LayerPtr<T>> fused(const LayerPtr<T>& next, const Shape& in) const override;
  LayerPtr<T> in_panels() const override;
  std::optional<kernels::StackLayer> in_stack() const override;
  Index updated(const Pass& pass, const Vars<T>& vars) const override;
  void initialize(Rng rng, std::span<T> params, std::span<T> buffers) const override;
  void forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const override;
  void backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy, Tensor<T> dx,
                std::span<T> grads) const override;

 protected:
  /// What binding fuses. `own`: the activation after this layer; its derivative is multiplied into dy here, unless the
  /// next layer does it (`derivative_by_next`). `before`: the activation whose output is x and whose derivative goes
  /// into dx.
  struct Fusion {
    Activation own = Activation::identity;
    bool derivative_by_next = false;
    Activation before = Activation::identity;
    bool panels = false;  // the weight and its gradient lie in panels
  };

  /// A copy, for kinds of Linear to be fused as what they are.
  virtual std::shared_ptr<Linear> clone() const { return std::make_shared<Linear>(*this); }

  Index widest() const { return std::max(inputs_, outputs_); }
  const kernels::ProductKernels<T>& products() const { return kernels::products<T>(precision_, widest()); }
  template <class U>
  kernels::PanelMatrix<U> weight(std::span<U> params) const {
    return {params.data(), inputs_, outputs_, fusion_.panels ? kernels::kPanel<T> : outputs_};
  }
  template <class U>
  U* bias(std::span<U> params) const {
    return bias_ ? params.data() + inputs_ * outputs_ : nullptr;
  }

  Index inputs_, outputs_;
  bool bias_;
  Init weight_init_, bias_init_;
  Precision precision_;
  Fusion fusion_;

 private:
  std::shared_ptr<Linear> with(Fusion fusion) const;
  std::optional<kernels::Update<T>> update(const Pass& pass, const Vars<T>& vars) const;
  /// Whether the gradient of the weight is told of a few panels at a time.
  bool in_pieces(const Pass& pass) const;
  void add_up_weight(const Pass& pass, const Vars<T>& vars, Tensor<const T> x, Tensor<const T> dy,
                     std::optional<Range> panels, std::span<T> grads, const kernels::Upcoming* upcoming) const;
  void update_weight(const Pass& pass, const Vars<T>& vars, const kernels::Update<T>& rule, Tensor<const T> x,
                     Tensor<const T> dy, std::span<T> grads, const kernels::Upcoming* upcoming) const;
  void announce_weight(const Pass& pass, const Vars<T>& vars, Tensor<const T> x, Tensor<const T> dy, std::span<T> grads,
                       const kernels::Upcoming* upcoming) const;
  bool own_derivative() const { return fusion_.own != Activation::identity && !fusion_.derivative_by_next; }
};

}  // namespace pdnn::nn
