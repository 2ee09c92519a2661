#pragma once
/// Kernels on rows and columns: softmax, cross-entropy and normalization.
#include "pdnn/kernels/leaves.hpp"

namespace pdnn::kernels {

/// The normalization of columns leaves sums over rows as the sums of so many chunks of them, share(rows, chunk,
/// kChunks), for the caller to join in that order.
inline constexpr Index kChunks = 8;

/// Or of these leaves, each `places` rows for a sample: a chunk for each, if there are any.
struct Chunks {
  const Index* ends = nullptr;
  Index leaves = 0, places = 1;
  Index count() const { return leaves > 0 ? leaves : kChunks; }
};

/// What each column is normalized by: mean and variance, and then gamma and beta; [channels] each.
template <class T>
struct NormParams {
  const T *mean, *var, *gamma, *beta;
  double eps;
};

/// On matrices of a row a sample.
template <class T>
struct RowKernels {
  /// y[r, :] = exp(x[r, :]) / Σ exp(x[r, :]), shifted by the row's maximum.
  void (*softmax)(Part part, Matrix<const T> x, Matrix<T> y);
  /// dx = y ∘ (dy − Σ_j dy_j y_j), from y = softmax(x).
  void (*softmax_backward)(Part part, Matrix<const T> y, Matrix<const T> dy, Matrix<T> dx);

  /// y[r, :] = x[r, :] − log Σ exp(x[r, :]).
  void (*log_softmax)(Part part, Matrix<const T> x, Matrix<T> y);
  /// dx = dy − exp(y) Σ_j dy_j, from y = log_softmax(x).
  void (*log_softmax_backward)(Part part, Matrix<const T> y, Matrix<const T> dy, Matrix<T> dx);

  /// Softmax cross-entropy in one pass. rows[2 r] = −log softmax(y[r])[classes[r]], rows[2 r + 1] = 1 if the (first)
  /// largest y is at classes[r], else 0. dy = scale (softmax(y) − onehot); a null dy.data is not wanted.
  void (*cross_entropy_of_classes)(Part part, Matrix<const T> y, const std::int32_t* classes, double scale,
                                   Matrix<T> dy, double* rows);

  /// The same for targets t of probabilities [batch, classes]: rows[2 r] = −Σ_j t_j log softmax(y[r])_j, and
  /// dy = scale (softmax(y) Σ_j t_j − t).
  void (*cross_entropy_of_targets)(Part part, Matrix<const T> y, Matrix<const T> targets, double scale, Matrix<T> dy,
                                   double* rows);

  /// Normalization of columns, x being [rows, channels]. moments: [chunks, 2, channels]. The mean over the chunk's
  /// rows, and Σ (x − that mean)²; 0 and 0 for no rows.
  void (*column_moments)(Part part, Matrix<const T> x, Chunks chunks, T* moments);
  /// y = f((x − mean) gamma / √(var + eps) + beta), f being ReLU or the identity.
  void (*normalize)(Part part, Matrix<const T> x, const NormParams<T>& normal, bool relu, Matrix<T> y);
  /// sums: [chunks, 2, channels]. Σ dz and Σ dz (x − mean) over the chunk's rows, with dz = dy f'(y).
  void (*normalize_sums)(Part part, Matrix<const T> x, Matrix<const T> y, Matrix<const T> dy, const T* mean, bool relu,
                         Chunks chunks, T* sums);
  /// dx = (dz − shift − (x − mean) slope) gamma / √(var + eps); shift, slope: [channels].
  void (*normalize_backward)(Part part, Matrix<const T> x, Matrix<const T> y, Matrix<const T> dy,
                             const NormParams<T>& normal, const T* shift, const T* slope, bool relu, Matrix<T> dx);

  /// Of rows: y[r] = (x[r] − mean) / √(var + eps) gamma + beta. moments: [rows, 2], each row's mean and 1 / √(var +
  /// eps).
  void (*layer_norm)(Part part, Matrix<const T> x, const T* gamma, const T* beta, double eps, Matrix<T> y, T* moments);
  /// dx, from those moments.
  void (*layer_norm_backward)(Part part, Matrix<const T> x, Matrix<const T> dy, const T* gamma, const T* moments,
                              Matrix<T> dx);
  /// dgamma = Σ_r dy (x − mean) / √(var + eps) and dbeta = Σ_r dy, or += them, which goes with one leaf only.
  void (*layer_norm_sums)(Part part, Matrix<const T> x, Matrix<const T> dy, const T* moments, const LeafSums<T>& leaves,
                          bool add, T* dgamma, T* dbeta);
};

}  // namespace pdnn::kernels
