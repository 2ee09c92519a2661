#pragma once
/// ErrorFeedback: what a codec lost is added to the next values.
#include <memory>

#include "pdnn/codec/codec.hpp"
#include "pdnn/core/memory.hpp"

namespace pdnn::codec {

/// Encodes g + e by another codec and remembers e ← g + e − decoded, from e = 0; so after any number of steps
///
///     Σ decoded = Σ g − e.
///
/// With any codec that loses at most (1 − δ) of ‖x‖², ‖e‖² stays below 4 (1 − δ) / δ² · max ‖g‖², and descent has the
/// rate of SGD without a codec: S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi, "Error feedback fixes SignSGD and
/// other gradient compression schemes", ICML 2019, lemma 3 and theorem II. Elements of e that are not finite become 0:
/// they have been sent, and must not come back in every later step.
template <class T>
class ErrorFeedback : public Codec<T> {
 public:
  /// For `count` values at a time. If not `remember`, e is forgotten before it is used: errors are measured only.
  ErrorFeedback(std::unique_ptr<Codec<T>> codec, Index count, bool remember = true);
  Index bytes(Index n) const override;
  std::string spec() const override { return codec_->spec(); }

  std::span<T> residual() { return residual_.span(); }
  /// Σ e² after the last encoding, and Σ (g + e)² before it.
  double lost() const { return lost_; }
  double given() const { return given_; }
  Codec<T>& inner() { return *codec_; }

 private:
  void write(std::span<const T> values, std::uint8_t* out) override;
  void read(const std::uint8_t* data, std::span<T> values, Into into) override;

  std::unique_ptr<Codec<T>> codec_;
  AlignedArray<T> residual_;
  bool remember_;
  double lost_ = 0, given_ = 0;
};

}  // namespace pdnn::codec
