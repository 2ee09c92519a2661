#pragma once
/// PowerSgd: each matrix as the product of two thin ones, by one step of power iteration that goes on from the last.
#include <vector>

#include "pdnn/codec/codec.hpp"
#include "pdnn/core/memory.hpp"
#include "pdnn/core/random.hpp"

namespace pdnn::codec {

/// Where a matrix lies among the values: row-major, or in panels of so many columns (kernels::PanelMatrix).
struct MatrixAt {
  Index offset, rows, cols;
  Index panel = 0;  ///< 0: row-major
};

/// T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: practical low-rank gradient compression for distributed
/// optimization", NeurIPS 2019, algorithm 1. Of a matrix M [rows, cols], with Q [cols, rank] of the last call (at first
/// random, the same everywhere):
///
///     P ← M Q,   P ← its columns made orthonormal,   Q ← Mᵀ P,   decoded = P Qᵀ = P Pᵀ M.
///
/// ‖M − decoded‖² = ‖M‖² − ‖Q‖². All Pᵀ, then all Qᵀ, then what is in no matrix, or in one that would not get smaller;
/// all of T. Both steps are linear in M, so over ranks P and Q can be added up where they are made. What is not finite
/// makes its matrix NaN, once.
template <class T>
class PowerSgd : public Codec<T> {
 public:
  /// For `count` values that hold these matrices, in rising order, apart from one another.
  PowerSgd(int rank, Index count, const std::vector<MatrixAt>& matrices, std::uint64_t seed = 0);
  Index bytes(Index n) const override;
  std::string spec() const override { return "powersgd:" + std::to_string(rank_); }

  // The steps one by one, for sums over ranks between them: make_p, p_and_rest() added up, make_q of the
  // same values, leave_error, q() added up, restore.
  void make_p(std::span<const T> values);
  void make_q(std::span<const T> values);
  /// M − P Qᵀ in the place of each matrix M, 0 elsewhere.
  void leave_error(std::span<T> values) { restore(first_.data(), second_.data(), nullptr, values, Into::subtract); }
  void restore(std::span<T> values) {
    restore(first_.data(), second_.data(), first_.data() + p_count_, values, Into::store);
  }
  std::span<T> p_and_rest() { return first_.span(); }
  std::span<T> q() { return second_.span(); }

 private:
  void draw_what_is_lost();
  void orthonormalize(T* rows, Index width) const;
  void write(std::span<const T> values, std::uint8_t* out) override;
  void read(const std::uint8_t* data, std::span<T> values, Into into) override;
  /// Null `others`: they become 0.
  void restore(const T* p, const T* q, const T* others, std::span<T> values, Into into);

  int rank_;
  Index count_, p_count_ = 0;
  std::vector<MatrixAt> matrices_;  // those that get smaller
  std::vector<Range> others_;       // of the values
  Rng rng_;
  AlignedArray<T> first_, second_, read_;  // all Pᵀ and the rest; all Qᵀ; both as they were read
  AlignedArray<T> negative_;               // −Pᵀ of a matrix
};

}  // namespace pdnn::codec
