#pragma once
/// QuadraticModel: a batch's loss near some parameters, as second-order optimizers know it.
#include <memory>

#include "pdnn/comm/communicator.hpp"
#include "pdnn/curvature/jacobian.hpp"
#include "pdnn/curvature/seeds.hpp"
#include "pdnn/data/source.hpp"

namespace pdnn::curvature {

/// L(θ + d) ≈ L + gᵀd + ½ dᵀB d with B = JᵀJ (Seeds says of what), g and B made of all rows of a batch. In double: a
/// float model has one of doubles made for it.
///
/// Each rank computes all x and δ of J, which takes little, and its share of B or J Jᵀ; one all-reduce puts the shares
/// together. Every element is made by one worker, so neither ranks nor threads change a bit.
class QuadraticModel {
 public:
  /// `ranks`: null if there are no others. Throws ValueError if the network or the loss does not fit.
  QuadraticModel(std::shared_ptr<const nn::Model<double>> model, std::shared_ptr<const Loss<double>> loss,
                 const Shape& sample, const std::vector<bool>& trained, Kind kind, int threads,
                 comm::Communicator* ranks);

  /// From now on these rows are the batch. The source must stay as long.
  void take(const data::Source<double>& source, std::span<const Index> rows);
  /// The sums over its rows at the model's parameters as they are, and what the rows count.
  nn::LossValue loss();
  double weight() const { return weight_; }
  /// Makes g and J at the model's parameters as they are; what follows is about these.
  void linearize();

  Index parameters() const { return jacobian_.parameters(); }
  /// Of J.
  Index rows() const { return jacobian_.rows(); }
  /// g, [parameters]
  std::span<const double> gradient() const { return gradient_.span(); }
  /// The diagonal of B, [parameters]
  std::span<const double> diagonal();
  /// B, the lower triangle of [parameters, parameters], and zeros
  void matrix(std::span<double> out);

  /// x ← (B + diag)⁻¹ x through B itself: [parameters, parameters]. False, and x of no meaning, if that is singular or
  /// not finite.
  bool solve_normal(std::span<const double> diag, std::span<double> x);
  /// x = (B + damping)⁻¹ g = Jᵀ (J Jᵀ + damping)⁻¹ r, through a matrix of [rows, rows]. damping > 0
  bool solve_kernel(double damping, std::span<double> x);
  /// x ← (B + diag)⁻¹ x by conjugate gradients with products by J and Jᵀ, preconditioned by the diagonal, until the
  /// residual is `tolerance` of what it was or for `most` iterations, whose number it returns. diag > 0
  Index solve_cg(std::span<const double> diag, double tolerance, Index most, std::span<double> x);

 private:
  Part rank() const { return ranks_ ? Part{ranks_->rank(), ranks_->size()} : Part{}; }
  /// Adds up what each rank has a part of.
  void add_up(std::span<double> parts);
  const AlignedArray<double>& normal();
  const AlignedArray<double>& kernel();
  bool solve(Index size, const AlignedArray<double>& triangle, const double* diag, double* x);
  void multiply(std::span<const double> diag, const double* v, std::span<double> out);

  std::shared_ptr<const nn::Model<double>> model_;
  std::shared_ptr<const Loss<double>> loss_;
  std::shared_ptr<const nn::Network<double>> network_;  // bound
  Jacobian jacobian_;
  Seeds seeds_;
  comm::Communicator* ranks_;
  threads::Team team_;
  std::unique_ptr<nn::Workspace<double>> workspace_;
  data::Batch<double> batch_;
  double weight_ = 0;
  AlignedArray<double> r_, gradient_, trained_;  // trained: 1 or 0
  AlignedArray<double> normal_, kernel_, diagonal_, square_;
  bool has_normal_ = false, has_kernel_ = false, has_diagonal_ = false;
};

}  // namespace pdnn::curvature
