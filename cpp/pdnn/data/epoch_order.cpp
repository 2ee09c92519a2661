#include "pdnn/data/epoch_order.hpp"

#include <numeric>

namespace pdnn::data {

namespace {

/// What a seed's children are for. Those of a model are its layers': one of the same seed draws its first layer's
/// weights from the numbers that the order of epoch 0 is made of, and so on.
enum Stream : std::uint64_t { kOrder, kSteps, kDraws, kAugmentation };

}  // namespace

std::vector<Index> epoch_order(std::uint64_t seed, std::uint64_t epoch, Index count) {
  std::vector<Index> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), Index{0});
  shuffle(Rng(seed).child(kOrder).child(epoch), order);
  return order;
}

std::vector<Index> draw_rows(std::uint64_t seed, std::uint64_t epoch, Index count, Index rows) {
  const Rng rng = Rng(seed).child(kDraws).child(epoch);
  std::vector<Index> drawn(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < drawn.size(); ++i)
    drawn[i] = static_cast<Index>(rng.below(static_cast<std::uint64_t>(rows), i));
  return drawn;
}

Rng step_keys(std::uint64_t seed) { return Rng(seed).child(kSteps); }

Rng augmentation_key(std::uint64_t seed, std::uint64_t epoch) { return Rng(seed).child(kAugmentation).child(epoch); }

}  // namespace pdnn::data
