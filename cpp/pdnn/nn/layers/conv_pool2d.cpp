#include "pdnn/nn/layers/conv_pool2d.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::nn {

template <class T>
ConvPool2d<T>::ConvPool2d(LayerPtr<T> convolution, LayerPtr<T> pooling, const Shape& in)
    : convolution_(std::move(convolution)),
      pooling_(std::move(pooling)),
      in_(in),
      between_(convolution_->output_shape(in)),
      convolution_sizes_(convolution_->sizes(in)),
      pooling_sizes_(pooling_->sizes(between_)),
      params_(total(convolution_->parameters())) {}

template <class T>
Shape ConvPool2d<T>::output_shape(const Shape& in) const {
  return pooling_->output_shape(convolution_->output_shape(in));
}

/// Elements that a member needs for a block of so many rows.
template <class T>
Index ConvPool2d<T>::room(Index rows) const {
  return rows * (between_.count() + convolution_sizes_.scratch_row) + convolution_sizes_.scratch;
}

template <class T>
Sizes ConvPool2d<T>::sizes(const Shape&) const {
  return {.saved_row = pooling_sizes_.saved_row,
          .scratch = kBlocks * (params_ + room(1)),  // a block may have a row more than its share
          .scratch_row = room(1) - room(0),
          .leaf = params_};
}

template <class T>
typename ConvPool2d<T>::Blocks ConvPool2d<T>::blocks(const Pass& pass, Index batch) const {
  if (!pass.leaves) return {.longest = share(batch, 0, kBlocks).size()};
  const Leaves& leaves = pass.leaves->leaves();
  const Index each = std::max<Index>(1, kBlocks / leaves.count);
  return {.leaves = leaves.run.size(), .each = each, .longest = share(leaves.rows(0).size(), 0, each).size()};
}

template <class T>
typename ConvPool2d<T>::Block ConvPool2d<T>::block(Index number, const Pass& pass, Index batch,
                                                   const Vars<T>& vars) const {
  const Blocks all = blocks(pass, batch);
  Range rows{0, batch};
  if (pass.leaves) {
    const std::span<const Index> ends = pass.leaves->ends();
    const auto leaf = static_cast<std::size_t>(number / all.each);
    rows = {leaf == 0 ? 0 : ends[leaf - 1], ends[leaf]};
  }
  const Range own_rows = share(rows.size(), number % all.each, all.each);
  rows = {rows.begin + own_rows.begin, rows.begin + own_rows.end};
  const Index most = room(all.longest);
  const std::span<T> own = slice(vars.scratch, kBlocks * params_ + pass.team->index * most, most);
  return {.rows = rows,
          .between = {own.data(), rows.size(), between_},
          .scratch = own.subspan(static_cast<std::size_t>(rows.size() * between_.count())),
          .saved = slice(vars.saved, rows.begin * pooling_sizes_.saved_row, rows.size() * pooling_sizes_.saved_row),
          .grads = block_grads(number, vars)};
}

template <class T>
std::span<T> ConvPool2d<T>::block_grads(Index number, const Vars<T>& vars) const {
  return number < kBlocks ? slice(vars.scratch, number * params_, params_)
                          : slice(vars.leaf_room, (number - kBlocks) * params_, params_);
}

/// Calls action(block) for those of this member: of a team of more than kBlocks, the others have no room.
template <class T>
template <class Action>
void ConvPool2d<T>::each_own(const Pass& pass, Index batch, const Vars<T>& vars, Action action) const {
  const int members = std::min<int>(pass.team->size, kBlocks);
  if (pass.team->index >= members) return;
  const Range own = Part{pass.team->index, members}.range(blocks(pass, batch).count());
  for (Index number = own.begin; number < own.end; ++number) action(block(number, pass, batch, vars));
}

template <class T>
void ConvPool2d<T>::forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  const Member alone;
  Pass own = pass;
  own.team = &alone;
  own.leaves = nullptr;
  each_own(pass, x.batch, vars, [&](const Block& b) {
    convolution_->forward(own, {vars.params, {}, {}, b.scratch}, x.rows(b.rows), b.between);
    pooling_->forward(own, {{}, {}, b.saved, {}}, b.between, y.rows(b.rows));
  });
}

template <class T>
void ConvPool2d<T>::backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy,
                             Tensor<T> dx, std::span<T> grads) const {
  const Member alone;
  Pass own = pass;
  own.team = &alone;
  own.add = false;
  own.final = nullptr;  // whom member 0 alone may call
  own.leaves = nullptr;
  each_own(pass, x.batch, vars, [&](const Block& b) {
    const Tensor<const T> unread{nullptr, b.rows.size(), between_};
    const Tensor<T> below = dx.wanted() ? dx.rows(b.rows) : Tensor<T>{nullptr, b.rows.size(), in_};
    pooling_->backward(own, {{}, {}, b.saved, {}}, unread, y.rows(b.rows), dy.rows(b.rows), b.between, {});
    convolution_->backward(own, {vars.params, {}, {}, b.scratch}, x.rows(b.rows), unread, b.between, below, b.grads);
    pass.poll();
  });
  pass.team->barrier();
  const Range mine = pass.team->range(params_);
  const auto add = [&](const T* from, T* to) { kernels::table<T>().add(Part{}, mine.size(), to, from, to); };
  const auto grads_of = [&](Index number) { return block_grads(number, vars).data() + mine.begin; };
  if (!pass.leaves) {
    T* const sums = grads.data() + mine.begin;
    if (!pass.add) std::fill_n(sums, mine.size(), T{});
    for (Index number = 0; number < kBlocks; ++number) add(grads_of(number), sums);
    return;
  }
  // A leaf's sum takes the place of its first block's; then the leaves of each node are joined where they lie.
  const Blocks all = blocks(pass, x.batch);
  for (Index number = 0; number < all.count(); ++number)
    if (number % all.each != 0) add(grads_of(number), grads_of(number / all.each * all.each));
  Index first = 0;
  each_node(pass, vars, x.batch, grads, [&](Range, const kernels::LeafSums<T>& leaves, std::span<T> sums) {
    for (Index width = 1; width < leaves.count; width *= 2)
      for (Index leaf = 0; leaf + width < leaves.count; leaf += 2 * width)
        add(grads_of((first + leaf + width) * all.each), grads_of((first + leaf) * all.each));
    std::copy_n(grads_of(first * all.each), mine.size(), sums.data() + mine.begin);
    first += leaves.count;
  });
}

template class ConvPool2d<float>;
template class ConvPool2d<double>;

}  // namespace pdnn::nn
