#pragma once
/// Init: how a parameter gets its first values, a function of (rng, index of the element) alone.
#include "pdnn/core/random.hpp"

namespace pdnn::nn {

struct Init {
  enum class Kind { uniform, normal, constant };
  Kind kind = Kind::constant;
  double a = 0;  ///< uniform in [−a, a); the standard deviation of a normal; the constant

  /// values[i] is element `first` + i of the array that is drawn.
  template <class T>
  void fill(Rng rng, std::span<T> values, Index first = 0) const;
};

}  // namespace pdnn::nn
