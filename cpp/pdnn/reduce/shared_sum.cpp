#include "pdnn/reduce/shared_sum.hpp"

#include "pdnn/kernels/table.hpp"

namespace pdnn::reduce {

namespace {

constexpr int kTag = comm::kMaxTag;  // away from the messages that programs send

}  // namespace

template <class T>
SharedSum<T>::SharedSum(std::shared_ptr<comm::Communicator> comm, const Compression& how, Range slice)
    : CompressedSum<T>(std::move(comm), slice) {
  const int ranks = this->comm().size(), own = this->comm().rank();
  Index bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Index count = share_of(rank).size();
    encoders_.emplace_back(how, count);
    counts_.push_back(encoders_.back().bytes(count));
    offsets_.push_back(bytes);
    bytes += counts_.back();
  }
  out_ = AlignedArray<std::uint8_t>(bytes);
  in_ = AlignedArray<std::uint8_t>(ranks * counts_[static_cast<std::size_t>(own)]);
  all_ = AlignedArray<std::uint8_t>(bytes);
  sum_ = AlignedArray<T>(share_of(own).size());
  requests_.reserve(2 * static_cast<std::size_t>(ranks));
}

template <class T>
Index SharedSum<T>::bytes_sent() const {
  const Index own = counts_[static_cast<std::size_t>(this->comm().rank())];
  return out_.size() - own + own * (this->comm().size() - 1);
}

template <class T>
std::vector<std::span<T>> SharedSum<T>::memory() {
  std::vector<std::span<T>> all;
  for (Encoder<T>& encoder : encoders_) all.push_back(encoder.memory());
  return all;
}

/// Where the code of a rank's share lies among the codes of all shares.
template <class T>
std::span<std::uint8_t> SharedSum<T>::code_of(int rank, AlignedArray<std::uint8_t>& codes) {
  const auto at = static_cast<std::size_t>(rank);
  return slice(codes.span(), offsets_[at], counts_[at]);
}

template <class T>
void SharedSum<T>::send(std::span<T> values) {
  const int ranks = this->comm().size(), own = this->comm().rank();
  const Index bytes = counts_[static_cast<std::size_t>(own)];
  requests_.clear();
  for (int rank = 0; rank < ranks; ++rank)
    if (rank != own && bytes > 0)
      requests_.push_back(this->comm().start_recv(comm::View(slice(in_.span(), rank * bytes, bytes)), rank, kTag));
  for (int step = 1; step < ranks; ++step) {  // each rank to another one
    const int rank = (own + step) % ranks;
    const Range theirs = share_of(rank);
    if (theirs.size() == 0) continue;
    const std::span<std::uint8_t> code = code_of(rank, out_);
    encoders_[static_cast<std::size_t>(rank)].encode(slice(values, theirs.begin, theirs.size()), code, this->stats_);
    this->sent(static_cast<Index>(code.size()), 1);
    requests_.push_back(this->comm().start_send(comm::ConstView(code), rank, kTag));
  }
}

template <class T>
bool SharedSum<T>::arrived() {
  bool all = true;
  for (comm::Request& request : requests_) all = (!request.pending() || request.test()) && all;
  return all;
}

template <class T>
void SharedSum<T>::receive(std::span<T> values) {
  const int ranks = this->comm().size(), own = this->comm().rank();
  for (comm::Request& request : requests_) request.wait();
  const Range mine = share_of(own);
  const Index bytes = counts_[static_cast<std::size_t>(own)];
  Encoder<T>& encoder = encoders_[static_cast<std::size_t>(own)];
  std::fill_n(sum_.data(), sum_.size(), T{});
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == own)
      kernels::table<T>().add(Part{}, sum_.size(), sum_.data(), values.data() + mine.begin, sum_.data());
    else
      encoder.decode(slice(in_.span(), rank * bytes, bytes), sum_.span(), codec::Into::add, this->stats_);
  }
  const std::span<std::uint8_t> code = code_of(own, out_);
  encoder.encode(sum_.span(), code, this->stats_);
  this->sent(bytes, ranks - 1);
  this->comm().all_gather(comm::ConstView(code), comm::View(all_.span()), counts_);
  for (int rank = 0; rank < ranks; ++rank) {
    const Range theirs = share_of(rank);
    encoders_[static_cast<std::size_t>(rank)].decode(code_of(rank, all_), slice(values, theirs.begin, theirs.size()),
                                                     codec::Into::store, this->stats_);
  }
}

template class SharedSum<float>;
template class SharedSum<double>;

}  // namespace pdnn::reduce
