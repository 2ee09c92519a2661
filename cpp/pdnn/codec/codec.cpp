#include "pdnn/codec/codec.hpp"

#include "pdnn/core/errors.hpp"

namespace pdnn::codec {

template <class T>
void Codec<T>::encode(std::span<const T> values, std::span<std::uint8_t> out) {
  check("encode", out.size(), values.size());
  write(values, out.data());
}

template <class T>
void Codec<T>::decode(std::span<const std::uint8_t> data, std::span<T> values, Into into) {
  check("decode", data.size(), values.size());
  read(data.data(), values, into);
}

template <class T>
void Codec<T>::check(const char* call, std::size_t got, std::size_t values) const {
  const Index expected = bytes(static_cast<Index>(values));
  require(static_cast<Index>(got) == expected, call, ": got ", got, " bytes for ", values, " values; as \"", spec(),
          "\" they are ", expected);
}

void check_block(const std::string& codec, Index block) {
  constexpr Index kMost = Index{1} << 32;
  require(block > 0 && block <= kMost && block % kernels::kCodingGroup == 0, codec, ": block = ", block,
          "; expected a multiple of ", kernels::kCodingGroup, " above 0", block > kMost ? ", at most 2^32" : "");
}

template class Codec<float>;
template class Codec<double>;

}  // namespace pdnn::codec
