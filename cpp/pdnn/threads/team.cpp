#include "pdnn/threads/team.hpp"

#include <unistd.h>

#include "pdnn/core/errors.hpp"
#include "pdnn/threads/cores.hpp"

namespace pdnn::threads {

void rethrow_first(std::vector<std::exception_ptr>& errors) {
  std::exception_ptr real, aborted;
  for (std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const Aborted&) {
      if (!aborted) aborted = error;
    } catch (...) {
      if (!real) real = error;
    }
    error = nullptr;
  }
  if (real) std::rethrow_exception(real);
  if (aborted) std::rethrow_exception(aborted);
}

void throw_refused(const std::string& thread, Index count, const std::exception& reason) {
  throw std::runtime_error(message(thread, " of ", count, " could not be started: ", reason.what(),
                                   "; use fewer threads, or let this process have more threads and memory (ulimit -u, "
                                   "ulimit -v, a container's limit of pids)"));
}

Team::Team(int size)
    : size_(size),
      patience_(Patience::for_team(size)),
      meeting_(size, patience_),
      errors_(static_cast<std::size_t>(std::max(size, 0))) {
  require(size >= 1, "Team: size ", size, "; a team has at least one member");
  start();
}

Team::~Team() {
  if (process_ != getpid()) leave_threads_to_parent();
  stop();
}

void Team::start() {
  process_ = getpid();
  const std::uint32_t seen = started_.load();
  for (int index = 1; index < size_; ++index) try {
      threads_.emplace_back([this, index, seen] { serve(index, seen); });
    } catch (const std::exception& error) {
      stop();
      throw_refused(message("Team: thread ", index), size_ - 1, error);
    }
}

void Team::stop() {
  stopping_ = true;
  started_.add(1);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  stopping_ = false;
}

/// After a fork: what is known of them can be neither joined nor let go of, so it stays where it is.
void Team::leave_threads_to_parent() {
  static_cast<void>(new std::vector<std::thread>(std::move(threads_)));
  threads_.clear();
  meeting_.reset();
  callers_core_ = -1;
}

void Team::serve(int index, std::uint32_t seen) {
  const SubnormalsAsZero zero;
  for (;;) {
    seen = started_.wait(seen, patience_);
    if (stopping_) return;
    work(index);
    busy_.count_down();
  }
}

void Team::work(int index) {
  try {
    call_(task_, Member(index, size_, &meeting_));
  } catch (...) {
    errors_[static_cast<std::size_t>(index)] = std::current_exception();
    meeting_.abort();
  }
}

void Team::place_workers() {
  const int core = current_core();
  if (core == callers_core_) return;
  callers_core_ = core;
  const CoreSet others = allowed_cores_but(core);
  if (threads_.size() > others.count()) return;  // oversubscribed: let the system find places
  const bool all = threads_.size() == others.count();
  std::size_t own = 0;
  for (std::thread& thread : threads_) {
    while (all && !others[own]) ++own;
    restrict_to(thread, all ? CoreSet().set(own++) : others);
  }
}

void Team::run_task() {
  if (process_ != getpid()) leave_threads_to_parent();
  if (threads_.empty()) start();
  place_workers();
  busy_.store(static_cast<std::uint32_t>(size_ - 1));
  started_.add(1);
  work(0);
  for (std::uint32_t left = busy_.load(); left != 0;) left = busy_.wait(left, patience_);
  for (const std::exception_ptr& error : errors_) {
    if (!error) continue;
    meeting_.reset();
    rethrow_first(errors_);
  }
}

}  // namespace pdnn::threads
