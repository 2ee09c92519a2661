#pragma once
/// Mutex: one that a forked process does not wait for, if a thread of its parent has it.
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace pdnn::threads {

/// How often this process was forked from another one, that one from another, and so on, since pdnn was loaded.
int forks();

/// The threads of a process that forks are not in its child, where what one of them held, nobody would ever let go of;
/// there it is free. What it guards must bear being left in the middle.
class Mutex {
 public:
  /// Whether a thread of a parent had it.
  bool lock() {
    const int own = forks() + 1;
    int holder = 0;
    while (!holder_.compare_exchange_weak(holder, own, std::memory_order_acquire)) {
      if (holder != own) continue;  // free, or a parent's
      holder_.wait(own, std::memory_order_relaxed);
      holder = 0;
    }
    return holder != 0;
  }
  void unlock() {
    holder_.store(0, std::memory_order_release);
    holder_.notify_one();
  }

 private:
  std::atomic<int> holder_{0};  // 0, or forks() + 1 of the process whose thread has it
};

/// Locks the mutex of a list. One that a thread of a parent may have been changing is left as it is: here it is empty.
template <class T>
std::unique_lock<Mutex> lock_list(Mutex& mutex, std::vector<T>& list) {
  union Left {  // destroys nothing
    std::vector<T> list;
    explicit Left(std::vector<T>&& given) : list(std::move(given)) {}
    ~Left() {}
  };
  if (mutex.lock()) const Left left(std::exchange(list, {}));
  return {mutex, std::adopt_lock};
}

}  // namespace pdnn::threads
