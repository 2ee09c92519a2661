#include "pdnn/codec/integers.hpp"

#include "pdnn/core/errors.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::codec {

template <class T>
Integers<T>::Integers(int bits, Index block) : bits_(bits), block_(block) {
  check_block(message("Int", bits), block);
}

template <class T>
std::string Integers<T>::spec() const {
  const std::string name = message("int", bits_);
  return block_ == kBlock ? name : message(name, ":", block_);
}

template <class T>
void Integers<T>::write(std::span<const T> values, std::uint8_t* out) {
  const Index n = static_cast<Index>(values.size());
  kernels::table<T>().encode_integers(bits_, block_, n, values.data(), out, out + blocks(n) * Index{sizeof(float)});
}

template <class T>
void Integers<T>::read(const std::uint8_t* data, std::span<T> values, Into into) {
  const Index n = static_cast<Index>(values.size());
  kernels::table<T>().decode_integers(bits_, block_, n, data, data + blocks(n) * Index{sizeof(float)}, into,
                                      values.data());
}

template class Integers<float>;
template class Integers<double>;

}  // namespace pdnn::codec
