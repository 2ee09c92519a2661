// Codecs without memory: bytes known beforehand, error bounds, remainders, what is not finite, and what is refused.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "pdnn/codec/make_codec.hpp"
#include "pdnn/core/errors.hpp"
#include "pdnn/core/random.hpp"

using namespace pdnn;
using namespace pdnn::codec;

BOOST_AUTO_TEST_SUITE(codecs)

namespace {

using Elements = boost::mpl::list<float, double>;
using Bytes = std::vector<std::uint8_t>;
constexpr Index kSizes[] = {0, 1, 2, 7, 15, 16, 17, 255, 256, 257, 1024, 1031, 5003};

template <class T>
std::vector<T> normals(Index n, double size = 1) {
  std::vector<T> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(size * Rng(7).normal(i));
  return values;
}

template <class T>
Bytes encoded(Codec<T>& codec, const std::vector<T>& values) {
  Bytes bytes(static_cast<std::size_t>(codec.bytes(static_cast<Index>(values.size()))));
  codec.encode(values, bytes);
  return bytes;
}

template <class T>
std::vector<T> there_and_back(const std::string& spec, const std::vector<T>& values) {
  const auto codec = make_codec<T>(spec, static_cast<Index>(values.size()));
  std::vector<T> back(values.size(), T(99));
  codec->decode(encoded(*codec, values), back);
  return back;
}

template <class T>
double square(const std::vector<T>& values) {
  double sum = 0;
  for (const T value : values) sum += double{value} * double{value};
  return sum;
}

/// Calls check(i, x, decoded) for values of several sizes.
template <class T, class Check>
void for_values(const std::string& spec, Check check) {
  for (const Index n : kSizes)
    for (const double size : {1e-6, 1.0, 300.0}) {
      const std::vector<T> x = normals<T>(n, size), back = there_and_back(spec, x);
      for (std::size_t i = 0; i < x.size(); ++i) check(i, x, back);
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(bytes_are_known_beforehand) {
  for (const Index n : kSizes) {
    BOOST_TEST(make_codec<float>("fp16", n)->bytes(n) == 2 * n);
    BOOST_TEST(make_codec<double>("bf16", n)->bytes(n) == 2 * n);
    BOOST_TEST(make_codec<float>("int8", n)->bytes(n) == n + 4 * ((n + 255) / 256));
    BOOST_TEST(make_codec<float>("int8:64", n)->bytes(n) == n + 4 * ((n + 63) / 64));
    BOOST_TEST(make_codec<float>("int4", n)->bytes(n) == (n + 1) / 2 + 4 * ((n + 255) / 256));
    BOOST_TEST(make_codec<float>("1bit", n)->bytes(n) == (n + 7) / 8 + 8 * ((n + 1023) / 1024));
    const Index kept = static_cast<Index>(std::ceil(0.03 * static_cast<double>(n)));
    BOOST_TEST(make_codec<float>("topk:0.03", n)->bytes(n) == kept * 8);
    BOOST_TEST(make_codec<double>("topk:0.03", n)->bytes(n) == kept * 12);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(half_precision_stays_within_its_bound, T, Elements) {
  for_values<T>("fp16", [](std::size_t i, const auto& x, const auto& back) {
    const double bound = std::abs(double{x[i]}) >= 0x1p-14 ? 0x1.002p-11 * std::abs(double{x[i]}) : 0x1p-25;
    BOOST_REQUIRE_LE(std::abs(double{x[i]} - double{back[i]}), bound);
  });
  for_values<T>("bf16", [](std::size_t i, const auto& x, const auto& back) {
    BOOST_REQUIRE_LE(std::abs(double{x[i]} - double{back[i]}), 0x1.0002p-8 * std::abs(double{x[i]}));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(integers_stay_within_their_bound, T, Elements) {
  for (const auto& [name, parts] : {std::pair{"int8:", 254}, {"int4:", 14}})
    for (const Index block : {16, 256})
      for_values<T>(name + std::to_string(block), [=, parts = parts](std::size_t i, const auto& x, const auto& back) {
        const std::size_t begin = i / static_cast<std::size_t>(block) * static_cast<std::size_t>(block);
        double most = 0;
        for (std::size_t k = begin; k < std::min(begin + static_cast<std::size_t>(block), x.size()); ++k)
          most = std::max(most, std::abs(double{x[k]}));
        BOOST_REQUIRE_LE(std::abs(double{x[i]} - double{back[i]}), most / parts * (1 + 0x1p-15));
      });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(one_bit_decodes_to_the_mean_of_its_sign, T, Elements) {
  for (const Index n : kSizes) {
    const std::vector<T> x = normals<T>(n), back = there_and_back("1bit:32", x);
    double lost = 0, explained = 0;
    for (std::size_t begin = 0; begin < x.size(); begin += 32) {
      const std::size_t end = std::min(begin + 32, x.size());
      double sums[2] = {}, counts[2] = {};
      for (std::size_t i = begin; i < end; ++i) {
        sums[std::signbit(x[i])] += double{x[i]};
        ++counts[std::signbit(x[i])];
      }
      for (std::size_t i = begin; i < end; ++i) {
        const double mean = sums[std::signbit(x[i])] / counts[std::signbit(x[i])];
        BOOST_REQUIRE_CLOSE(double{back[i]}, mean, 1e-4);
        lost += (double{x[i]} - double{back[i]}) * (double{x[i]} - double{back[i]});
        explained += mean * mean;
      }
    }
    if (n == 0) continue;
    BOOST_TEST(lost <= (1 - 1.0 / 32) * square(x) + 1e-9);
    BOOST_TEST(lost == square(x) - explained, boost::test_tools::tolerance(1e-3));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(top_k_keeps_the_largest_as_they_are, T, Elements) {
  for (const Index n : kSizes)
    for (const char* fraction : {"0.001", "0.05", "1"}) {
      const std::vector<T> x = normals<T>(n);
      std::vector<T> sorted = x;
      std::sort(sorted.begin(), sorted.end(), [](T a, T b) { return std::abs(a) > std::abs(b); });
      const std::string spec = std::string("topk:") + fraction;
      const auto kept = static_cast<std::size_t>(make_codec<T>(spec, n)->bytes(n)) / (4 + sizeof(T));
      const std::vector<T> back = there_and_back(spec, x);
      std::size_t found = 0;
      double lost = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const bool large = std::abs(x[i]) >= std::abs(sorted[kept - 1]);
        BOOST_REQUIRE_EQUAL(back[i], large ? x[i] : T(0));
        found += large;
        lost += double{x[i] - back[i]} * double{x[i] - back[i]};
      }
      BOOST_TEST(found == kept);
      if (n > 0) BOOST_TEST(lost <= (1 - static_cast<double>(kept) / static_cast<double>(n)) * square(x) + 1e-12);
    }
}

BOOST_AUTO_TEST_CASE(of_equal_magnitudes_the_first_are_kept) {
  const std::vector<float> want{2, -2, 0, 0};
  BOOST_TEST(there_and_back<float>("topk:0.5", {2, -2, 2, 0}) == want, boost::test_tools::per_element());
  const std::vector<double> zeros(5);
  BOOST_TEST(there_and_back("topk:0.5", zeros) == zeros, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(decoding_adds_and_subtracts_what_it_stores, T, Elements) {
  for (const char* spec : {"fp16", "bf16", "int8", "int4", "1bit", "topk:0.1"})
    for (const Index n : kSizes) {
      const std::vector<T> x = normals<T>(n), base = normals<T>(n, 5);
      const auto codec = make_codec<T>(spec, n);
      const Bytes bytes = encoded(*codec, x);
      std::vector<T> stored(x.size()), added = base, subtracted = base;
      codec->decode(bytes, stored);
      codec->decode(bytes, added, Into::add);
      codec->decode(bytes, subtracted, Into::subtract);
      for (std::size_t i = 0; i < x.size(); ++i) {
        BOOST_REQUIRE_EQUAL(added[i], static_cast<T>(base[i] + stored[i]));
        BOOST_REQUIRE_EQUAL(subtracted[i], static_cast<T>(base[i] - stored[i]));
      }
      BOOST_TEST(encoded(*codec, x) == bytes, boost::test_tools::per_element());
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(what_is_not_finite_is_not_hidden, T, Elements) {
  constexpr T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  for (const char* spec : {"fp16", "bf16", "topk:0.5"}) {
    const std::vector<T> back = there_and_back<T>(spec, {inf, -inf, nan, 1, 1, 1});
    BOOST_TEST((back[0] == inf && back[1] == -inf && std::isnan(back[2])), spec);
  }
  BOOST_TEST(there_and_back<T>("fp16", {65520})[0] == inf);
  std::vector<T> blocks(48, T(-1));
  blocks[20] = inf;
  const std::vector<T> int8 = there_and_back("int8:16", blocks), int4 = there_and_back("int4:16", blocks);
  const std::vector<T> signs = there_and_back("1bit:16", blocks);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    BOOST_TEST(std::isnan(int8[i]) == (i / 16 == 1));
    BOOST_TEST(std::isnan(int4[i]) == (i / 16 == 1));
    BOOST_TEST(signs[i] == (i == 20 ? inf : T(-1)));
  }
}

BOOST_AUTO_TEST_CASE(the_largest_float_stays_finite_as_an_integer) {
  const float most = std::numeric_limits<float>::max();
  for (const auto& [spec, parts] : {std::pair{"int8", 254.0f}, {"int4", 14.0f}})
    for (const float value : there_and_back<float>(spec, {most, -most}))
      BOOST_TEST(std::abs(std::abs(value) - most) <= most / parts);
}

BOOST_AUTO_TEST_CASE(tiny_blocks_of_int8_become_0) {
  for (const float value : there_and_back<float>("int8", {9e-35f, -1e-40f})) BOOST_TEST(value == 0);
  BOOST_TEST(there_and_back<float>("int8", {1e-33f})[0] > 9.9e-34f);
  for (const float value : there_and_back<float>("int4", {5e-36f, -1e-40f})) BOOST_TEST(value == 0);
  BOOST_TEST(there_and_back<float>("int4", {1e-34f})[0] > 9.9e-35f);
}

BOOST_AUTO_TEST_CASE(wrong_sizes_places_and_specs_are_refused) {
  const auto codec = make_codec<float>("topk:0.5", 4);
  std::vector<float> values(4);
  Bytes bytes(16);
  codec->encode(values, bytes);
  BOOST_CHECK_THROW(codec->encode(values, std::span(bytes).first(15)), ValueError);
  BOOST_CHECK_THROW(codec->decode(std::span(bytes).first(8), values), ValueError);
  bytes[0] = 4;  // a place behind the last
  BOOST_CHECK_THROW(codec->decode(bytes, values), ValueError);
  for (const char* spec : {"", "fp8", "int8:", "int8:20", "int8:0", "int8:16x", "int4:24", "int4:", "1bit:-16", "topk",
                           "topk:0", "topk:1.5", "topk:nan", "powersgd", "powersgd:0", "fp16:2",
                           "int8:9223372036854775744", "1bit:9223372036854774784"})
    BOOST_CHECK_THROW(make_codec<float>(spec, 8), ValueError);
}

BOOST_AUTO_TEST_CASE(a_codec_is_spelled_as_it_was) {
  for (const char* spec :
       {"fp16", "bf16", "int8", "int8:64", "int4", "int4:64", "1bit", "1bit:512", "topk:0.01", "topk:1", "powersgd:3"})
    BOOST_TEST(make_codec<double>(spec, 10)->spec() == spec);
}

BOOST_AUTO_TEST_SUITE_END()
