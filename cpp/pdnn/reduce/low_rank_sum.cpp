#include "pdnn/reduce/low_rank_sum.hpp"

#include <algorithm>

#include "pdnn/kernels/table.hpp"

namespace pdnn::reduce {

template <class T>
LowRankSum<T>::LowRankSum(std::shared_ptr<comm::Communicator> comm, const Compression& how, Range slice,
                          std::unique_ptr<codec::PowerSgd<T>> codec)
    : CompressedSum<T>(std::move(comm), slice),
      codec_(std::move(codec)),
      remember_(how.feedback.value_or(true)),
      residual_(slice.size()) {}

template <class T>
Index LowRankSum<T>::bytes_sent() const {
  const Index ranks = this->comm().size();
  return 2 * (ranks - 1) * codec_->bytes(residual_.size()) / ranks;
}

template <class T>
void LowRankSum<T>::send(std::span<T> values) {
  Stopwatch watch;
  if (!remember_) std::fill_n(residual_.data(), residual_.size(), T{});
  this->stats_.given += kernels::table<T>().add_and_square(residual_.size(), values.data(), residual_.data());
  codec_->make_p(residual_.span());
  watch.lap(this->stats_.encode_seconds);
  this->stats_.bytes += bytes_sent();
  request_ = this->comm().start_all_reduce(comm::View(codec_->p_and_rest()));
}

template <class T>
void LowRankSum<T>::receive(std::span<T> values) {
  request_.wait();
  Stopwatch watch;
  codec_->make_q(residual_.span());
  codec_->leave_error(residual_.span());
  this->stats_.lost += kernels::table<T>().keep_finite(residual_.size(), residual_.data());
  watch.lap(this->stats_.encode_seconds);
  this->comm().all_reduce(comm::View(codec_->q()));
  watch = {};
  codec_->restore(values);
  watch.lap(this->stats_.decode_seconds);
}

template class LowRankSum<float>;
template class LowRankSum<double>;

}  // namespace pdnn::reduce
