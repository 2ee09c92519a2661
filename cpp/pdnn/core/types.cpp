#include "pdnn/core/types.hpp"

#include "pdnn/core/errors.hpp"

namespace pdnn {

Shape::Shape(std::span<const Index> extents) : rank_(static_cast<int>(extents.size())) {
  require(rank_ <= kMaxRank, "Shape: a sample has at most ", kMaxRank, " axes, got ", rank_);
  std::copy(extents.begin(), extents.end(), extents_.begin());
  for (const Index extent : extents) require(extent >= 0, "Shape: negative extent ", extent);
}

std::string Shape::text() const {
  if (rank_ == 0) return "scalar";
  std::string words = std::to_string(extents_[0]);
  for (int axis = 1; axis < rank_; ++axis) words += "x" + std::to_string((*this)[axis]);
  return words;
}

}  // namespace pdnn
