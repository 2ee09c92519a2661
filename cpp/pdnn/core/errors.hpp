#pragma once
/// The three kinds of failure: a mistake of the caller, a failure of the system, and a wait ended by another's error.
#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pdnn {

/// The caller's mistake: says where, what came, what was expected and what to do. ValueError in Python.
struct ValueError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// The world's fault: a rank that died, a wait that took too long. pdnn.CommunicationError in Python.
struct CommunicationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown from a wait that was released because another rank or thread failed; the first real error is the one to
/// report.
struct Aborted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace words {

// In no locale: they are paths and names, too. A floating-point number has the digits that tell it from all others.
void append(std::string& text, std::int64_t number);
void append(std::string& text, std::uint64_t number);
void append(std::string& text, float number);
void append(std::string& text, double number);
inline void append(std::string& text, std::string_view word) { text += word; }
inline void append(std::string& text, char letter) { text += letter; }
template <std::signed_integral Number>
void append(std::string& text, Number number) {
  append(text, std::int64_t{number});
}
template <std::unsigned_integral Number>
void append(std::string& text, Number number) {
  append(text, std::uint64_t{number});
}

}  // namespace words

/// The words put together: message("Linear: input has ", 3, " features").
template <class... Words>
std::string message(const Words&... all) {
  std::string text;
  (words::append(text, all), ...);
  return text;
}

/// Throws ValueError with the words put together, unless the condition holds.
template <class... Words>
void require(bool condition, const Words&... words) {
  if (!condition) throw ValueError(message(words...));
}

}  // namespace pdnn
