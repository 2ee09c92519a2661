#pragma once
/// The products of tiles on a unit in plain C++, for machines without one.
#include "pdnn/kernels/products.hpp"

namespace pdnn::kernels::testing {

/// What the unit did since it began to count.
struct TileCounts {
  Index loads, stores, products;
  bool in_use;  // now: by this thread
};

struct EmulatedTiles {
  const ProductKernels<float>& products;
  TileCounts (*counts)();  // of this thread; begins anew
};

/// For processors with AVX512_BF16 only.
EmulatedTiles emulated_tiles();

}  // namespace pdnn::kernels::testing
