// The products and convolutions of bfloat16 numbers for arm64 with its instructions for them.
#define PDNN_VECTOR_BYTES 16
#define PDNN_NEON
#include "pdnn/kernels/impl/bfloat16.hpp"
#include "pdnn/kernels/impl/blocks.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::kernels {

static constexpr RoundedKernels<float> kKernels = impl::bfloat16_kernels<impl::Blocks, impl::Pairs>({});
const RoundedKernels<float>* bfloat16_neon_bf16() { return &kKernels; }

}  // namespace pdnn::kernels
