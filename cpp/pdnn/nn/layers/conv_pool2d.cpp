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
  return {.saved = kBlocks * pooling_sizes_.saved,
          .saved_row = pooling_sizes_.saved_row,
          .scratch = kBlocks * (params_ + room(1)),  // a block may have a row more than its share
          .scratch_row = room(1) - room(0)};
}

template <class T>
typename ConvPool2d<T>::Block ConvPool2d<T>::block(Index number, const Member& member, Index batch,
                                                   const Vars<T>& vars) const {
  const Range rows = share(batch, number, kBlocks);
  const Index most = room((batch + kBlocks - 1) / kBlocks);
  const std::span<T> own = slice(vars.scratch, kBlocks * params_ + member.index * most, most);
  return {.rows = rows,
          .between = {own.data(), rows.size(), between_},
          .scratch = own.subspan(static_cast<std::size_t>(rows.size() * between_.count())),
          .saved = slice(vars.saved, number * pooling_sizes_.saved + rows.begin * pooling_sizes_.saved_row,
                         pooling_sizes_.saved + rows.size() * pooling_sizes_.saved_row),
          .grads = slice(vars.scratch, number * params_, params_)};
}

template <class T>
void ConvPool2d<T>::forward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<T> y) const {
  const Member alone;
  Pass own = pass;
  own.team = &alone;
  const Range blocks = pass.team->range(kBlocks);
  for (Index number = blocks.begin; number < blocks.end; ++number) {
    const Block b = block(number, *pass.team, x.batch, vars);
    convolution_->forward(own, {vars.params, {}, {}, b.scratch}, x.rows(b.rows), b.between);
    pooling_->forward(own, {{}, {}, b.saved, {}}, b.between, y.rows(b.rows));
  }
}

template <class T>
void ConvPool2d<T>::backward(const Pass& pass, Vars<T> vars, Tensor<const T> x, Tensor<const T> y, Tensor<const T> dy,
                             Tensor<T> dx, std::span<T> grads) const {
  const Member alone;
  Pass own = pass;
  own.team = &alone;
  own.add = false;
  own.final = nullptr;  // whom member 0 alone may call
  const Range blocks = pass.team->range(kBlocks);
  for (Index number = blocks.begin; number < blocks.end; ++number) {
    const Block b = block(number, *pass.team, x.batch, vars);
    const Tensor<const T> unread{nullptr, b.rows.size(), between_};
    const Tensor<T> below = dx.wanted() ? dx.rows(b.rows) : Tensor<T>{nullptr, b.rows.size(), in_};
    pooling_->backward(own, {{}, {}, b.saved, {}}, unread, y.rows(b.rows), dy.rows(b.rows), b.between, {});
    convolution_->backward(own, {vars.params, {}, {}, b.scratch}, x.rows(b.rows), unread, b.between, below, b.grads);
    pass.poll();
  }
  pass.team->barrier();
  const Range mine = pass.team->range(params_);
  T* const sums = grads.data() + mine.begin;
  if (!pass.add) std::fill_n(sums, mine.size(), T{});
  for (Index number = 0; number < kBlocks; ++number)
    kernels::table<T>().add(Part{}, mine.size(), sums, vars.scratch.data() + number * params_ + mine.begin, sums);
}

template class ConvPool2d<float>;
template class ConvPool2d<double>;

}  // namespace pdnn::nn
