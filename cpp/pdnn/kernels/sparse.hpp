#pragma once
/// Products of a linear layer whose samples are sparse: what is 0 is neither read nor multiplied.
#include "pdnn/kernels/elementwise.hpp"
#include "pdnn/kernels/panels.hpp"
#include "pdnn/kernels/update.hpp"

namespace pdnn::kernels {

/// With the bits of ProductKernels on the same samples with their zeros, unless what these would multiply is not
/// finite.
template <class T>
struct SparseKernels {
  /// y = f(x w + b). A null bias is none.
  void (*sparse_nn)(Part part, const SparseBatch<T>& x, PanelMatrix<const T> w, const T* b, Activation f, Matrix<T> y);

  /// dw = xᵀ dy, whose sums start from what lies at `from`, in the order of dw, and may be dw itself; null: from 0.
  /// With an update it is applied to the weights and not kept: the element at dw.data + i updates parameter i.
  void (*sparse_tn)(Part part, const SparseBatch<T>& x, Matrix<const T> dy, const T* from, const Update<T>* update,
                    PanelMatrix<T> dw);
};

}  // namespace pdnn::kernels
