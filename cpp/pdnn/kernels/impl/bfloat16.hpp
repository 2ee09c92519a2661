#pragma once
/// Products and convolutions of factors that are rounded to bfloat16, and what rounds those of convolutions.
#include "pdnn/kernels/impl/convolution_dw.hpp"
#include "pdnn/kernels/impl/product.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::kernels::impl {
namespace {

template <class Operands>
void round_channels(Part part, Index places, Index channels, const float* x, float* rounded) {
  const Range mine = deal(part, places);
  const Index groups = ceil_div(channels, Operands::kGroup), count = mine.end - mine.begin;
  x += mine.begin * channels, rounded += mine.begin * groups;
  if (channels % Operands::kGroup == 0) return Operands::copy_along(x, 0, 1, count * channels, rounded, 0);
  if constexpr (Operands::kGroup == 2) {
    if (channels == 1) return Operands::template copy_places<1>(x, count, rounded);
    if (channels == 3) return Operands::template copy_places<3>(x, count, rounded);
  }
  Operands::copy_along(x, channels, count, channels, rounded, groups);
}

template <class Operands>
void round_taps(Part part, Index taps, Index rows, Index cols, const float* w, float* rounded) {
  const Range mine = deal(part, taps);
  for (Index tap = mine.begin; tap < mine.end; ++tap)
    Operands::copy_rows(w + tap * rows * cols, cols, rows, cols,
                        rounded + tap * ceil_div(rows, Operands::kGroup) * cols, cols);
}

template <class Operands>
void round_samples(Part part, Index batch, Index elements, const LeafSums<float>& leaves, const float* x,
                   float* rounded) {
  const Range mine = deal(part, elements);
  const auto round = [&](Index begin, Index end) {
    Operands::copy_rows(x + begin * elements + mine.begin, elements, end - begin, mine.end - mine.begin,
                        rounded + mine.begin, elements);
    rounded += ceil_div(end - begin, Operands::kGroup) * elements;
  };
  if (!leaves.several()) return round(0, batch);
  for (Index leaf = 0, begin = 0; leaf < leaves.count; begin = leaves.ends[leaf++]) round(begin, leaves.ends[leaf]);
}

void flip_rounded_taps(Part part, const Convolution& s, const float* w, float* flipped_w) {
  flip_changed_taps(part, s, w, flipped_w, round_to_bfloat16);
}

/// Operands of products, and of convolutions; and stacks.
template <class Products, class Windows = Products>
constexpr RoundedKernels<float> bfloat16_kernels(StackKernels<float> stacks) {
  return {product_kernels<Products>(), convolution_kernels<Windows>(),
          RoundingKernels<float>{.round_channels = round_channels<Windows>,
                                 .round_taps = round_taps<Windows>,
                                 .round_samples = round_samples<Windows>,
                                 .as_floats = Windows::kGroup == 1,
                                 .flip_rounded_taps = flip_rounded_taps},
          stacks};
}

}  // namespace
}  // namespace pdnn::kernels::impl
