#pragma once
/// Clip: a whole gradient made smaller before an update, by its norm or element by element, as torch writes it.
#include <span>

#include "pdnn/core/memory.hpp"
#include "pdnn/threads/team.hpp"

namespace pdnn::optim {

template <class T>
class Clip {
 public:
  enum class By { norm, value };

  /// For gradients of `count` elements, to at most `most`. Throws ValueError unless most is above 0 and finite.
  Clip(By by, double most, Index count);
  Clip(const Clip& other) : by_(other.by_), most_(other.most_), sums_(other.sums_.size()) {}

  /// By norm: g *= most / (‖g‖₂ + 1e-6), unless that factor is 1 or more. By value: every element into [−most, most].
  /// Called by all members of a team at once, which meet in it; the size of the team changes no bit.
  void operator()(const threads::Member& member, std::span<T> g);

 private:
  By by_;
  double most_;
  Buffer<double> sums_;  // of squares, a chunk
};

}  // namespace pdnn::optim
