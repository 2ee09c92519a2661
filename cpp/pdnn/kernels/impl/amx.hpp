#pragma once
/// The unit that multiplies tiles, AMX: eight registers of 16 rows of 64 bytes each. Intel's Software Developer's
/// Manual, volume 2, has the instructions; volume 1, chapter 18, how a thread comes to use them. Written out, because
/// the intrinsics of g++ 12 do not tell the compiler that a tile is loaded from memory, and want numbers of tiles that
/// no template computes.
///
/// The tests have the same interface in plain C++ (cpp/tests/kernels/emulated_tiles.cpp).
#include <cstdint>

#include "pdnn/kernels/impl/vector.hpp"

namespace pdnn::kernels::impl {
namespace {

inline constexpr Index kTileRows = 16;  // of a register, of 16 floats or pairs of bfloat16 numbers each

/// What LDTILECFG reads: the first palette, and all of each of its registers.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

struct Amx {
  static PDNN_INLINE void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  /// All registers become as if they had never been used: nothing of them is saved when threads take turns.
  static PDNN_INLINE void release() { asm volatile("tilerelease"); }
  template <int tile>
  static PDNN_INLINE void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  /// Rows of 64 bytes, `stride` floats apart.
  template <int tile>
  static PDNN_INLINE void load(const float* from, Index stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride * 4), "i"(tile) : "memory");
  }
  template <int tile>
  static PDNN_INLINE void store(float* to, Index stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride * 4), "i"(tile) : "memory");
  }
  /// sum[r, j] += Σ_k a[r, k] b[k, j] of pairs: the first numbers of all pairs are multiplied and added in order of k,
  /// from 0, the second ones likewise; the two sums are added, and the result is added to `sum`. Every one of these is
  /// rounded to the nearest; subnormal numbers are taken and given as 0.
  template <int sum, int a, int b>
  static PDNN_INLINE void multiply_add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
  }
};

}  // namespace
}  // namespace pdnn::kernels::impl
