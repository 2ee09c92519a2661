#pragma once
/// Kernels of optimizers: a rule applied to parameters, and the clipping of gradients.
#include "pdnn/core/types.hpp"
#include "pdnn/kernels/rules.hpp"

namespace pdnn::kernels {

/// A rule's step, the parameters that belong to element 0 of a gradient, and their state: in the rule's order, null
/// where it keeps none.
template <class T>
struct Update {
  RuleStep step;
  T* w;
  T* state[kMostStates];

  /// The same from parameter `index` on.
  Update at(Index index) const {
    Update later = *this;
    later.w += index;
    for (T*& array : later.state)
      if (array) array += index;
    return later;
  }
};

inline constexpr Index kSquareSumChunk = 4096;
inline Index square_chunks(Index n) { return (n + kSquareSumChunk - 1) / kSquareSumChunk; }

/// Updates and clipping.
template <class T>
struct UpdateKernels {
  /// The rule applied to n parameters by their gradients g.
  void (*update)(Part part, const Update<T>& update, Index n, const T* g);

  /// sums[c] = Σ x² over the c-th kSquareSumChunk elements; the last chunk may be shorter.
  void (*square_sums)(Part part, Index n, const T* x, double* sums);
  /// x *= factor.
  void (*scale)(Part part, Index n, T factor, T* x);
  /// x = bound where it is larger, −bound where it is smaller.
  void (*clamp)(Part part, Index n, T bound, T* x);
};

}  // namespace pdnn::kernels
