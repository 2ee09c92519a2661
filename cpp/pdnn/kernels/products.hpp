#pragma once
/// The matrix products of a linear layer, with the activation, the sum or the update that may be fused into them.
#include "pdnn/kernels/elementwise.hpp"
#include "pdnn/kernels/leaves.hpp"
#include "pdnn/kernels/panels.hpp"
#include "pdnn/kernels/update.hpp"

namespace pdnn::kernels {

/// Memory that will be read soon: `count` rows of `bytes` bytes, row i at data + rows[i] · stride. A product that is
/// given it fetches it towards this core while it computes.
struct Upcoming {
  const char* data;
  Index stride;
  const Index* rows;
  Index count, bytes;
};

/// What the factors of a layer's products are rounded to before they are multiplied; sums are not.
enum class Precision { full, bfloat16 };

/// x [batch, inputs], w [inputs, outputs], y [batch, outputs]; any extent may be 0.
template <class T>
struct ProductKernels {
  /// y = f(x w + b). A null bias is none.
  void (*product_nn)(Part part, Matrix<const T> x, PanelMatrix<const T> w, const T* b, Activation f, Matrix<T> y);

  /// dx = (dy wᵀ) ∘ f'(x), where x is the output of the activation f before this layer; identity: x is not read.
  void (*product_nt)(Part part, Matrix<const T> dy, PanelMatrix<const T> w, Activation f, Matrix<const T> x,
                     Matrix<T> dx);

  /// dw = xᵀ dy, or dw += xᵀ dy, which goes with one leaf only. Uses the leaves' room. A null `upcoming` is none.
  void (*product_tn)(Part part, Matrix<const T> x, Matrix<const T> dy, const LeafSums<T>& leaves, bool add,
                     PanelMatrix<T> dw, const Upcoming* upcoming);

  /// The same dw, applied by the rule to the weights while it is in registers or near, and not kept: dw is room that
  /// may be used for sums, its values are lost. The element of dw at dw.data + i updates parameter i. Its sums start
  /// from what lies at `from`, in the order of dw; those of leaves start from 0, and it is added in the end. Null: 0.
  void (*product_tn_update)(Part part, Matrix<const T> x, Matrix<const T> dy, const LeafSums<T>& leaves,
                            const Update<T>& update, const T* from, PanelMatrix<T> dw, const Upcoming* upcoming);

  /// sums[j] = Σ_r x[r, j], or sums[j] += it, which goes with one leaf only.
  void (*column_sums)(Part part, Matrix<const T> x, const LeafSums<T>& leaves, bool add, T* sums);
};

}  // namespace pdnn::kernels
