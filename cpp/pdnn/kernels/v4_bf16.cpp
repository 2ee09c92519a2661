// The products of bfloat16 numbers for AVX-512 with its instructions for them.
#define PDNN_VECTOR_BYTES 64
#include "pdnn/kernels/impl/product.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::kernels {

static constexpr ProductKernels<float> kProducts = impl::bfloat16_products<impl::Pairs>();
const ProductKernels<float>* bfloat16_v4_bf16() { return &kProducts; }

}  // namespace pdnn::kernels
