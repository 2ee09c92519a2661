#include "pdnn/nn/layers/embedding.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pdnn/nn/layers/channel_order.hpp"
#include "pdnn/nn/layers/transpose.hpp"

namespace pdnn::nn {

template <class T>
Embedding<T>::Embedding(Index count, Index width, Init init, std::optional<Index> padding)
    : count_(count), width_(width), padding_(padding), init_(init) {
  require(count >= 1 && width >= 1, "Embedding: ", count, " rows of ", width, " numbers; both must be at least 1");
  constexpr Index most = Index{1} << std::numeric_limits<T>::digits;
  require(count <= most, "Embedding: ", count, " rows; indices are numbers of this type, exact up to ", most,
          "; use float64");
  require(!padding || (*padding >= 0 && *padding < count), "Embedding: padding_idx ", padding.value_or(0),
          "; expected one of its ", count, " rows");
}

template <class T>
Shape Embedding<T>::output_shape(const Shape& in) const {
  require(in.rank() == 1, "Embedding: input samples are ", in.text(),
          ", this layer takes (indices); reshape x to (n, indices)");
  return {in[0], width_};
}

template <class T>
Sizes Embedding<T>::sizes(const Shape&) const {
  return {.level = count_ * width_};
}

template <class T>
std::vector<LayerPtr<T>> Embedding<T>::fused(const LayerPtr<T>& next, const Shape&) const {
  const auto* const turn = dynamic_cast<const ChannelOrder<T>*>(next.get());
  const auto* const transpose = dynamic_cast<const Transpose<T>*>(next.get());
  const bool turns = turn ? turn->to() == ChannelOrder<T>::To::first : transpose && !transpose->traits().view;
  if (turned_ || !turns) return {};
  auto fused = std::make_shared<Embedding>(*this);
  fused->turned_ = true;
  return {fused};
}

template <class T>
void Embedding<T>::initialize(Rng rng, std::span<T> params, std::span<T>) const {
  init_.fill(rng.child(0), params);
  if (padding_) std::fill_n(params.data() + *padding_ * width_, width_, T{});
}

/// Calls action(index, its row's first element of w, that of y) for the places of some rows, in their order.
template <class T>
template <class Action>
void Embedding<T>::each_place(const Pass& pass, Tensor<const T> x, Range rows, Action action) const {
  const Index places = x.width();
  for (Index row = rows.begin; row < rows.end; ++row)
    for (Index place = 0; place < places; ++place) {
      const T given = x.row(row)[place];
      require(given >= 0 && given < static_cast<T>(count_) && given == std::floor(given), "Embedding: x[",
              pass.first_row + row, ", ", place, "] of the batch is ", given, ", expected a whole number from 0 to ",
              count_ - 1);
      const auto index = static_cast<Index>(given);
      action(index, index * width_, row * places * width_ + (turned_ ? place * width_ : place));
    }
}

template <class T>
void Embedding<T>::forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  const Index step = turned_ ? 1 : x.width();
  each_place(pass, x, pass.team->range(x.batch), [&](Index, Index from, Index to) {
    for (Index j = 0; j < width_; ++j) y.data[to + j * step] = vars.params[static_cast<std::size_t>(from + j)];
  });
}

/// dw[i] = Σ dy of all places whose index is i, a leaf after the other; a member has some of the columns. An index has
/// no derivative.
template <class T>
void Embedding<T>::backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T>, Tensor<const T> dy,
                            Tensor<T> dx, std::span<T> grads) const {
  if (dx.wanted()) {
    const Range mine = pass.team->range(dx.count());
    std::fill_n(dx.data + mine.begin, mine.size(), T{});
  }
  const Range columns = pass.team->range(width_);
  const Index step = turned_ ? 1 : x.width();
  const auto each_row = [&](auto action) {
    for (Index row = 0; row < count_; ++row) action(row * width_ + columns.begin);
  };
  each_node(pass, vars, x.batch, grads, [&](Range rows, const kernels::LeafSums<T>& leaves, std::span<T> sums) {
    const auto add_up = [&](Range some, bool more, T* to) {
      if (!more) each_row([&](Index at) { std::fill_n(to + at, columns.size(), T{}); });
      each_place(pass, x, {rows.begin + some.begin, rows.begin + some.end}, [&](Index index, Index at, Index from) {
        if (index == padding_) return;
        for (Index j = columns.begin; j < columns.end; ++j) to[at + j] += dy.data[from + j * step];
      });
    };
    if (!leaves.several()) return add_up({0, rows.size()}, pass.add, sums.data());
    const auto place = [&](Index at) { return at == 0 ? sums.data() : leaves.room + (at - 1) * std::ssize(sums); };
    add_leaves(
        leaves.count,
        [&](Index leaf, Index at) {
          add_up({leaf == 0 ? 0 : leaves.ends[leaf - 1], leaves.ends[leaf]}, false, place(at));
        },
        [&](Index left, Index right) {
          T *const to = place(left), *const from = place(right);
          each_row([&](Index at) {
            for (Index j = at; j < at + columns.size(); ++j) to[j] += from[j];
          });
        });
  });
}

template class Embedding<float>;
template class Embedding<double>;

}  // namespace pdnn::nn
