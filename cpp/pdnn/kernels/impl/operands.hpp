#pragma once
/// What the factors of a matrix product are while it multiplies, and the copies that make them so.
///
/// `Plain`: numbers as they lie. `Rounded`: rounded to bfloat16, the nearest, ties to even, and held as floats.
/// `Pairs`: two bfloat16 numbers that follow each other along the depth, in the place of one float. All are summed in
/// the type of the output. A *group* is what one place along the depth holds: a number, or a pair; a 0 completes the
/// last pair. `Tiles` (impl/tiles.hpp) are pairs of which a tile multiplies 16 places at once, completed by zeros;
/// `Blocks` (impl/blocks.hpp) those of which an instruction multiplies 2.
#include "pdnn/kernels/impl/pack.hpp"

namespace pdnn::kernels::impl {
namespace {

template <class T>
struct Plain {
  using Value = T;
  using InTile = Plain;  // whose tiles multiply them
  static constexpr Index kGroup = 1;
  static constexpr Index kStep = 1;                       // places that are multiplied at once
  static constexpr Index kRows = 1;                       // of a tile, or a multiple of it
  static constexpr Index kBeside = 1;                     // rows of a that lie by turns in its copy
  static constexpr bool kCopied = false;                  // read in place where that is as fast
  static constexpr int kWidest = kManyRegisters ? 4 : 2;  // a tile, in vectors
  static constexpr int kHighest = 0;                      // a tile, in rows: as its width allows
  static constexpr bool kHalves = kVectorBytes == 64;     // a tile's last vector may be the lower half of one
  struct InUse {};                                        // while it lives, this thread may multiply them
  static PDNN_INLINE Vector<T> spread(const T* group) { return broadcast(*group); }
  static PDNN_INLINE Vector<T> multiply_add(Vector<T> a, Vector<T> b, Vector<T> sum) { return fma<T>(a, b, sum); }
  static PDNN_INLINE Vector<T> factor(Vector<T> x) { return x; }  // of numbers as they lie

  /// to[k, j] = from[k, j] for j < cols, 0 for cols ≤ j < width.
  template <Index width>
  static void copy(const T* from, Index stride, Index depth, Index cols, T* to) {
    copy_block<width>(from, stride, depth, cols, to);
  }
  /// to[r, k] = from[r, k]; rows of `to` lie `to_stride` apart.
  static void copy_along(const T* from, Index stride, Index rows, Index depth, T* to, Index to_stride) {
    for (; rows > 0; --rows, from += stride, to += to_stride)
      for (Index k = 0; k < depth; k += kLanes<T>) store(to + k, load(from + k, depth - k), depth - k);
  }
  /// to[k, j] = from[j, k] for j < cols, 0 for cols ≤ j < width. Writes rows up to the next multiple of kLanes.
  template <Index width>
  static void copy_transposed(const T* from, Index stride, Index depth, Index cols, T* to) {
    transpose_block<width>(from, stride, depth, cols, to);
  }
};

/// How many places so many numbers take.
template <class Operands>
PDNN_INLINE Index places_of(Index depth) {
  return ceil_div(depth, Operands::kGroup * Operands::kStep) * Operands::kStep;
}

/// from_bfloat16(bfloat16_bits(x)) in fewer instructions. The difference of 2¹⁶ x and x is rounded to multiples of what
/// x is to be rounded to, and ties as x is to be, as 2¹⁶ x is even then (Veltkamp's splitting, with another factor).
/// Infinities and NaN stay; numbers that are subnormal or above 2¹⁰⁴ keep more bits, and -0 becomes 0.
PDNN_INLINE Vector<float> round_to_bfloat16(Vector<float> x) {
#ifdef __AVX512DQ__
  const Vector<float> factor = _mm512_range_ps(x, broadcast(0x1p104f), 2);  // the least magnitude, with the sign of x
#else
  const Vector<float> bound = broadcast(0x1p104f);
  const Vector<float> factor = at_least<float>(at_most<float>(x, bound), -bound);  // its product with 2¹⁶ is finite
#endif
  return fms<float>(factor, 0x1p16f, fms<float>(factor, 0x1p16f, x));
}

struct Rounded : Plain<float> {
  static constexpr bool kCopied = true;
  static PDNN_INLINE Vector<float> factor(Vector<float> x) { return round_to_bfloat16(x); }

