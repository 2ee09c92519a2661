#include "pdnn/codec/int8.hpp"

#include "pdnn/core/errors.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::codec {

template <class T>
Int8<T>::Int8(Index block) : block_(block) {
  require(block > 0 && block % kernels::kCodingGroup == 0, "Int8: block = ", block, "; expected a multiple of ",
          kernels::kCodingGroup);
}

template <class T>
std::string Int8<T>::spec() const {
  return block_ == kBlock ? "int8" : "int8:" + std::to_string(block_);
}

template <class T>
void Int8<T>::write(std::span<const T> values, std::uint8_t* out) {
  const Index n = static_cast<Index>(values.size());
  kernels::table<T>().encode_int8(block_, n, values.data(), out, out + blocks(n) * Index{sizeof(float)});
}

template <class T>
void Int8<T>::read(const std::uint8_t* data, std::span<T> values, Into into) {
  const Index n = static_cast<Index>(values.size());
  kernels::table<T>().decode_int8(block_, n, data, data + blocks(n) * Index{sizeof(float)}, into, values.data());
}

template class Int8<float>;
template class Int8<double>;

}  // namespace pdnn::codec
