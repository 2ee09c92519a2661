#pragma once
/// Identity: y is a copy of x. What a network without layers does.
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

template <class T>
class Identity : public Layer<T> {
 public:
  std::string_view name() const override { return "Identity"; }
  void forward(const Pass& pass, Vars<T>, Tensor<const T> x, Tensor<T> y) const override { copy(*pass.team, x, y); }
  void backward(const Pass& pass, Vars<T>, Tensor<const T>, Tensor<const T>, Tensor<const T> dy, Tensor<T> dx,
                std::span<T>) const override {
    if (dx.wanted()) copy(*pass.team, dy, dx);
  }

 private:
  static void copy(Part part, Tensor<const T> from, Tensor<T> to) {
    const Range mine = part.range(from.count());
    std::copy(from.data + mine.begin, from.data + mine.end, to.data + mine.begin);
  }
};

}  // namespace pdnn::nn
