// The products and convolutions of bfloat16 numbers for AVX-512 with its instructions for them.
#define PDNN_VECTOR_BYTES 64
#include "pdnn/kernels/impl/bfloat16.hpp"
#include "pdnn/kernels/impl/stack_pairs.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::kernels {

static constexpr RoundedKernels<float> kKernels = impl::bfloat16_kernels<impl::Pairs>(
    {impl::stack_forward<float, impl::StackOfPairs>, impl::stack_backward<float, impl::StackOfPairs>});
const RoundedKernels<float>* bfloat16_v4_bf16() { return &kKernels; }

}  // namespace pdnn::kernels
