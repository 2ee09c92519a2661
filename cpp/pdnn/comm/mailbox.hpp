#pragma once
/// Mailbox: messages between threads, kept as copies from send to recv, so that a send never waits.
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "pdnn/comm/view.hpp"

namespace pdnn::comm {

/// Which message: the `number`-th with this tag from one rank to another.
struct Address {
  int from = 0, to = 0, tag = 0;
  Index number = 0;
  bool operator==(const Address&) const = default;
};

class Mailbox {
 public:
  void put(const Address& address, ConstView data);
  /// Copies the message into `data` if it is there. ValueError if it has another length or type.
  bool take(const Address& address, View data);
  /// How many messages were put so far: nothing new to look for while it stays.
  Index count() const { return count_.load(std::memory_order_acquire); }

 private:
  struct Message {
    Address address;
    DType dtype = DType::uint8;
    Index count = 0;
    std::vector<std::byte> bytes;
  };
  using Messages = std::vector<std::unique_ptr<Message>>;

  std::mutex mutex_;
  Messages waiting_, spare_;
  std::atomic<Index> count_{0};
};

}  // namespace pdnn::comm
