#include "pdnn/engine/transport.hpp"

#include "pdnn/codec/make_codec.hpp"
#include "pdnn/core/errors.hpp"

namespace pdnn::engine {

template <class T>
Transport<T>::Transport(std::shared_ptr<comm::Communicator> comm, const codec::Spec& codec) : comm_(std::move(comm)) {
  if (codec.empty()) return;
  require(!codec::wants_matrices(codec), "Pipeline: codec \"", codec.words,
          "\" makes factors that are added up over ranks, and activations are not added up; ", "\"int8\" fits");
  codec_ = codec::make_codec<T>(codec, 0);
}

template <class T>
MessageBuffer<T> Transport<T>::parcel(Index most) const {
  MessageBuffer<T> made;
  if (codec_) made.code = AlignedArray<std::uint8_t>(codec_->bytes(most));
  return made;
}

template <class T>
std::span<std::uint8_t> Transport<T>::code_of(MessageBuffer<T>& parcel, std::size_t values) const {
  return parcel.code.span().first(static_cast<std::size_t>(codec_->bytes(static_cast<Index>(values))));
}

template <class T>
void Transport<T>::send(MessageBuffer<T>& parcel, std::span<T> values, int dest, int tag) {
  comm::ConstView message(values);
  if (codec_) {
    data::Stopwatch watch;
    const std::span<std::uint8_t> code = code_of(parcel, values.size());
    codec_->encode(values, code);
    message = code;
    watch.lap(stats_.encode_seconds);
  }
  stats_.bytes += message.bytes();
  stats_.bytes_uncompressed += static_cast<Index>(values.size_bytes());
  parcel.request = comm_->start_send(message, dest, tag);
}

template <class T>
void Transport<T>::expect(MessageBuffer<T>& parcel, std::span<T> values, int source, int tag) {
  parcel.values = values;
  parcel.request =
      codec_ ? comm_->start_recv(code_of(parcel, values.size()), source, tag) : comm_->start_recv(values, source, tag);
}

template <class T>
void Transport<T>::receive(MessageBuffer<T>& parcel, const char* call) {
  parcel.request.wait(call);
  const std::span<T> values = std::exchange(parcel.values, {});
  if (!codec_ || values.empty()) return;
  data::Stopwatch watch;
  codec_->decode(code_of(parcel, values.size()), values);
  watch.lap(stats_.decode_seconds);
}

template class Transport<float>;
template class Transport<double>;

}  // namespace pdnn::engine
