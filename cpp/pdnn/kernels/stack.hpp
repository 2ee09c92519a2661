#pragma once
/// Steps of small networks: for a stack of narrow linear layers and a few rows, what comes before and after a product
/// takes longer than the product. Here a whole pass is one call.
#include "pdnn/kernels/elementwise.hpp"

namespace pdnn::kernels {

/// What the factors of a layer's products are: numbers as they are, or, of floats, these rounded to bfloat16, or pairs
/// of bfloat16 numbers.
enum class Factors { full, rounded, pairs };

/// One of a stack of linear layers: y = f(x w + b). Its parameters are w [inputs, outputs] and then b [outputs].
struct StackLayer {
  Index inputs, outputs;
  bool bias;
  Activation activation;
  Factors factors = Factors::full;
};

/// The widest layer of a stack, and the most rows of a call.
inline constexpr Index kMostStackWidth = 64, kMostStackRows = 32;

/// By one worker, with the bits of ProductKernels of such factors. Pairs are for RoundedKernels whose factors are. The
/// parameters of the layers, and their gradients, lie one after another; `between` has the outputs of all layers but
/// the last, each from a cache line on.
template <class T>
struct StackKernels {
  void (*stack_forward)(const StackLayer* layers, Index count, Index rows, const T* x, const T* params, T* between,
                        T* y);
  /// grads, from dy, the gradient of y.
  void (*stack_backward)(const StackLayer* layers, Index count, Index rows, const T* x, const T* params,
                         const T* between, const T* y, const T* dy, T* grads);
};

}  // namespace pdnn::kernels
