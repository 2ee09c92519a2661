#include "pdnn/nn/init.hpp"

namespace pdnn::nn {

template <class T>
void Init::fill(Rng rng, std::span<T> values) const {
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    const double unit = kind == Kind::uniform ? 2 * rng.uniform(i) - 1 : kind == Kind::normal ? rng.normal(i) : 1.0;
    values[i] = static_cast<T>(a * unit);
  }
}

template void Init::fill(Rng, std::span<float>) const;
template void Init::fill(Rng, std::span<double>) const;

}  // namespace pdnn::nn
