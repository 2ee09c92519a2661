// Gradients of leaves are added up by the tree, slice by slice or at once, in as little room as it takes.
#include "pdnn/engine/leaf_gradients.hpp"

#include <boost/test/unit_test.hpp>

#include "pdnn/core/random.hpp"

using namespace pdnn;
using namespace pdnn::engine;

namespace {

constexpr Index kElements = 5;

AlignedArray<double> gradient_of(Index leaf) {
  AlignedArray<double> all(kElements);
  for (Index i = 0; i < kElements; ++i)
    all[i] = Rng(1).child(static_cast<std::uint64_t>(leaf)).uniform(static_cast<std::uint64_t>(i)) - 0.3;
  return all;
}

/// Node by node, as the tree is defined.
double sum_of(Range leaves, Index element) {
  if (leaves.size() == 1) return gradient_of(leaves.begin)[element];
  const auto half = static_cast<Index>(std::bit_floor(static_cast<std::size_t>(leaves.size() - 1)));
  return sum_of({leaves.begin, leaves.begin + half}, element) + sum_of({leaves.begin + half, leaves.end}, element);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(leaf_gradients)

BOOST_AUTO_TEST_CASE(they_are_added_up_by_the_tree) {
  const Member alone;
  for (Index leaves = 1; leaves <= 17; ++leaves) {
    LeafGradients<double> taken(kElements, leaves), stored(kElements, leaves);
    AlignedArray<double> sum(kElements), slices(kElements);
    for (Index leaf = 0; leaf < leaves; ++leaf) {
      AlignedArray<double> gradient = gradient_of(leaf);
      std::copy_n(gradient.data(), kElements, stored.of(leaf, slices.data()));
      for (const Range& slice : {Range{3, 5}, Range{0, 3}}) stored.join(alone, leaf, leaves, slice, slices.data());
      taken.take(leaf, gradient, sum.data());
      taken.join(alone, leaf, leaves, {0, kElements}, sum.data());
    }
    for (Index i = 0; i < kElements; ++i) {
      BOOST_TEST(sum[i] == sum_of({0, leaves}, i));
      BOOST_TEST(slices[i] == sum[i]);
    }
  }
}

BOOST_AUTO_TEST_CASE(losses_are_added_up_by_the_same_tree) {
  for (Index leaves = 1; leaves <= 17; ++leaves) {
    std::vector<nn::LossValue> losses;
    for (Index leaf = 0; leaf < leaves; ++leaf) losses.push_back({gradient_of(leaf)[0], 1});
    BOOST_TEST(sum_of_leaves(losses).value == sum_of({0, leaves}, 0));
    BOOST_TEST(sum_of_leaves(losses).correct == static_cast<double>(leaves));
  }
}

BOOST_AUTO_TEST_SUITE_END()
