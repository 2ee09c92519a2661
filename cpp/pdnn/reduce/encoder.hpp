#pragma once
/// Encoder: a codec for so many values, with its errors fed back, measured, or neither; times and errors are counted.
#include "pdnn/reduce/compressed_sum.hpp"

namespace pdnn::reduce {

template <class T>
class Encoder {
 public:
  Encoder(const Compression& how, Index count)
      : feedback_(how.feedback.value_or(codec::wants_feedback(how.codec))),
        measure_every_(how.measure_every),
        codec_(codec::make_codec<T>(how.codec, count)) {
    if (!feedback_ && measure_every_ == 0) return;
    auto fed_back = std::make_unique<codec::ErrorFeedback<T>>(std::move(codec_), count, feedback_);
    fed_back_ = fed_back.get();
    codec_ = std::move(fed_back);
  }
  Index bytes(Index count) const { return codec_->bytes(count); }
  /// What was lost and will be fed back; empty if nothing will.
  std::span<T> memory() { return feedback_ ? fed_back_->residual() : std::span<T>(); }

  /// The next encoding is measured, if any are.
  void measure() { encoded_ = 0; }

  void encode(std::span<const T> values, std::span<std::uint8_t> out, CompressionStats& stats) {
    Stopwatch watch;
    const bool looks = feedback_ || (fed_back_ && encoded_++ % measure_every_ == 0);
    (looks || !fed_back_ ? *codec_ : fed_back_->inner()).encode(values, out);
    watch.lap(stats.encode_seconds);
    if (!looks) return;
    stats.lost += fed_back_->lost();
    stats.given += fed_back_->given();
  }
  void decode(std::span<const std::uint8_t> data, std::span<T> values, codec::Into into, CompressionStats& stats) {
    Stopwatch watch;
    codec_->decode(data, values, into);
    watch.lap(stats.decode_seconds);
  }

 private:
  bool feedback_;
  Index measure_every_, encoded_ = 0;
  std::unique_ptr<codec::Codec<T>> codec_;
  codec::ErrorFeedback<T>* fed_back_ = nullptr;  // codec_, if it is one
};

}  // namespace pdnn::reduce
