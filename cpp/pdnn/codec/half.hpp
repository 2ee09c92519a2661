#pragma once
/// HalfPrecision: two bytes a value, as float16 (11 digits, up to 65504) or bfloat16 (8 digits, the range of floats).
#include "pdnn/codec/codec.hpp"

namespace pdnn::codec {

/// n times: the number, rounded to the nearest, ties to even.
///
/// |x − decoded| ≤ 2⁻¹¹ |x| for float16 where 2⁻¹⁴ ≤ |x| < 65520, and 2⁻²⁵ below; beyond, x becomes infinite.
/// |x − decoded| ≤ 2⁻⁸ |x| for bfloat16. Infinities and NaN stay what they are.
template <class T>
class HalfPrecision : public Codec<T> {
 public:
  using Half = kernels::Half;

  explicit HalfPrecision(Half half) : half_(half) {}
  Index bytes(Index n) const override { return 2 * n; }
  std::string spec() const override { return half_ == Half::float16 ? "fp16" : "bf16"; }

 private:
  void write(std::span<const T> values, std::uint8_t* out) override;
  void read(const std::uint8_t* data, std::span<T> values, Into into) override;

  Half half_;
};

}  // namespace pdnn::codec
