// The build for AVX2 and FMA.
#define PDNN_VECTOR_BYTES 32
#include "pdnn/kernels/impl/tables.hpp"

const pdnn::kernels::Tables* pdnn::kernels::tables_v3() { return &impl::kTables; }
