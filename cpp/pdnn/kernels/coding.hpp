#pragma once
/// Numbers as fewer bytes, and back: the arithmetic of codecs. Called by one worker. Bytes may lie at any address; the
/// numbers in them are little-endian. Where values become 16, 8 or 1 bits, doubles are rounded to floats first. Every
/// instruction set makes the same bytes of the same values, and the same values of the same bytes.
#include "pdnn/core/types.hpp"

namespace pdnn::kernels {

/// What is done with decoded values: x = v, x += v or x −= v.
enum class Into { store, add, subtract };

enum class Half { float16, bfloat16 };

/// Blocks of the codes below hold a multiple of so many values; the last block of an array may be shorter.
inline constexpr Index kCodingGroup = 16;

/// The digits of |x|: its bits without the sign. As whole numbers they are ordered like the magnitudes; NaN is largest.
template <class T>
inline constexpr int kMagnitudeDigits = 8 * static_cast<int>(sizeof(T)) - 1;

/// On n values.
template <class T>
struct CodingKernels {
  /// Two bytes a value, rounded to the nearest (ties to even). Too large ones become infinite; NaN stays NaN.
  void (*encode_half)(Half half, Index n, const T* x, std::uint8_t* bytes);
  void (*decode_half)(Half half, Index n, const std::uint8_t* bytes, Into into, T* x);

  /// Numbers q = round(x / scale) of 8 bits, −127 … 127, or of 4, −7 … 7, two a byte, the first in the lower half; and
  /// a float a block, its scale: the largest |x| / 127, or / 7, rounded up to 17 digits so that q · scale is exact. The
  /// scale is 0 below 2⁻¹²⁰ and NaN if a value of the block is not finite.
  void (*encode_integers)(int bits, Index block, Index n, const T* x, std::uint8_t* scales, std::uint8_t* numbers);
  void (*decode_integers)(int bits, Index block, Index n, const std::uint8_t* scales, const std::uint8_t* numbers,
                          Into into, T* x);

  /// A bit a value, its sign, in ⌈n / 8⌉ bytes, the lowest bit first; and two floats a block, its levels: the mean of
  /// the values without the sign and the mean of those with it (0 where there are none).
  void (*encode_signs)(Index block, Index n, const T* x, std::uint8_t* levels, std::uint8_t* signs);
  void (*decode_signs)(Index block, Index n, const std::uint8_t* levels, const std::uint8_t* signs, Into into, T* x);

  /// Of the values whose magnitude >> shift is `prefix`: counts[the next `width` digits] += 1.
  void (*count_magnitudes)(Index n, const T* x, std::uint64_t prefix, int shift, int width, Index* counts);
  /// Writes the index (32 bits) and the value of each x whose magnitude is over the threshold, and of the first `ties`
  /// whose magnitude is the threshold, in the order of indices.
  void (*pick_largest)(Index n, const T* x, std::uint64_t threshold, Index ties, std::uint8_t* indices,
                       std::uint8_t* values);

  /// sum += x; returns Σ sum².
  double (*add_and_square)(Index n, const T* x, T* sum);
  /// x = 0 where it is not finite; returns Σ x².
  double (*keep_finite)(Index n, T* x);
};

}  // namespace pdnn::kernels
