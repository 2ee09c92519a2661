#include "pdnn/codec/half.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::codec {

template <class T>
void HalfPrecision<T>::write(std::span<const T> values, std::uint8_t* out) {
  kernels::table<T>().encode_half(half_, static_cast<Index>(values.size()), values.data(), out);
}

template <class T>
void HalfPrecision<T>::read(const std::uint8_t* data, std::span<T> values, Into into) {
  kernels::table<T>().decode_half(half_, static_cast<Index>(values.size()), data, into, values.data());
}

template class HalfPrecision<float>;
template class HalfPrecision<double>;

}  // namespace pdnn::codec
