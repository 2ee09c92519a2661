#include "pdnn/core/types.hpp"

#include "pdnn/core/errors.hpp"

namespace pdnn {

namespace {

std::string joined(std::span<const Index> extents) {
  std::string words;
  for (const Index extent : extents) words += (words.empty() ? "" : "x") + std::to_string(extent);
  return words;
}

}  // namespace

Index element_count(std::span<const Index> extents) {
  constexpr Index kMost = Index{1} << 56;
  if (std::ranges::find(extents, Index{0}) != extents.end()) return 0;
  Index count = 1;
  for (const Index extent : extents) {
    if (extent > kMost / count)
      throw ValueError(message("an array of ", joined(extents), " elements is larger than any memory"));
    count *= extent;
  }
  return count;
}

Shape::Shape(std::span<const Index> extents) : rank_(static_cast<int>(extents.size())) {
  require(rank_ <= kMaxRank, "Shape: a sample has at most ", kMaxRank, " axes, got ", rank_);
  std::copy(extents.begin(), extents.end(), extents_.begin());
  for (const Index extent : extents) require(extent >= 0, "Shape: negative extent ", extent);
  element_count(extents);
}

std::string Shape::text() const {
  return rank_ == 0 ? "scalar" : joined(std::span(extents_).first(static_cast<std::size_t>(rank_)));
}

}  // namespace pdnn
