#pragma once
/// Counts what is allocated, by operator new or for AlignedArrays.

namespace pdnn::tests {

/// By the calling thread, and by all threads, since the program began.
long own_allocations();
long all_allocations();

}  // namespace pdnn::tests
