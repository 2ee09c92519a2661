#pragma once
/// Jacobian: the derivatives of numbers made of a network's outputs, for its parameters, as factors.
#include <vector>

#include "pdnn/core/memory.hpp"
#include "pdnn/curvature/triangle.hpp"
#include "pdnn/nn/layer_call.hpp"
#include "pdnn/nn/network.hpp"

namespace pdnn::curvature {

using threads::Member;

/// J: [rows · seeds, parameters], never as a whole. Row (i, k) is the gradient of s_ik · y_i, y_i being the outputs for
/// sample i and s_ik a seed. In it a Linear's weight has x_i δ_ikᵀ, and its bias δ_ik: the layer's input for sample i,
/// and what the backward pass makes of s_ik at its output. So all x and δ are kept, and they are all. Parameters that
/// are not trained have zeros.
///
/// Several workers do each call together: `ranks` groups of them that share nothing, of which `rank` is this worker's,
/// and within it the members of a team. Every sum is made by one worker in an order of its own, so the bits do not
/// depend on the workers; what others of a rank's group make stays as it was, zeros to be added to.
class Jacobian {
 public:
  /// Throws ValueError if a layer is neither a Linear nor an activation nor a Flatten. `trained`: of each of the
  /// network's parameters, in their order.
  Jacobian(const nn::Network<double>& network, const Shape& sample, const std::vector<bool>& trained);

  Index parameters() const { return parameters_; }
  Index outputs() const { return outputs_; }
  Index rows() const { return samples_ * seeds_; }

  /// Makes room for a batch.
  void resize(Index samples, Index seeds);
  /// This member's samples through the network; y: [samples, outputs]. A barrier must follow.
  void forward(const Member& member, std::span<const double> params, Tensor<const double> x, Tensor<double> y);
  /// Where seeds go: [rows, outputs].
  double* seeds() { return linears_.back()->delta.data(); }
  /// The backward pass of this member's samples, from their seeds. A barrier must follow.
  void backward(const Member& member, std::span<const double> params);

  /// Parts of JᵀJ, as a rank-k update for blocks of rows, each made in cache of its x and δ.
  void add_normal_matrix(Part rank, const Member& member, std::span<double> triangle) const;
  /// Parts of J Jᵀ = Σ (X Xᵀ + 1) ∘ (Δ Δᵀ), over layers.
  void add_kernel_matrix(Part rank, const Member& member, std::span<double> triangle) const;
  /// Parts of the diagonal of JᵀJ. Has barriers.
  void add_squares(Part rank, const Member& member, std::span<double> out);
  /// Parts of J v. v is 0 where parameters are not trained.
  void times(Part rank, const Member& member, std::span<const double> v, std::span<double> out) const;
  /// Parts of Jᵀ u. Has a barrier.
  void transposed_times(Part rank, const Member& member, std::span<const double> u, std::span<double> out);

 private:
  /// A layer and what a pass leaves of it.
  struct Node {
    nn::LayerCall<double> call;
    Index at, count;               // its parameters
    bool linear, weight, bias;     // whether it is a Linear, and which of its parameters are trained
    Index inputs, outputs;         // elements of a sample
    Tensor<const double> x{};      // [samples, inputs]
    AlignedArray<double> y{};      // [samples, outputs]
    AlignedArray<double> delta{};  // of a Linear: [rows, outputs]
    AlignedArray<double> sums{};   // of a Linear: [samples, outputs], of seeds; of an activation: f'(x)
  };

  void write_rows(Range rows, Index stride, double* out) const;
  /// dw = xᵀ s and db = Σ s into the places of a Linear's trained parameters: this worker's part.
  static void gather(Part rank, Part member, const Node& node, const double* x, std::span<double> out);

  std::vector<Node> nodes_;
  std::vector<Node*> linears_;
  Index parameters_ = 0, outputs_ = 0, samples_ = 0, seeds_ = 0;
  AlignedArray<double> squares_;  // of the inputs of a layer
};

}  // namespace pdnn::curvature
