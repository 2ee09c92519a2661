#pragma once
/// Integers: whole numbers of few bits, and a scale for each block of them.
#include "pdnn/codec/codec.hpp"

namespace pdnn::codec {

/// ⌈n / block⌉ scales (float32), then n numbers q of 8 bits or of 4, the first of two in the lower half of a byte; a
/// value is q · scale, with scale = max |x| / 127, or / 7, over its block.
///
/// |x − decoded| ≤ max |x| / 254 · (1 + 2⁻¹⁵), or max |x| / 14 · (1 + 2⁻¹⁵), the maximum over its block; blocks in
/// which all |x| < 10⁻³⁴ (5 · 10⁻³⁶) become 0. A block with a value that is not finite becomes NaN.
template <class T>
class Integers : public Codec<T> {
 public:
  static constexpr Index kBlock = 256;

  explicit Integers(int bits, Index block = kBlock);  ///< block: a multiple of 16
  Index bytes(Index n) const override { return blocks(n) * Index{sizeof(float)} + (n * bits_ + 7) / 8; }
  std::string spec() const override;

 private:
  Index blocks(Index n) const { return (n + block_ - 1) / block_; }
  void write(std::span<const T> values, std::uint8_t* out) override;
  void read(const std::uint8_t* data, std::span<T> values, Into into) override;

  int bits_;
  Index block_;
};

}  // namespace pdnn::codec
