#include "pdnn/threads/team.hpp"

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

Team::Team(int size)
    : size_(size),
      patience_(Patience::for_team(size)),
      meeting_(size, patience_),
      errors_(static_cast<std::size_t>(std::max(size, 0))) {
  require(size >= 1, "Team: size ", size, "; a team has at least one member");
  for (int index = 1; index < size; ++index) threads_.emplace_back([this, index] { serve(index); });
}

Team::~Team() {
  stopping_ = true;
  started_.fetch_add(1, std::memory_order_release);
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::serve(int index) {
  for (std::uint32_t seen = 0;;) {
    seen = wait_for_change(started_, seen, patience_);
    if (stopping_) return;
    work(index);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
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
  std::vector<int> others = allowed_cores();
  std::erase(others, core);
  if (threads_.size() > others.size()) return;  // oversubscribed: let the system find places
  const bool all = threads_.size() == others.size();
  for (std::size_t i = 0; i < threads_.size(); ++i)
    restrict_to(threads_[i], all ? std::span(others).subspan(i, 1) : std::span(others));
}

void Team::run_task() {
  if (size_ > 1) place_workers();
  busy_.store(static_cast<std::uint32_t>(size_ - 1), std::memory_order_relaxed);
  if (size_ > 1) {
    started_.fetch_add(1, std::memory_order_release);
    started_.notify_all();
  }
  work(0);
  for (std::uint32_t left; (left = busy_.load(std::memory_order_acquire)) != 0;)
    wait_for_change(busy_, left, patience_);
  for (const std::exception_ptr& error : errors_) {
    if (!error) continue;
    meeting_.reset();
    rethrow_first(errors_);
  }
}

}  // namespace pdnn::threads
