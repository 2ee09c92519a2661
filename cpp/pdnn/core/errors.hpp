#pragma once
/// The three kinds of failure: a mistake of the caller, a failure of the system, and a wait ended by another's error.
#include <sstream>
#include <stdexcept>
#include <string>

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

/// The words put together: message("Linear: input has ", 3, " features").
template <class... Words>
std::string message(const Words&... words) {
  std::ostringstream text;
  (text << ... << words);
  return text.str();
}

/// Throws ValueError with the words put together, unless the condition holds.
template <class... Words>
void require(bool condition, const Words&... words) {
  if (!condition) throw ValueError(message(words...));
}

}  // namespace pdnn
