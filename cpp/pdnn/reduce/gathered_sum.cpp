#include "pdnn/reduce/gathered_sum.hpp"

namespace pdnn::reduce {

template <class T>
GatheredSum<T>::GatheredSum(std::shared_ptr<comm::Communicator> comm, const Compression& how, Range slice)
    : CompressedSum<T>(std::move(comm), slice),
      encoder_(how, slice.size()),
      mine_(encoder_.bytes(slice.size())),
      all_(mine_.size() * this->comm().size()) {}

template <class T>
void GatheredSum<T>::send(std::span<T> values) {
  encoder_.encode(values, mine_.span(), this->stats_);
  this->sent(mine_.size(), this->comm().size() - 1);
  request_ = this->comm().start_all_gather(comm::ConstView(mine_.span()), comm::View(all_.span()));
}

template <class T>
void GatheredSum<T>::receive(std::span<T> values) {
  request_.wait();
  for (int rank = 0; rank < this->comm().size(); ++rank)
    encoder_.decode(slice(all_.span(), rank * mine_.size(), mine_.size()), values,
                    rank == 0 ? codec::Into::store : codec::Into::add, this->stats_);
}

template class GatheredSum<float>;
template class GatheredSum<double>;

}  // namespace pdnn::reduce
