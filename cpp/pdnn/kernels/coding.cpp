#include "pdnn/kernels/coding.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::kernels {

template <class T>
void encode_half(Half half, Index n, const T* x, std::uint8_t* bytes) {
  table<T>().encode_half(half, n, x, bytes);
}

template <class T>
void decode_half(Half half, Index n, const std::uint8_t* bytes, Into into, T* x) {
  table<T>().decode_half(half, n, bytes, into, x);
}

template <class T>
void encode_int8(Index block, Index n, const T* x, std::uint8_t* scales, std::uint8_t* numbers) {
  table<T>().encode_int8(block, n, x, scales, numbers);
}

template <class T>
void decode_int8(Index block, Index n, const std::uint8_t* scales, const std::uint8_t* numbers, Into into, T* x) {
  table<T>().decode_int8(block, n, scales, numbers, into, x);
}

template <class T>
void encode_signs(Index block, Index n, const T* x, std::uint8_t* levels, std::uint8_t* signs) {
  table<T>().encode_signs(block, n, x, levels, signs);
}

template <class T>
void decode_signs(Index block, Index n, const std::uint8_t* levels, const std::uint8_t* signs, Into into, T* x) {
  table<T>().decode_signs(block, n, levels, signs, into, x);
}

template <class T>
void count_magnitudes(Index n, const T* x, std::uint64_t prefix, int shift, int width, Index* counts) {
  table<T>().count_magnitudes(n, x, prefix, shift, width, counts);
}

template <class T>
void pick_largest(Index n, const T* x, std::uint64_t threshold, Index ties, std::uint8_t* indices,
                  std::uint8_t* values) {
  table<T>().pick_largest(n, x, threshold, ties, indices, values);
}

template <class T>
double add_and_square(Index n, const T* x, T* sum) {
  return table<T>().add_and_square(n, x, sum);
}

template <class T>
double keep_finite(Index n, T* x) {
  return table<T>().keep_finite(n, x);
}

#define PDNN_INSTANTIATE(T)                                                                           \
  template void encode_half<T>(Half, Index, const T*, std::uint8_t*);                                 \
  template void decode_half<T>(Half, Index, const std::uint8_t*, Into, T*);                           \
  template void encode_int8<T>(Index, Index, const T*, std::uint8_t*, std::uint8_t*);                 \
  template void decode_int8<T>(Index, Index, const std::uint8_t*, const std::uint8_t*, Into, T*);     \
  template void encode_signs<T>(Index, Index, const T*, std::uint8_t*, std::uint8_t*);                \
  template void decode_signs<T>(Index, Index, const std::uint8_t*, const std::uint8_t*, Into, T*);    \
  template void count_magnitudes<T>(Index, const T*, std::uint64_t, int, int, Index*);                \
  template void pick_largest<T>(Index, const T*, std::uint64_t, Index, std::uint8_t*, std::uint8_t*); \
  template double add_and_square<T>(Index, const T*, T*);                                             \
  template double keep_finite<T>(Index, T*);

PDNN_INSTANTIATE(float)
PDNN_INSTANTIATE(double)
#undef PDNN_INSTANTIATE

}  // namespace pdnn::kernels
