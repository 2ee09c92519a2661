// The unit that multiplies tiles in plain C++ (Intel's Software Developer's Manual, volume 2: LDTILECFG, TILEZERO,
// TILELOADD, TILESTORED, TDPBF16PS, TILERELEASE), and the products on it. An instruction before LDTILECFG ends the
// process, as it does on the true unit.
#define PDNN_VECTOR_BYTES 64
#include "emulated_tiles.hpp"

#include "pdnn/kernels/impl/product.hpp"
#include "pdnn/kernels/impl/tiles.hpp"

namespace pdnn::kernels::impl {
namespace {

/// The state of a thread.
struct TileState {
  bool in_use = false;
  Vector<float> rows[8][kTileRows] = {};  // of each register
  Index loads = 0, stores = 0, products = 0;
};
thread_local TileState state;

TileState& state_in_use() {
  if (!state.in_use) __builtin_trap();  // an undefined instruction
  return state;
}

/// The mode of TDPBF16PS, which neither reads nor writes MXCSR: to nearest even, subnormal numbers are 0, no exception.
constexpr unsigned kNearestAndFlushed = 0x9fc0;

/// Out of line: no arithmetic moves to where other modes hold.
__attribute__((noinline)) void multiply_tiles(TileState& tiles, int sum, int a, int b) {
  constexpr int odd = static_cast<int>(0xffff0000);
  for (Index m = 0; m < kTileRows; ++m) {
    Vector<float> first{}, second{};
    for (Index k = 0; k < kTileRows; ++k) {
      const Integers<float> row = bits_of<float>(tiles.rows[a][m]), other = bits_of<float>(tiles.rows[b][k]);
      const Integers<float> pair = row[k] - Integers<float>{};
      first = fma<float>(from_bfloat16(pair), from_bfloat16(other), first);
      second = fma<float>(from_bits<float>(pair & odd), from_bits<float>(other & odd), second);
    }
    tiles.rows[sum][m] += first + second;
  }
}

struct Emulated {
  static void configure(const TileConfig& config) {
    const TileConfig whole;
    if (state.in_use || __builtin_memcmp(&config, &whole, sizeof whole) != 0) __builtin_trap();
    const TileState fresh;
    __builtin_memcpy(state.rows, fresh.rows, sizeof state.rows);
    state.in_use = true;
  }
  static void release() { state.in_use = false; }
  template <int tile>
  static void zero() {
    for (Vector<float>& row : state_in_use().rows[tile]) row = Vector<float>{};
  }
  template <int tile>
  static void load(const float* from, Index stride) {
    for (Index r = 0; r < kTileRows; ++r) state_in_use().rows[tile][r] = impl::load(from + r * stride);
    ++state.loads;
  }
  template <int tile>
  static void store(float* to, Index stride) {
    for (Index r = 0; r < kTileRows; ++r) impl::store(to + r * stride, state_in_use().rows[tile][r]);
    ++state.stores;
  }
  template <int sum, int a, int b>
  static void multiply_add() {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(kNearestAndFlushed);
    multiply_tiles(state_in_use(), sum, a, b);
    _mm_setcsr(before);
    ++state.products;
  }
};

constexpr ProductKernels<float> kKernels = product_kernels<Tiles<Emulated>>();

}  // namespace
}  // namespace pdnn::kernels::impl

namespace pdnn::kernels::testing {

EmulatedTiles emulated_tiles() {
  return {impl::kKernels, [] {
            impl::TileState& now = impl::state;
            const TileCounts counts{now.loads, now.stores, now.products, now.in_use};
            now.loads = now.stores = now.products = 0;
            return counts;
          }};
}

}  // namespace pdnn::kernels::testing
