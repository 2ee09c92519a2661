#pragma once
/// SlotPool: numbered places for the calls under way, used again and again, at addresses that stay.
#include <deque>
#include <vector>

namespace pdnn::comm {

template <class T>
class SlotPool {
 public:
  /// The number of a place that is free; what it held last is still there.
  int take() {
    if (free_.empty()) {
      slots_.emplace_back();
      return static_cast<int>(slots_.size()) - 1;
    }
    const int number = free_.back();
    free_.pop_back();
    return number;
  }
  void give_back(int number) { free_.push_back(number); }
  T& operator[](int number) { return slots_[static_cast<std::size_t>(number)]; }

 private:
  std::deque<T> slots_;
  std::vector<int> free_;
};

}  // namespace pdnn::comm
