// Embedding: its rows, what it refuses, its gradient by leaves, on teams of any size and beside the turn after it.
#include "pdnn/nn/layers/embedding.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>

#include "layer_check.hpp"
#include "pdnn/nn/network.hpp"

using namespace pdnn;
using namespace pdnn::nn;

BOOST_AUTO_TEST_SUITE(nn_embedding)

namespace {

constexpr Index kCount = 7, kWidth = 5, kPlaces = 3, kRows = 11;

std::shared_ptr<const Network<double>> network() {
  return Network<double>({std::make_shared<Embedding<double>>(kCount, kWidth, Init{})}).bound({kPlaces});
}

/// Indices that meet, as numbers.
tests::Vector indices() {
  tests::Vector x(kRows * kPlaces);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * i % 5 + i % 2);
  return x;
}

struct Run {
  tests::Vector y = tests::Vector(kRows * kPlaces * kWidth), grads = tests::Vector(kCount * kWidth);

  Run(const tests::Vector& params, const tests::Vector& x, const tests::Vector& dy, int size, const LeafNodes* leaves) {
    const auto layer = network();
    AlignedArray<double> room(leaves ? layer->sizes({kPlaces}).leaf_room(leaves->leaves().count) : 0);
    threads::Team(size).run([&](const Member& member) {
      const Pass pass{.team = &member, .leaves = leaves};
      Vars<double> vars;
      vars.params = params;
      vars.leaf_room = room.span();
      const Tensor<const double> in{x.data(), kRows, {kPlaces}};
      layer->forward(pass, vars, in, {y.data(), kRows, {kPlaces, kWidth}});
      member.barrier();
      layer->backward(pass, vars, in, {y.data(), kRows, {kPlaces, kWidth}}, {dy.data(), kRows, {kPlaces, kWidth}},
                      {nullptr, kRows, {kPlaces}}, grads);
    });
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(rows_are_taken_and_gradients_added_to_them_with_the_same_bits_for_any_team) {
  const tests::Vector params = tests::draw(Rng(1), kCount * kWidth), x = indices();
  const tests::Vector dy = tests::draw(Rng(2), kRows * kPlaces * kWidth);
  tests::Vector y(dy.size()), grads(params.size());
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const auto at = static_cast<std::size_t>(x[i / kWidth]) * kWidth + i % kWidth;
    y[i] = params[at];
    grads[at] += dy[i];
  }
  const LeafNodes leaves(Leaves{.count = 4, .batch = kRows, .run = {0, 4}});
  const Run by_leaves(params, x, dy, 1, &leaves);
  BOOST_TEST(tests::relative_difference(by_leaves.grads, grads) <= 1e-15);
  for (const int size : {1, 2, 3, 8}) {
    const Run plain(params, x, dy, size, nullptr), cut(params, x, dy, size, &leaves);
    BOOST_TEST(plain.y == y, boost::test_tools::per_element());
    BOOST_TEST(plain.grads == grads, boost::test_tools::per_element());
    BOOST_TEST(cut.y == y, boost::test_tools::per_element());
    BOOST_TEST(cut.grads == by_leaves.grads, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(what_is_no_index_is_refused_with_its_place) {
  const tests::Vector params(kCount * kWidth), dy(kRows * kPlaces * kWidth);
  for (const double bad : {-1.0, 7.0, 2.5, std::nan(""), -std::numeric_limits<double>::infinity()}) {
    tests::Vector x = indices();
    x[5 * kPlaces + 1] = bad;
    BOOST_CHECK_EXCEPTION(Run(params, x, dy, 2, nullptr), ValueError, [](const ValueError& error) {
      return std::string(error.what()).find("x[5, 1] of the batch is ") != std::string::npos;
    });
  }
  BOOST_CHECK_THROW(network()->output_shape({2, 2}), ValueError);
  BOOST_CHECK_THROW(Embedding<double>(0, 3, Init{}), ValueError);
  BOOST_CHECK_THROW(Embedding<float>((1 << 24) + 1, 1, Init{}), ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
