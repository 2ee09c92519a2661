#pragma once
/// Transport: activations and their gradients on their way between stages, as they are or as a codec writes them.
#include <memory>
#include <string>
#include <utility>

#include "pdnn/codec/spec.hpp"
#include "pdnn/comm/communicator.hpp"
#include "pdnn/core/memory.hpp"
#include "pdnn/data/metrics.hpp"

namespace pdnn::engine {

using data::CompressionStats;

/// A message that is sent or received again and again. While one is under way its values, and the memory of its code,
/// belong to it.
template <class T>
struct MessageBuffer {
  AlignedArray<std::uint8_t> code;  ///< of the most values; empty without a codec
  std::span<T> values{};            ///< where those that are expected go
  comm::Request request;            ///< behind its memory: it lets go of that first
};

/// A message of n values is n · sizeof(T) bytes, or as many as the codec makes of n. What a codec loses is not sent
/// later: the rows of the next message are others. Nothing allocates once its parcels are made.
template <class T>
class Transport {
 public:
  /// `codec`: its spec, or "" for the values themselves. ValueError if it is none, or "powersgd": its factors are made
  /// to be added up over ranks.
  Transport(std::shared_ptr<comm::Communicator> comm, const codec::Spec& codec);

  /// With room for so many values.
  MessageBuffer<T> parcel(Index most) const;

  /// Encodes and sends; never waits. Values that are sent as they are must stay until the request is done.
  void send(MessageBuffer<T>& parcel, std::span<T> values, int dest, int tag);
  /// Starts to receive: the memory is free.
  void expect(MessageBuffer<T>& parcel, std::span<T> values, int source, int tag);
  /// Waits until the expected values are there, and decodes them; `call` is its name in the message of a wait that
  /// lasts too long. Returns at once if nothing is expected.
  void receive(MessageBuffer<T>& parcel, const char* call);

  /// What has been sent since the last call.
  CompressionStats take_stats() { return std::exchange(stats_, {}); }

 private:
  std::span<std::uint8_t> code_of(MessageBuffer<T>& parcel, std::size_t values) const;

  std::shared_ptr<comm::Communicator> comm_;
  std::unique_ptr<codec::Codec<T>> codec_;
  CompressionStats stats_;
};

}  // namespace pdnn::engine
