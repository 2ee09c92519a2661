#pragma once
/// SharedMemory: bytes that ranks of one machine see at once. Threads share an allocation, processes a mapped segment
/// that has no name, so nothing is left behind however they end.
#include <memory>

#include "pdnn/comm/communicator.hpp"

namespace pdnn::comm {

class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Zero at first, and on a cache line.
  std::byte* data() const { return data_; }
  Index bytes() const { return bytes_; }

 protected:
  SharedMemory(std::byte* data, Index bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_;
  Index bytes_;
};

/// Collective: memory that all ranks of the group see, each at an address of its own; it lasts as long as one of them
/// holds it. Null, on every rank, if one of them cannot see it: ranks of several machines or containers.
std::shared_ptr<SharedMemory> share(Communicator& comm, Index bytes);

/// Collective: the group of this rank's machine, in the order of ranks.
std::shared_ptr<Communicator> ranks_of_machine(Communicator& comm);

}  // namespace pdnn::comm
