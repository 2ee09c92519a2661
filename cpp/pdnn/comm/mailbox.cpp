#include "pdnn/comm/mailbox.hpp"

#include <cstring>

#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

void Mailbox::put(const Address& address, ConstView data) {
  std::unique_ptr<Message> letter;
  {
    const std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      letter = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  if (!letter) letter = std::make_unique<Message>();
  letter->address = address;
  letter->dtype = data.dtype;
  letter->count = data.count;
  letter->bytes.resize(static_cast<std::size_t>(data.bytes()));
  if (data.bytes() > 0) std::memcpy(letter->bytes.data(), data.data, letter->bytes.size());
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(letter));
  count_.fetch_add(1, std::memory_order_release);
}

bool Mailbox::take(const Address& address, View data) {
  std::unique_ptr<Message> letter;
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& other) { return other->address == address; });
    if (found == waiting_.end()) return false;
    letter = std::move(*found);
    *found = std::move(waiting_.back());
    waiting_.pop_back();
  }
  const bool fits = letter->dtype == data.dtype && letter->count == data.count;
  require(fits, "recv: rank ", address.from, " sent ", letter->count, " ", name(letter->dtype), " with tag ",
          address.tag, ", rank ", address.to, " expects ", data.count, " ", name(data.dtype));
  if (data.bytes() > 0) std::memcpy(data.data, letter->bytes.data(), letter->bytes.size());
  const std::lock_guard lock(mutex_);
  spare_.push_back(std::move(letter));
  return true;
}

}  // namespace pdnn::comm
