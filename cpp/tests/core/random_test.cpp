// The random numbers: Philox's published vectors, and what Rng promises on top of them.
#include "pdnn/core/random.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numeric>
#include <set>

namespace pdnn {
namespace {

constexpr std::uint64_t kMany = 100000;

BOOST_AUTO_TEST_SUITE(random_numbers)

// The known answers for philox4x32-10 that come with the authors' Random123 (kat_vectors).
BOOST_AUTO_TEST_CASE(philox_gives_the_published_vectors) {
  constexpr std::uint32_t ones = 0xffffffff;
  const auto equal = [](PhiloxBlock got, PhiloxBlock published) { BOOST_TEST((got == published)); };
  equal(philox4x32({0, 0, 0, 0}, {0, 0}), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  equal(philox4x32({ones, ones, ones, ones}, {ones, ones}), {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  equal(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

BOOST_AUTO_TEST_CASE(a_number_depends_on_key_and_index_alone) {
  const Rng rng(3);
  BOOST_TEST(rng.bits(5) == Rng(3).bits(5));
  BOOST_TEST(rng.bits(5) != rng.bits(6));
  BOOST_TEST(rng.bits(5) != Rng(4).bits(5));
  BOOST_TEST(rng.bits(5) != rng.bits(5 + (std::uint64_t{1} << 32)));  // the index's high half counts
}

BOOST_AUTO_TEST_CASE(children_differ_from_each_other_and_from_their_parent) {
  std::set<std::uint64_t> keys = {Rng(1).key()};
  for (std::uint64_t number = 0; number < 1000; ++number) {
    keys.insert(Rng(1).child(number).key());
    keys.insert(Rng(1).child(0).child(number).key());
  }
  BOOST_TEST(keys.size() == 2001);
  BOOST_TEST(Rng(1).child(9).key() == Rng(1).child(9).key());
}

BOOST_AUTO_TEST_CASE(uniform_and_normal_have_their_moments) {
  const Rng rng(7);
  double uniform = 0, uniform_squares = 0, normal = 0, normal_squares = 0;
  for (std::uint64_t i = 0; i < kMany; ++i) {
    const double u = rng.uniform(i), z = rng.normal(i);
    BOOST_REQUIRE((u >= 0 && u < 1));
    uniform += u, uniform_squares += u * u, normal += z, normal_squares += z * z;
  }
  const double error = 5 / std::sqrt(static_cast<double>(kMany));  // five standard deviations, or more
  BOOST_TEST(std::abs(uniform / kMany - 0.5) < error);
  BOOST_TEST(std::abs(uniform_squares / kMany - 1. / 3) < error);
  BOOST_TEST(std::abs(normal / kMany) < error);
  BOOST_TEST(std::abs(normal_squares / kMany - 1) < 2 * error);
}

BOOST_AUTO_TEST_CASE(below_reaches_every_number_equally_often) {
  std::vector<int> counts(7);
  for (std::uint64_t i = 0; i < kMany; ++i) ++counts.at(Rng(8).below(7, i));
  for (const int count : counts) BOOST_TEST(std::abs(count - static_cast<double>(kMany) / 7) < 600);
}

BOOST_AUTO_TEST_CASE(each_mask_bit_is_one_half_the_time) {
  std::array<int, 32> ones{};
  for (std::uint64_t i = 0; i < kMany; ++i)
    for (std::size_t bit = 0; bit < 32; ++bit) ones[bit] += Rng(9).bits32(i) >> bit & 1;
  for (const int count : ones) BOOST_TEST(std::abs(count - static_cast<double>(kMany) / 2) < 800);
}

BOOST_AUTO_TEST_CASE(shuffle_is_a_permutation_chosen_by_the_key) {
  const auto shuffled = [](std::uint64_t seed, std::size_t count) {
    std::vector<Index> order(count);
    std::iota(order.begin(), order.end(), 0);
    shuffle(Rng(seed), order);
    return order;
  };
  for (const std::size_t count : {0, 1, 2, 97}) {
    std::vector<Index> sorted = shuffled(1, count);
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < count; ++i) BOOST_TEST(sorted[i] == static_cast<Index>(i));
  }
  BOOST_TEST((shuffled(1, 97) == shuffled(1, 97)));
  BOOST_TEST((shuffled(1, 97) != shuffled(2, 97)));
  std::array<int, 3> first{};  // each of three things comes first equally often
  for (std::uint64_t seed = 0; seed < 3000; ++seed) ++first.at(static_cast<std::size_t>(shuffled(seed, 3)[0]));
  for (const int count : first) BOOST_TEST(std::abs(count - 1000) < 150);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn
