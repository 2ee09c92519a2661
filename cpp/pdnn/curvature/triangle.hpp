#pragma once
/// Triangle: the lower triangle of a symmetric matrix, in panels of rows.
#include "pdnn/core/types.hpp"

namespace pdnn::curvature {

/// Panel p has rows [48 p, 48 p + 48) as far as the diagonal block's end, row-major; panels lie one after another.
class Triangle {
 public:
  explicit Triangle(Index size) : size_(size) {}

  Index panels() const { return (size_ + kRows - 1) / kRows; }
  Range rows(Index panel) const { return {panel * kRows, std::min(size_, (panel + 1) * kRows)}; }
  Index offset(Index panel) const { return kRows * kRows * panel * (panel + 1) / 2; }
  Index elements() const {
    if (size_ == 0) return 0;
    const Range last = rows(panels() - 1);
    return offset(panels() - 1) + last.size() * last.end;
  }
  /// Which of so many workers has a panel: there and back again, so that all have as much.
  static Index worker(Index panel, Index workers) {
    const Index turn = panel % (2 * workers);
    return turn < workers ? turn : 2 * workers - 1 - turn;
  }

  /// The triangle, and this diagonal added to it, in the lower half of a square matrix.
  void unpack(const double* panels, const double* diagonal, double* square) const;

 private:
  static constexpr Index kRows = 48;
  Index size_;
};

inline void Triangle::unpack(const double* triangle, const double* diagonal, double* square) const {
  for (Index p = 0; p < panels(); ++p) {
    const Range mine = rows(p);
    const double* from = triangle + offset(p);
    for (Index r = mine.begin; r < mine.end; ++r, from += mine.end) {
      std::copy_n(from, r + 1, square + r * size_);
      square[r * size_ + r] += diagonal[r];
    }
  }
}

}  // namespace pdnn::curvature