  /// to[k, j] = from[k, j], rounded, for j < cols, 0 for cols ≤ j < width.
  template <Index width>
  static void copy(const float* from, Index stride, Index depth, Index cols, float* to) {
    copy_block<width>(from, stride, depth, cols, to, round_to_bfloat16);
  }
  /// The same of any number of columns; rows of `to` lie `to_stride` apart.
  static void copy_rows(const float* from, Index stride, Index depth, Index cols, float* to, Index to_stride) {
    copy_along(from, stride, depth, cols, to, to_stride);
  }
  /// to[r, k] = from[r, k], rounded; rows of `to` lie `to_stride` apart.
  static void copy_along(const float* from, Index stride, Index rows, Index depth, float* to, Index to_stride) {
    for (; rows > 0; --rows, from += stride, to += to_stride)
      for (Index k = 0; k < depth; k += kLanes<float>)
        store(to + k, round_to_bfloat16(load(from + k, depth - k)), depth - k);
  }
  /// to[k, j] = from[j, k], rounded, for j < cols, 0 for cols ≤ j < width. Writes rows up to the next multiple of
  /// kLanes.
  template <Index width>
  static void copy_transposed(const float* from, Index stride, Index depth, Index cols, float* to) {
    transpose_block<width>(from, stride, depth, cols, to, round_to_bfloat16);
  }
};

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
struct Pairs : Plain<float> {
  using InTile = Pairs;
  static constexpr Index kGroup = 2;
  static constexpr bool kCopied = true;
  static constexpr bool kHalves = false;  // g++ 12 breaks down over them
#ifdef PDNN_NEON
  static PDNN_INLINE Vector<float> spread(const float* group) { return vld1q_dup_f32(group); }
  static PDNN_INLINE Vector<float> multiply_add(Vector<float> a, Vector<float> b, Vector<float> sum) {
    return vbfdotq_f32(sum, reinterpret_cast<bfloat16x8_t>(a), reinterpret_cast<bfloat16x8_t>(b));
  }
  /// Rounds a and b; they lie one after the other.
  static PDNN_INLINE Vector<float> joined(Vector<float> a, Vector<float> b) {
    return reinterpret_cast<Vector<float>>(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(a), b));
  }
#else
  static PDNN_INLINE Vector<float> spread(const float* group) {
    std::int32_t pair;
    __builtin_memcpy(&pair, group, sizeof pair);
    return reinterpret_cast<Vector<float>>(_mm512_set1_epi32(pair));
  }
  static PDNN_INLINE Vector<float> multiply_add(Vector<float> a, Vector<float> b, Vector<float> sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  /// Rounds a and b; they lie one after the other.
  static PDNN_INLINE Vector<float> joined(Vector<float> a, Vector<float> b) {
    return reinterpret_cast<Vector<float>>(_mm512_cvtne2ps_pbh(b, a));
  }
#endif
  /// The elements of two such vectors by turns.
  static PDNN_INLINE Vector<float> by_turns(Vector<float> both) {
#ifdef PDNN_NEON
    const uint16x8_t halves = reinterpret_cast<uint16x8_t>(both);
    return reinterpret_cast<Vector<float>>(vzip1q_u16(halves, vextq_u16(halves, halves, 4)));
#else
    const __m512i lanes = pair_lanes(std::make_integer_sequence<int, 16>{});
    return reinterpret_cast<Vector<float>>(_mm512_permutexvar_epi16(lanes, reinterpret_cast<__m512i>(both)));
#endif
  }
  /// The pairs of the elements of two rows, of which there may be one only, and so many columns.
  static PDNN_INLINE Vector<float> pairs_of_rows(const float* from, Index stride, Index rows, Index cols) {
    const Vector<float> second = rows > 1 ? load(from + stride, cols) : Vector<float>{};
    return by_turns(joined(load(from, cols), second));
  }

  /// to[k / 2, j] = the pair of from[k, j] and from[k + 1, j] for j < cols, 0 for cols ≤ j < width.
  template <Index width>
  static void copy(const float* from, Index stride, Index depth, Index cols, float* to) {
    for (; depth > 0; depth -= 2, from += 2 * stride, to += width)
      PDNN_UNROLL for (Index j = 0; j < width; j += kLanes<float>)
          store(to + j, pairs_of_rows(from + j, stride, depth, cols - j));
  }
  /// The same of any number of columns; rows of `to` lie `to_stride` apart.
  static void copy_rows(const float* from, Index stride, Index depth, Index cols, float* to, Index to_stride) {
    for (; depth > 0; depth -= 2, from += 2 * stride, to += to_stride)
      for (Index j = 0; j < cols; j += kLanes<float>)
        store(to + j, pairs_of_rows(from + j, stride, depth, cols - j), cols - j);
  }
  /// to[r, k / 2] = the pair of from[r, k] and from[r, k + 1]; rows of `to` lie `to_stride` apart.
  static void copy_along(const float* from, Index stride, Index rows, Index depth, float* to, Index to_stride) {
    constexpr Index n = kLanes<float>;
    for (; rows > 0; --rows, from += stride, to += to_stride)
      for (Index k = 0; k < depth; k += 2 * n)
        store(to + k / 2, joined(load(from + k, depth - k), load(from + k + n, depth - k - n)), ceil_div(depth - k, 2));
  }
  /// Rows of so few numbers that several fit in a vector, one after another; an odd number, which a 0 completes.
  template <Index width>
  static void copy_places(const float* from, Index rows, float* to) {
    constexpr Index n = kLanes<float>, together = n / (width + 1), next = together * width;
    for (; rows > 0; rows -= 2 * together, from += 2 * next, to += n) {
      const Vector<float> first = load(from, rows * width), second = load(from + next, rows * width - next);
      store(to, joined(completed<width>(first), completed<width>(second)), rows * (width + 1) / 2);
    }
  }
  /// to[k / 2, j] = the pair of from[j, k] and from[j, k + 1] for j < cols, 0 for cols ≤ j < width. Writes rows up to
  /// the next multiple of kLanes.
  template <Index width>
  static void copy_transposed(const float* from, Index stride, Index depth, Index cols, float* to) {
    constexpr Index n = kLanes<float>;
    for (Index k = 0; k < depth; k += 2 * n) {
      for (Index j = 0; j < width; j += n) {
        Vector<float> square[n];
        PDNN_UNROLL for (Index i = 0; i < n; ++i) {
          const float* const row = from + (j + i) * stride + k;
          square[i] = j + i < cols ? joined(load(row, depth - k), load(row + n, depth - k - n)) : Vector<float>{};
        }
        transpose<float>(square);
        PDNN_UNROLL for (Index i = 0; i < n; ++i) store(to + (k / 2 + i) * width + j, square[i]);
      }
    }
  }

 private:
  /// Rows of `width` numbers, a 0 behind each.
  template <Index width, int... lane>
  static PDNN_INLINE Vector<float> completed(Vector<float> x, std::integer_sequence<int, lane...>) {
    constexpr int whole = width + 1, zero = kLanes<float>;
    return __builtin_shufflevector(
        x, Vector<float>{}, (lane % whole < width ? lane / whole * static_cast<int>(width) + lane % whole : zero)...);
  }
  template <Index width>
  static PDNN_INLINE Vector<float> completed(Vector<float> x) {
    return completed<width>(x, std::make_integer_sequence<int, kLanes<float>>{});
  }
#ifndef PDNN_NEON
  template <int... pair>
  static PDNN_INLINE __m512i pair_lanes(std::integer_sequence<int, pair...>) {
    return reinterpret_cast<__m512i>(VectorOf<std::int32_t>::Type{pair + ((16 + pair) << 16)...});
  }
#endif
};
#endif

}  // namespace
}  // namespace pdnn::kernels::impl
