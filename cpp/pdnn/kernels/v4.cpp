// The build for AVX-512.
#define PDNN_VECTOR_BYTES 64
#include "pdnn/kernels/impl/tables.hpp"

const pdnn::kernels::Tables* pdnn::kernels::tables_v4() { return &impl::kTables; }
