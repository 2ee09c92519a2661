#pragma once
/// Clip: a whole gradient made smaller before an update, by its norm or element by element, as torch writes it.
#include <functional>
#include <span>
#include <vector>

#include "pdnn/core/memory.hpp"
#include "pdnn/threads/team.hpp"

namespace pdnn::optim {

template <class T>
class Clip {
 public:
  enum class By { norm, value };
  /// A range of the gradient, and which of the whole gradient's blocks its squares begin.
  struct Counted {
    Range range;
    Index block;
  };
  /// What a rank has of a gradient that several hold together: what it counts of it, so that each element of the whole
  /// is counted by one rank, and what adds up the ranks' squares of all blocks.
  struct Share {
    std::vector<Counted> counted;
    Index blocks;
    std::function<void(std::span<const double> own, std::span<double> all)> add_up;
  };

  /// For gradients of `count` elements, to at most `most`. Throws ValueError unless most is above 0 and finite.
  Clip(By by, double most, Index count);
  /// The same clipping of a gradient of which each rank has its share; all of them call it at once.
  Clip(const Clip& whole, Share share) : Clip(whole.by_, whole.most_, std::move(share)) {}
  Clip(const Clip& other) : Clip(other, other.share_) {}

  /// By norm: g *= most / (‖g‖₂ + 1e-6), unless that factor is 1 or more. Squares are summed by blocks of
  /// kernels::kSquareSumChunk elements, and blocks by the tree of core/leaves.hpp, whoever has them. By value: every
  /// element into [−most, most]. Called by all members of a team at once, which meet in it; the size of the team
  /// changes no bit.
  void operator()(const threads::Member& member, std::span<T> g);

 private:
  Clip(By by, double most, Share share);
  double squares(const threads::Member& member, std::span<const T> g);

  By by_;
  double most_;
  Share share_;
  AlignedArray<double> own_, all_;  // squares of each block: 0 where others count; of all ranks
};

}  // namespace pdnn::optim
