#include "pdnn/codec/error_feedback.hpp"

#include <algorithm>

#include "pdnn/core/errors.hpp"
#include "pdnn/kernels/table.hpp"

namespace pdnn::codec {

template <class T>
ErrorFeedback<T>::ErrorFeedback(std::unique_ptr<Codec<T>> codec, Index count, bool remember)
    : codec_(std::move(codec)), residual_(count), remember_(remember) {}

template <class T>
Index ErrorFeedback<T>::bytes(Index n) const {
  require(n == residual_.size(), "ErrorFeedback: got ", n, " values, it remembers the error of ", residual_.size(),
          "; keep one for each array");
  return codec_->bytes(n);
}

template <class T>
void ErrorFeedback<T>::write(std::span<const T> values, std::uint8_t* out) {
  const Index n = residual_.size();
  const std::span<std::uint8_t> data(out, static_cast<std::size_t>(codec_->bytes(n)));
  if (!remember_) std::fill_n(residual_.data(), n, T{});
  given_ = kernels::table<T>().add_and_square(n, values.data(), residual_.data());
  codec_->encode(residual_.span(), data);
  codec_->decode(data, residual_.span(), Into::subtract);
  lost_ = kernels::table<T>().keep_finite(n, residual_.data());
}

template <class T>
void ErrorFeedback<T>::read(const std::uint8_t* data, std::span<T> values, Into into) {
  codec_->decode({data, static_cast<std::size_t>(codec_->bytes(residual_.size()))}, values, into);
}

template class ErrorFeedback<float>;
template class ErrorFeedback<double>;

}  // namespace pdnn::codec
