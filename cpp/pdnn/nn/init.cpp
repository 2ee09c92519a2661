#include "pdnn/nn/init.hpp"

namespace pdnn::nn {

template <class T>
void Init::fill(Rng rng, std::span<T> values, Index first) const {
  auto i = static_cast<std::uint64_t>(first);
  for (T& value : values) {
    const double unit = kind == Kind::uniform ? 2 * rng.uniform(i) - 1 : kind == Kind::normal ? rng.normal(i) : 1.0;
    value = static_cast<T>(a * unit);
    ++i;
  }
}

template void Init::fill(Rng, std::span<float>, Index) const;
template void Init::fill(Rng, std::span<double>, Index) const;

}  // namespace pdnn::nn
