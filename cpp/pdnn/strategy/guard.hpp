#pragma once
/// Guard: what undoing steps needs, so that one whose loss or gradient is not finite leaves nothing behind.
#include <cstdint>
#include <limits>
#include <vector>

#include "pdnn/core/finite.hpp"
#include "pdnn/core/memory.hpp"

namespace pdnn::strategy {

/// What becomes of a step with a NaN or an infinity in its loss or gradient: its update is made or left out, or it is
/// undone and ends the epoch.
enum class OnNonfinite { ignore, skip, stop };

/// Such a step, and the first element of the model's flat parameters that it would have spoiled.
struct Nonfinite {
  static constexpr Index kLoss = -1, kUnknown = INT64_MAX;  ///< the loss itself; what a codec has hidden since

  std::int64_t step = INT64_MAX;  ///< none
  Index element = kUnknown;
  int rank = -1;  ///< whose own step it was; -1: the ranks made it together

  bool found() const { return step != INT64_MAX; }
};

/// Updates are made inside backward passes, before all of a gradient is known. So steps are made in windows: what they
/// change is copied when a window begins, and looked through for NaN and infinity when it ends. If there is one, the
/// copy is put back and the steps are made again, each as a window of its own, until the one that is to blame is found
/// and undone alone. A step is a function of its number, so those before it come out as they did.
template <class T>
class Guard {
 public:
  using Arrays = std::vector<std::span<T>>;

  /// From now on windows of so many steps, as an epoch begins; 0: there is no guard.
  void restart(Index length) {
    length_ = length;
    begin_ = end_ = careful_ = 0;
  }
  explicit operator bool() const { return length_ > 0; }

  /// Whether a window begins with this step of the epoch, or ends with it.
  bool begins(Index step) const { return length_ > 0 && step >= end_; }
  bool ends(Index step) const { return length_ > 0 && step + 1 == end_; }
  /// Steps from this one on until the window ends.
  Index left(Index step) const { return length_ > 0 ? end_ - step : std::numeric_limits<Index>::max(); }
  bool alone(Index step) const { return step == begin_; }
  /// Begins a window with this step, which will change these arrays.
  void begin(Index step, const Arrays& arrays);
  /// Ends the window before this step.
  void end(Index step) { end_ = step; }
  /// Puts back what the arrays held when the window began; step `bad` and those before it are now windows each.
  void undo(Index bad, const Arrays& arrays);

 private:
  Index length_ = 0, begin_ = 0, end_ = 0, careful_ = 0;
  std::vector<AlignedArray<T>> copies_;  // whose memory the next epoch uses again
};

/// The length of a window for which copying and looking, for a rule with so many arrays of state, cost about 1 % of
/// steps of so many rows. A function of its arguments, so that ranks agree on it without a message.
Index window_length(std::size_t states, Index rows);

}  // namespace pdnn::strategy
