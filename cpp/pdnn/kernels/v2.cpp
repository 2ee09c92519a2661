// The generic build: 128-bit vectors, which every 64-bit processor has.
#define PDNN_VECTOR_BYTES 16
#include "pdnn/kernels/impl/tables.hpp"

const pdnn::kernels::Tables* pdnn::kernels::tables_v2() { return &impl::kTables; }
