#pragma once
/// Flatten: (channels, height, width) seen as features. A view inside a network, a copy at its end.
#include "pdnn/nn/layers/identity.hpp"

namespace pdnn::nn {

template <class T>
class Flatten : public Identity<T> {
 public:
  std::string_view name() const override { return "Flatten"; }
  Traits traits() const override { return {.view = true, .elementwise = true}; }
  Shape output_shape(const Shape& in) const override { return {in.count()}; }
};

}  // namespace pdnn::nn
