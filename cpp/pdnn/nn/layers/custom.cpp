#include "pdnn/nn/layers/custom.hpp"

#include <algorithm>
#include <array>

#include "pdnn/kernels/table.hpp"

namespace pdnn::nn {

namespace {

using Extents = std::array<Index, Shape::kMaxRank>;

Extents extents_of(const Shape& shape) {
  Extents extents{};
  for (int axis = 0; axis < shape.rank(); ++axis) extents[static_cast<std::size_t>(axis)] = shape[axis];
  return extents;
}

std::int32_t meet(void* team) {
  try {
    static_cast<const Member*>(team)->barrier();
    return 0;
  } catch (const Aborted&) {
    return 1;
  }
}

}  // namespace

template <class T>
Custom<T>::Custom(std::string name, custom::abi::Layer* layer) : name_(std::move(name)) {
  constexpr std::int32_t version = custom::abi::kVersion;
  require(layer->version == version, name_, ": its extension was built for version ", layer->version,
          " of pdnn/custom/layer.hpp, this pdnn has version ", version,
          "; build it again with the headers in pdnn.get_include()");
  require(layer->element_bytes == sizeof(T), name_, ": got a layer whose numbers have ", layer->element_bytes,
          " bytes, expected ", sizeof(T), "; make it for the dtype that is asked for");
  custom::abi::Outcome outcome;
  layer->parameters(
      layer->self, &parameters_,
      [](void* list, const char* parameter, const Index* shape, Index axes) {
        static_cast<std::vector<Parameter>*>(list)->push_back({parameter, {shape, shape + axes}});
      },
      &outcome);
  check(outcome);
  for (const Parameter& parameter : parameters_)
    for (const Index extent : parameter.shape)
      require(extent >= 1, name_, ": parameter ", parameter.name, " has an extent of ", extent,
              "; expected at least 1");
  count_ = total(parameters_);
  layer_.reset(layer);
}

template <class T>
void Custom<T>::check(const custom::abi::Outcome& outcome) const {
  using custom::abi::End;
  if (outcome.end == End::good) return;
  if (outcome.end == End::aborted) throw Aborted(name_ + ": another thread failed");
  const std::string words = message(name_, ": ", outcome.words);
  if (outcome.end == End::invalid_argument) throw ValueError(words);
  throw std::runtime_error(words);
}

template <class T>
Shape Custom<T>::output_shape(const Shape& in) const {
  const Extents extents = extents_of(in);
  std::vector<Index> out;
  custom::abi::Outcome outcome;
  layer_->output_shape(
      layer_->self, extents.data(), in.rank(), &out,
      [](void* list, Index extent) { static_cast<std::vector<Index>*>(list)->push_back(extent); }, &outcome);
  check(outcome);
  return Shape(std::span<const Index>(out));
}

template <class T>
Index Custom<T>::saved_elements(const Shape& in) const {
  const Extents extents = extents_of(in);
  Index elements = 0;
  custom::abi::Outcome outcome;
  layer_->saved(layer_->self, extents.data(), in.rank(), &elements, &outcome);
  check(outcome);
  require(elements >= 0 && elements < Index{1} << 40, name_, ": saves ", elements,
          " elements a row; expected 0 or more, and less than 2**40");
  return elements;
}

template <class T>
Sizes Custom<T>::sizes(const Shape& in) const {
  return {.saved_row = saved_elements(in), .scratch = count_, .level = count_};
}

template <class T>
void Custom<T>::initialize(Rng rng, std::span<T> params, std::span<T>) const {
  std::ranges::fill(params, T{0});
  custom::abi::Outcome outcome;
  layer_->initialize(layer_->self, rng.key(), params.data(), &outcome);
  check(outcome);
}

template <class T>
void Custom<T>::call(Function function, const Pass& pass, custom::abi::Call call, const Shape& in,
                     const Shape& out) const {
  if (call.rows == 0) return;
  const Extents in_extents = extents_of(in), out_extents = extents_of(out);
  call.member = pass.team->index;
  call.members = pass.team->size;
  call.training = pass.training ? 1 : 0;
  call.barrier = meet;
  call.team = const_cast<Member*>(pass.team);
  call.seed = pass.rng().key();
  call.first_row += pass.first_row;
  call.in_axes = in.rank();
  call.out_axes = out.rank();
  call.in = in_extents.data();
  call.out = out_extents.data();
  custom::abi::Outcome outcome;
  function(layer_->self, &call, &outcome);
  check(outcome);
}

template <class T>
void Custom<T>::forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  custom::abi::Call arguments{};
  arguments.rows = x.batch;
  arguments.params = vars.params.data();
  arguments.x = x.data;
  arguments.y = y.data;
  arguments.saved = vars.saved.data();
  call(layer_->forward, pass, arguments, x.sample, y.sample);
}

/// Of some rows of the batch that `call` is over: grads is stored.
template <class T>
void Custom<T>::add_gradients(const Pass& pass, custom::abi::Call whole, Range rows, const Shape& in, const Shape& out,
                              T* grads) const {
  const Range own = pass.team->range(count_);
  std::fill_n(grads + own.begin, own.size(), T{0});
  pass.team->barrier();
  const auto from = [&]<class E>(E* data, Index width) { return data ? data + rows.begin * width : nullptr; };
  whole.first_row = rows.begin;
  whole.rows = rows.size();
  whole.x = from(static_cast<const T*>(whole.x), in.count());
  whole.y = from(static_cast<T*>(whole.y), out.count());
  whole.dy = from(static_cast<const T*>(whole.dy), out.count());
  whole.dx = from(static_cast<T*>(whole.dx), in.count());
  whole.saved = from(static_cast<T*>(whole.saved), saved_elements(in));
  whole.grads = grads;
  call(layer_->backward, pass, whole, in, out);
  pass.team->barrier();
}

/// Sums of leaves that wait for their right halves lie one behind the other, the first where the result will be.
template <class T>
void Custom<T>::backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy,
                         Tensor<T> dx, std::span<T> grads) const {
  custom::abi::Call arguments{};
  arguments.params = vars.params.data();
  arguments.x = x.data;
  arguments.y = const_cast<T*>(y.data);
  arguments.dy = dy.data;
  arguments.dx = dx.data;
  arguments.saved = vars.saved.data();
  const Range own = pass.team->range(count_);
  const auto add = [&](T* to, const T* more) {
    kernels::table<T>().add(Part{}, own.size(), to + own.begin, more + own.begin, to + own.begin);
  };
  each_node(pass, vars, x.batch, grads, [&](Range rows, const kernels::LeafSums<T>& leaves, std::span<T> sums) {
    T* const result = pass.add ? vars.scratch.data() : sums.data();
    const auto waiting = [&](Index place) { return place == 0 ? result : leaves.room + (place - 1) * count_; };
    const Index whole = rows.size(), *const ends = leaves.count > 0 ? leaves.ends : &whole;
    add_leaves(
        std::max<Index>(leaves.count, 1),
        [&](Index leaf, Index place) {
          const Range some{rows.begin + (leaf == 0 ? 0 : ends[leaf - 1]), rows.begin + ends[leaf]};
          add_gradients(pass, arguments, some, x.sample, y.sample, waiting(place));
        },
        [&](Index to, Index from) { add(waiting(to), waiting(from)); });
    if (pass.add) add(sums.data(), result);
  });
}

template class Custom<float>;
template class Custom<double>;

}  // namespace pdnn::nn
