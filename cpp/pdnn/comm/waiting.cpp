#include "pdnn/comm/waiting.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <thread>

#include "pdnn/core/errors.hpp"
#include "pdnn/threads/cores.hpp"

namespace pdnn::comm {

namespace {

constexpr auto kYielding = std::chrono::milliseconds(10);
constexpr std::chrono::nanoseconds kLongestNap = std::chrono::milliseconds(1);
std::atomic<void (*)()> interrupt_hook{nullptr};

double seconds_from_environment(const char* name, double otherwise, const char* zero) {
  const char* text = std::getenv(name);
  if (!text || *text == '\0') return otherwise;
  double seconds = -1;
  std::string_view number(text);
  number.remove_prefix(std::min(number.find_first_not_of(" \t"), number.size()));
  if (number.starts_with('+') && !number.starts_with("+-")) number.remove_prefix(1);
  const char *const first = number.data(), *const last = first + number.size();
  const auto [end, error] = std::from_chars(first, last, seconds);  // in no locale
  require(error == std::errc() && end == last && seconds >= 0, name, ": \"", text, "\" is not a number of seconds; 0 ",
          zero);
  return seconds > 0 ? seconds : std::numeric_limits<double>::infinity();
}

}  // namespace

double timeout_from_environment() { return seconds_from_environment("PDNN_TIMEOUT", 300, "waits forever"); }

double stall_warning_from_environment() { return seconds_from_environment("PDNN_STALL_WARNING", 60, "never warns"); }

void set_interrupt_hook(void (*hook)()) { interrupt_hook.store(hook); }

bool Interrupts::look(Clock::time_point now) {
  if (now < next_) return false;
  next_ = now + kEvery;
  if (auto* hook = interrupt_hook.load()) hook();
  return true;
}

bool Waiting::pause() {
  if (++looks_ < kEagerLooks) return false;
  now_ = Clock::now();
  if (now_ - start_ >= kYielding || !threads::yield_core())
    std::this_thread::sleep_for(
        std::clamp<std::chrono::nanoseconds>((now_ - start_) / 1000, threads::kNap, kLongestNap));
  return interrupts_.look(now_);
}

}  // namespace pdnn::comm
