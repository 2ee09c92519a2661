#include "pdnn/nn/layers/linear.hpp"

namespace pdnn::nn {

template <class T>
Linear<T>::Linear(Index inputs, Index outputs, bool bias, Init weight_init, Init bias_init, Precision precision)
    : inputs_(inputs),
      outputs_(outputs),
      bias_(bias),
      weight_init_(weight_init),
      bias_init_(bias_init),
      precision_(precision) {
  require(inputs >= 1 && outputs >= 1, "Linear: ", inputs, " inputs and ", outputs,
          " outputs; both must be at least 1");
  require(precision == Precision::full || std::is_same_v<T, float>, "Linear: bfloat16 goes with float32");
}

template <class T>
std::shared_ptr<Linear<T>> Linear<T>::with(Fusion fusion) const {
  auto fused = clone();
  fused->fusion_ = fusion;
  return fused;
}

/// An activation after this layer is computed here. The derivative of that goes into the dx of a Linear right after it:
/// fewer barriers, half the saved memory, the same bits.
template <class T>
std::vector<LayerPtr<T>> Linear<T>::fused(const LayerPtr<T>& next, const Shape&) const {
  if (const Activation activation = next->traits().activation; activation != Activation::identity) {
    if (fusion_.own != Activation::identity) return {};
    Fusion fusion = fusion_;
    fusion.own = activation;
    return {with(fusion)};
  }
  const auto* const after = dynamic_cast<const Linear*>(next.get());
  if (!after || fusion_.own == Activation::identity) return {};
  Fusion own = fusion_, theirs = after->fusion_;
  own.derivative_by_next = true;
  theirs.before = own.own;
  return {with(own), after->with(theirs)};
}

template <class T>
LayerPtr<T> Linear<T>::in_panels() const {
  if (inputs_ == 0 || outputs_ <= kernels::kPanel<T>) return nullptr;
  Fusion fusion = fusion_;
  fusion.panels = true;
  return with(fusion);
}

template <class T>
std::optional<kernels::StackLayer> Linear<T>::in_stack() const {
  if (widest() > kernels::kMostStackWidth || fusion_.panels || this->traits().communicates) return std::nullopt;
  const kernels::RoundedKernels<T>* const rounding = kernels::rounded_of_width<T>(precision_, widest());
  if (rounding && !rounding->stack_forward) return std::nullopt;
  const kernels::Factors factors = !rounding             ? kernels::Factors::full
                                   : rounding->as_floats ? kernels::Factors::rounded
                                                         : kernels::Factors::pairs;
  return kernels::StackLayer{inputs_, outputs_, bias_, fusion_.own, factors};
}

template <class T>
std::vector<Parameter> Linear<T>::parameters() const {
  std::vector<Parameter> parameters{{"weight", {inputs_, outputs_}}};
  if (bias_) parameters.push_back({"bias", {outputs_}});
  return parameters;
}

template <class T>
Shape Linear<T>::output_shape(const Shape& in) const {
  require(in.rank() == 1, "Linear: input samples are ", in.text(), ", this layer takes ", inputs_,
          " features; put nn.Flatten() before it");
  require(in[0] == inputs_, "Linear: input has ", in[0], " features, this layer takes ", inputs_);
  return {outputs_};
}

template <class T>
Sizes Linear<T>::sizes(const Shape&) const {
  return {.scratch_row = own_derivative() ? outputs_ : 0, .level = inputs_ * outputs_};
}

template <class T>
void Linear<T>::initialize(Rng rng, std::span<T> params, std::span<T>) const {
  weight_init_.fill(rng.child(0), slice(params, 0, inputs_ * outputs_));
  if (bias_) bias_init_.fill(rng.child(1), slice(params, inputs_ * outputs_, outputs_));
}

template <class T>
std::optional<kernels::Update<T>> Linear<T>::update(const Pass& pass, const Vars<T>& vars) const {
  if (!vars.updates || pass.add || inputs_ * outputs_ == 0) return std::nullopt;
  return vars.updates->of({pass.offset, pass.offset + inputs_ * outputs_});
}

template <class T>
bool Linear<T>::in_pieces(const Pass& pass) const {
  return pass.final && pass.final->piece() > 0 && fusion_.panels;
}

template <class T>
Index Linear<T>::updated(const Pass& pass, const Vars<T>& vars) const {
  if (update(pass, vars)) return inputs_ * outputs_;
  return in_pieces(pass) ? inputs_ * outputs_ + (bias_ ? outputs_ : 0) : 0;
}

template <class T>
void Linear<T>::forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  if (x.sparse)
    return kernels::table<T>().sparse_nn(*pass.team, *x.sparse, weight(vars.params), bias(vars.params), fusion_.own, y);
  products().product_nn(*pass.team, x, weight(vars.params), bias(vars.params), fusion_.own, y);
}

