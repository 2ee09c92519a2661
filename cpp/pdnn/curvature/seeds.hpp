#pragma once
/// Seeds: the numbers of a row whose Jacobian makes the curvature of a loss.
#include "pdnn/nn/loss.hpp"

namespace pdnn::curvature {

using nn::Loss;
using nn::Target;

/// Which matrix stands for the second derivatives of a loss L = Σ w_i l_i(y_i).
enum class Kind {
  /// Generalized Gauss–Newton, Σ w_i (dy/dθ)ᵀ H_i dy/dθ with H_i the second derivatives of l_i for y_i: of MSELoss,
  /// where it is that of least squares, and of CrossEntropyLoss.
  gauss_newton,
  /// Empirical Fisher information, Σ w_i g_i g_iᵀ with g_i the gradient of l_i: of any loss.
  fisher,
};

/// Seeds s_ik, columns of a factor of w_i H_i = Σ_k s_ik s_ikᵀ, or √w_i dl_i/dy_i; and numbers r_ik with
/// Σ_k r_ik s_ik = w_i dl_i/dy_i. So B = JᵀJ and the gradient is Jᵀr, if J has the gradients of s_ik · y_i as rows.
class Seeds {
 public:
  /// Throws ValueError, with what to use, if this loss has no such curvature here.
  Seeds(const Loss<double>& loss, Kind kind, Index outputs);

  /// Of each sample.
  Index count() const { return form_ == Form::gradients ? 1 : outputs_; }
  /// Of these rows. dy: the gradient of the batch's loss, `scale` times the weights of rows in it.
  /// seeds: [rows, count, outputs], r: [rows, count]
  void write(Range rows, const Tensor<const double>& y, const Tensor<const double>& dy, const Target<double>& target,
             double scale, double* seeds, double* r) const;

 private:
  enum class Form { squares, softmax, gradients };
  void write_row(double weight, const double* y, const double* dy, double* seeds, double* r) const;
  void write_softmax(double weight, const double* y, const double* dy, double* seeds, double* r) const;

  const Loss<double>& loss_;
  Index outputs_;
  Form form_ = Form::gradients;
  double second_ = 0;  // derivative of a square
};

}  // namespace pdnn::curvature
