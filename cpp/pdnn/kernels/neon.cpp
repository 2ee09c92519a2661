// The build for arm64, all of whose processors have 32 registers of 128 bits and FMA.
#define PDNN_VECTOR_BYTES 16
#define PDNN_NEON
#include "pdnn/kernels/impl/tables.hpp"

const pdnn::kernels::Tables* pdnn::kernels::tables_neon() { return &impl::kTables; }
