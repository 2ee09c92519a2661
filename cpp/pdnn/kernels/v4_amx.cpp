// The products of bfloat16 numbers for the unit that multiplies tiles.
#define PDNN_VECTOR_BYTES 64
#include "pdnn/kernels/impl/product.hpp"
#include "pdnn/kernels/impl/tiles.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::kernels {

static constexpr ProductKernels<float> kKernels = impl::product_kernels<impl::Tiles<impl::Amx>>();
const ProductKernels<float>* bfloat16_v4_amx() { return &kKernels; }

}  // namespace pdnn::kernels
