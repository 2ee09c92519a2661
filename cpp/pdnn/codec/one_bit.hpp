#pragma once
/// OneBit: the sign of each value, and two levels for each block of them.
#include "pdnn/codec/codec.hpp"

namespace pdnn::codec {

/// ⌈n / block⌉ pairs of levels (float32), then ⌈n / 8⌉ bytes of signs, the lowest bit first: 1 is minus. A value is the
/// level of its sign: the mean of its block's values without the sign, or of those with it. F. Seide, H. Fu, J. Droppo,
/// G. Li, D. Yu, "1-bit stochastic gradient descent and its application to data-parallel distributed training of speech
/// DNNs", Interspeech 2014, with blocks in place of the columns of matrices.
///
/// ‖x − decoded‖² = ‖x‖² − Σ (levels² · values that have them) ≤ (1 − 1/block) ‖x‖², to rounding. A value that is not
/// finite makes all of its sign in its block not finite.
template <class T>
class OneBit : public Codec<T> {
 public:
  static constexpr Index kBlock = 1024;

  explicit OneBit(Index block = kBlock);  ///< a multiple of 16
  Index bytes(Index n) const override { return levels_bytes(n) + (n + 7) / 8; }
  std::string spec() const override;

 private:
  Index levels_bytes(Index n) const { return (n + block_ - 1) / block_ * 2 * Index{sizeof(float)}; }
  void write(std::span<const T> values, std::uint8_t* out) override;
  void read(const std::uint8_t* data, std::span<T> values, Into into) override;

  Index block_;
};

}  // namespace pdnn::codec
