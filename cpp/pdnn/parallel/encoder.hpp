#pragma once
/// Encoder: a codec for so many values, with its errors fed back, measured, or neither; times and errors go into books.
#include "pdnn/parallel/compressed_sum.hpp"

namespace pdnn::parallel {

template <class T>
class Encoder {
 public:
  Encoder(const Compression& how, Index count) : codec_(codec::make_codec<T>(how.codec, count)) {
    const bool feedback = how.feedback.value_or(codec::wants_feedback(how.codec));
    if (!feedback && !how.measure) return;
    auto fed_back = std::make_unique<codec::ErrorFeedback<T>>(std::move(codec_), count, feedback);
    fed_back_ = fed_back.get();
    codec_ = std::move(fed_back);
  }
  Index bytes(Index count) const { return codec_->bytes(count); }

  void encode(std::span<const T> values, std::span<std::uint8_t> out, Books& books) {
    Stopwatch watch;
    codec_->encode(values, out);
    watch.lap(books.encode_seconds);
    if (!fed_back_) return;
    books.lost += fed_back_->lost();
    books.given += fed_back_->given();
  }
  void decode(std::span<const std::uint8_t> data, std::span<T> values, codec::Into into, Books& books) {
    Stopwatch watch;
    codec_->decode(data, values, into);
    watch.lap(books.decode_seconds);
  }

 private:
  std::unique_ptr<codec::Codec<T>> codec_;
  codec::ErrorFeedback<T>* fed_back_ = nullptr;  // codec_, if it is one
};

}  // namespace pdnn::parallel
