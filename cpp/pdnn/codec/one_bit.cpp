#include "pdnn/codec/one_bit.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::codec {

template <class T>
OneBit<T>::OneBit(Index block) : block_(block) {
  check_block("OneBit", block);
}

template <class T>
std::string OneBit<T>::spec() const {
  return block_ == kBlock ? "1bit" : "1bit:" + std::to_string(block_);
}

template <class T>
void OneBit<T>::write(std::span<const T> values, std::uint8_t* out) {
  const Index n = static_cast<Index>(values.size());
  kernels::table<T>().encode_signs(block_, n, values.data(), out, out + levels_bytes(n));
}

template <class T>
void OneBit<T>::read(const std::uint8_t* data, std::span<T> values, Into into) {
  const Index n = static_cast<Index>(values.size());
  kernels::table<T>().decode_signs(block_, n, data, data + levels_bytes(n), into, values.data());
}

template class OneBit<float>;
template class OneBit<double>;

}  // namespace pdnn::codec
