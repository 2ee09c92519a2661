#pragma once
/// Team: the same code on every member, with a barrier between its phases.
#include <exception>
#include <thread>
#include <vector>

#include "pdnn/core/subnormals.hpp"
#include "pdnn/threads/barrier.hpp"

namespace pdnn::threads {

/// One member's view of its team. A default one is a team of one.
struct Member : Part {
  Member() = default;
  Member(int index_in_team, int team_size, Barrier* meeting) : Part{index_in_team, team_size}, meeting_(meeting) {}
  /// Meets all other members; throws Aborted if one of them failed.
  void barrier() const {
    if (meeting_) meeting_->wait();
  }

 private:
  Barrier* meeting_ = nullptr;
};

/// `size` threads of which the caller of run() is member 0. The others wait between calls: spinning first, asleep in
/// the end. They keep off the caller's core, where two spinning threads would wait for each other; a team of all cores
/// has one for each member. The caller's own affinity is left alone. A process forked from this one has none of its
/// threads: there a team starts them anew when it is next used.
class Team {
 public:
  /// Throws ValueError for a size below 1, and std::runtime_error if the system refuses a thread.
  explicit Team(int size);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }

  /// Calls task(member) on every member at once and returns when all are done. If one throws, the barrier releases the
  /// others and the first real error is rethrown here. Subnormal numbers are 0 there (SubnormalsAsZero). Allocates
  /// nothing. One call at a time.
  template <class Task>
  void run(Task&& task) {
    const SubnormalsAsZero zero;
    if (size_ == 1) return task(Member());
    task_ = const_cast<void*>(static_cast<const void*>(&task));
    call_ = [](void* erased, const Member& member) { (*static_cast<std::remove_reference_t<Task>*>(erased))(member); };
    run_task();
  }

 private:
  void run_task();
  void start();
  void stop();
  void leave_threads_to_parent();
  void place_workers();
  void work(int index);
  void serve(int index, std::uint32_t seen);

  int size_;
  int process_ = 0;  // in which the threads run
  Patience patience_;
  Barrier meeting_;  // the task's own
  Signal started_;   // tasks handed out so far
  alignas(kCacheLine) Signal busy_;
  bool stopping_ = false;
  int callers_core_ = -1;  // when the workers were placed
  void* task_ = nullptr;
  void (*call_)(void*, const Member&) = nullptr;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> threads_;
};

/// Throws a std::runtime_error: of `count` threads the system refused this one, for this reason; and what to do.
[[noreturn]] void throw_refused(const std::string& thread, Index count, const std::exception& reason);

/// Rethrows the first error that is not Aborted, or else the first; clears them all. Does nothing if there is none.
void rethrow_first(std::vector<std::exception_ptr>& errors);

}  // namespace pdnn::threads
