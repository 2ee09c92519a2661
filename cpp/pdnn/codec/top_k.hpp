#pragma once
/// TopK: the few largest values as they are, with their places; the others are 0.
#include "pdnn/codec/codec.hpp"

namespace pdnn::codec {

/// k = ⌈fraction · n⌉ places (uint32, rising), then their k values (T). Of equal magnitudes the first are taken; NaN
/// counts as the largest of all. A. F. Aji, K. Heafield, "Sparse communication for distributed gradient descent", EMNLP
/// 2017; with what is left out remembered: S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with memory",
/// NeurIPS 2018.
///
/// ‖x − decoded‖² ≤ (1 − k/n) ‖x‖². At most 2³² values.
template <class T>
class TopK : public Codec<T> {
 public:
  explicit TopK(double fraction);  ///< over 0, at most 1
  Index bytes(Index n) const override { return kept(n) * Index{sizeof(std::uint32_t) + sizeof(T)}; }
  std::string spec() const override;
  Index kept(Index n) const;

 private:
  void write(std::span<const T> values, std::uint8_t* out) override;
  void read(const std::uint8_t* data, std::span<T> values, Into into) override;

  double fraction_;
};

}  // namespace pdnn::codec