template <class T>
void Linear<T>::backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy,
                         Tensor<T> dx, std::span<T> grads) const {
  if (own_derivative()) {
    kernels::table<T>().activate_backward(*pass.team, fusion_.own, y.count(), y.data, dy.data, vars.scratch.data());
    pass.team->barrier();
    dy.data = vars.scratch.data();
  }
  if (dx.wanted()) products().product_nt(*pass.team, dy, weight(vars.params), fusion_.before, x, dx);  // dx = dy wᵀ
  pass.poll();
  if (bias_) {
    each_node(pass, vars, x.batch, grads, [&](Range rows, const kernels::LeafSums<T>& leaves, std::span<T> sums) {
      products().column_sums(*pass.team, dy.rows(rows), leaves, pass.add, bias(sums));  // db = Σ dy
    });
  }
  const kernels::Upcoming* const upcoming = dx.wanted() ? nullptr : pass.upcoming;
  if (const auto rule = update(pass, vars)) {
    if (dx.wanted()) pass.team->barrier();  // all members have read w
    update_weight(pass, vars, *rule, x, dy, grads, upcoming);
  } else if (in_pieces(pass)) {
    announce_weight(pass, vars, x, dy, grads, upcoming);
  } else {
    add_up_weight(pass, vars, x, dy, std::nullopt, grads, upcoming);
  }
}

/// The columns of dy that belong to some panels of the weight.
template <class T>
Matrix<const T> columns(const Tensor<const T>& dy, Range range) {
  return {dy.data + range.begin, dy.batch, range.size(), dy.width()};
}

/// dw = xᵀ dy of some columns, or of each node of the leaves.
template <class T>
void Linear<T>::add_up_weight(const Pass& pass, const Vars<T>& vars, Tensor<const T> x, Tensor<const T> dy,
                              std::optional<Range> panels, std::span<T> grads,
                              const kernels::Upcoming* upcoming) const {
  each_node(pass, vars, x.batch, grads, [&](Range rows, const kernels::LeafSums<T>& leaves, std::span<T> sums) {
    const kernels::PanelMatrix<T> all = weight(sums), dw = panels ? all.panels(*panels) : all;
    const Matrix<const T> delta = columns(dy.rows(rows), panels ? all.columns(*panels) : Range{0, outputs_});
    if (x.sparse)
      return kernels::table<T>().sparse_tn(*pass.team, *x.sparse, delta, pass.add ? dw.data : nullptr, nullptr, dw);
    products().product_tn(*pass.team, x.rows(rows), delta, leaves, pass.add, dw, rows.begin == 0 ? upcoming : nullptr);
  });
}

/// w ← rule(xᵀ dy), or of ranks that share w: first dw of what others update, then w of the own panels.
template <class T>
void Linear<T>::update_weight(const Pass& pass, const Vars<T>& vars, const kernels::Update<T>& rule, Tensor<const T> x,
                              Tensor<const T> dy, std::span<T> grads, const kernels::Upcoming* upcoming) const {
  const kernels::PanelMatrix<T> dw = weight(grads);
  const Range own = vars.updates->own_panels(dw.panels());
  for (const Range others : {Range{0, own.begin}, Range{own.end, dw.panels()}})
    if (others.size() > 0) add_up_weight(pass, vars, x, dy, others, grads, nullptr);
  const Range elements{dw.columns(own).begin * inputs_, dw.columns(own).end * inputs_};
  const T* const from =
      vars.updates->from_others(*pass.team, {pass.offset + elements.begin, pass.offset + elements.end});
  const Matrix<const T> delta = columns(dy, dw.columns(own));
  const kernels::Update<T> update = rule.at(elements.begin);
  if (x.sparse) return kernels::table<T>().sparse_tn(*pass.team, *x.sparse, delta, from, &update, dw.panels(own));
  each_node(pass, vars, x.batch, grads, [&](Range, const kernels::LeafSums<T>& leaves, std::span<T>) {
    products().product_tn_update(*pass.team, x, delta, leaves, update, from, dw.panels(own), upcoming);
  });
}

/// dw = xᵀ dy, some panels at a time, the last first, so that sending them can begin.
template <class T>
void Linear<T>::announce_weight(const Pass& pass, const Vars<T>& vars, Tensor<const T> x, Tensor<const T> dy,
                                std::span<T> grads, const kernels::Upcoming* upcoming) const {
  const kernels::PanelMatrix<T> dw = weight(grads);
  const Index each = std::max<Index>(1, pass.final->piece() / (dw.panel * inputs_));
  for (Index end = dw.panels(); end > 0; end -= each) {
    const Range panels{std::max<Index>(0, end - each), end}, cols = dw.columns(panels);
    add_up_weight(pass, vars, x, dy, panels, grads, panels.begin == 0 ? upcoming : nullptr);
    pass.team->barrier();
    const Index last = end == dw.panels() && bias_ ? (inputs_ + 1) * outputs_ : cols.end * inputs_;
    (*pass.final)(*pass.team, {pass.offset + cols.begin * inputs_, pass.offset + last});
  }
}

template class Linear<float>;
template class Linear<double>;

}  // namespace pdnn::nn
