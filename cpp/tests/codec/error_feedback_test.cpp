// Error feedback: what was decoded follows what was given, which it does not without; and nothing is allocated.
#include "pdnn/codec/error_feedback.hpp"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "allocations.hpp"
#include "pdnn/codec/make_codec.hpp"
#include "pdnn/core/errors.hpp"
#include "pdnn/core/random.hpp"

using namespace pdnn;
using namespace pdnn::codec;

BOOST_AUTO_TEST_SUITE(error_feedback)

namespace {

constexpr Index kCount = 2051;
constexpr int kSteps = 100;
const std::vector<MatrixAt> kMatrices{{3, 40, 50}};

/// Gradients of a direction that stays, small in most elements, and of noise.
std::vector<double> gradient(int step) {
  std::vector<double> g(kCount);
  for (std::size_t i = 0; i < g.size(); ++i)
    g[i] = 0.1 * Rng(1).normal(i) + Rng(2).child(static_cast<std::uint64_t>(step)).normal(i);
  return g;
}

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// ‖Σ decoded − Σ g‖ / ‖Σ g‖ after many steps.
double drift(Codec<double>& codec) {
  std::vector<double> given(kCount), sent(kCount), difference(kCount);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(codec.bytes(kCount)));
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<double> g = gradient(step);
    codec.encode(g, bytes);
    codec.decode(bytes, sent, Into::add);
    for (std::size_t i = 0; i < g.size(); ++i) given[i] += g[i];
  }
  for (std::size_t i = 0; i < given.size(); ++i) difference[i] = sent[i] - given[i];
  return norm(difference) / norm(given);
}

ErrorFeedback<double> fed_back(const std::string& spec, bool remember = true) {
  return {make_codec<double>(spec, kCount, kMatrices), kCount, remember};
}

}  // namespace

BOOST_DATA_TEST_CASE(what_is_decoded_is_what_was_given_less_the_residual,
                     boost::unit_test::data::make({"fp16", "bf16", "int8", "int4", "1bit", "topk:0.05", "powersgd:2"}),
                     spec) {
  ErrorFeedback<double> codec = fed_back(spec);
  std::vector<double> sum(kCount);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(codec.bytes(kCount)));
  for (int step = 0; step < 20; ++step) {
    std::vector<double> before(codec.residual().begin(), codec.residual().end()), g = gradient(step), decoded(kCount);
    codec.encode(g, bytes);
    codec.decode(bytes, decoded);
    double given = 0, lost = 0;
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double x = g[i] + before[i], left = codec.residual()[i];
      BOOST_REQUIRE_SMALL(x - decoded[i] - left, 1e-12);
      given += x * x;
      lost += left * left;
    }
    BOOST_TEST(codec.given() == given, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(codec.lost() == lost, boost::test_tools::tolerance(1e-12));
  }
}

BOOST_DATA_TEST_CASE(sums_follow_with_feedback_and_not_without,
                     boost::unit_test::data::make({"1bit", "topk:0.05", "powersgd:1"}), spec) {
  ErrorFeedback<double> with = fed_back(spec), without = fed_back(spec, false);
  const double follows = drift(with), strays = drift(without);
  BOOST_TEST(follows < 0.4 * strays, spec << ": " << follows << " with, " << strays << " without");
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_is_sent_once) {
  for (const char* spec : {"fp16", "int8:16", "int4:16", "1bit:16", "topk:0.1", "powersgd:1"}) {
    ErrorFeedback<double> codec(make_codec<double>(spec, 32, {{0, 4, 8}}), 32);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(codec.bytes(32)));
    std::vector<double> g(32, 1.0), decoded(32);
    g[5] = std::numeric_limits<double>::quiet_NaN();
    codec.encode(g, bytes);
    codec.decode(bytes, decoded);
    BOOST_TEST(std::isnan(decoded[5]), spec);
    g[5] = 1;
    codec.encode(g, bytes);
    codec.decode(bytes, decoded);
    for (const double value : decoded) BOOST_TEST(std::isfinite(value), spec);
  }
}

BOOST_AUTO_TEST_CASE(one_is_for_one_array) {
  ErrorFeedback<double> codec = fed_back("int8");
  BOOST_CHECK_THROW(codec.bytes(kCount - 1), ValueError);
}

BOOST_AUTO_TEST_CASE(encoding_and_decoding_allocate_nothing) {
  std::vector<double> g = gradient(0), decoded(kCount);
  for (const char* spec : {"fp16", "bf16", "int8", "int4", "1bit", "topk:0.05", "powersgd:2"}) {
    ErrorFeedback<double> codec = fed_back(spec);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(codec.bytes(kCount)));
    const long before = tests::own_allocations();
    for (int step = 0; step < 3; ++step) {
      codec.encode(g, bytes);
      codec.decode(bytes, decoded, Into::add);
    }
    BOOST_TEST(tests::own_allocations() == before, spec);
  }
}

BOOST_AUTO_TEST_SUITE_END()
