// PowerSgd: exact for matrices of low rank, a projection for others, better from call to call, and linear over ranks.
#include "pdnn/codec/power_sgd.hpp"

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "pdnn/core/errors.hpp"

using namespace pdnn;
using namespace pdnn::codec;

BOOST_AUTO_TEST_SUITE(power_sgd)

namespace {

using Elements = boost::mpl::list<float, double>;

template <class T>
std::vector<T> normals(Index n, std::uint64_t seed) {
  std::vector<T> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(Rng(seed).normal(i));
  return values;
}

/// Σ of `rank` products of vectors, the k-th 2⁻ᵏ as large.
template <class T>
std::vector<T> of_rank(int rank, Index rows, Index cols, std::uint64_t seed = 5) {
  std::vector<T> m(static_cast<std::size_t>(rows * cols));
  for (int k = 0; k < rank; ++k) {
    const auto a = normals<double>(rows, seed + 2 * static_cast<std::uint64_t>(k));
    const auto b = normals<double>(cols, seed + 1 + 2 * static_cast<std::uint64_t>(k));
    for (std::size_t i = 0; i < m.size(); ++i) {
      const std::size_t width = static_cast<std::size_t>(cols);
      m[i] += static_cast<T>(std::exp2(-k) * a[i / width] * b[i % width]);
    }
  }
  return m;
}

template <class T>
std::vector<T> there_and_back(Codec<T>& codec, const std::vector<T>& values) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(codec.bytes(static_cast<Index>(values.size()))));
  std::vector<T> back(values.size());
  codec.encode(values, bytes);
  codec.decode(bytes, back);
  return back;
}

template <class T>
double distance(const std::vector<T>& a, const std::vector<T>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i] - b[i]} * double{a[i] - b[i]};
  return std::sqrt(sum);
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(matrices_of_low_rank_come_back, T, Elements) {
  for (const int rank : {1, 2, 3}) {
    const std::vector<T> m = of_rank<T>(rank, 31, 45), zeros(m.size());
    for (const int room : {rank, rank + 1}) {
      PowerSgd<T> codec(room, 31 * 45, {{0, 31, 45}});
      const double error = distance(there_and_back(codec, m), m) / distance(m, zeros);
      BOOST_TEST(error < 100 * double{std::numeric_limits<T>::epsilon()});
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(bytes_are_the_factors_and_the_rest, T, Elements) {
  // 5 values, a matrix that gets smaller, one that does not, 2 values.
  const std::vector<MatrixAt> matrices{{5, 30, 20}, {605, 3, 4}};
  PowerSgd<T> codec(2, 619, matrices);
  BOOST_TEST(codec.bytes(619) == (2 * (30 + 20) + 5 + 12 + 2) * Index{sizeof(T)});
  const std::vector<T> x = normals<T>(619, 1), back = there_and_back(codec, x);
  for (std::size_t i = 0; i < x.size(); ++i) BOOST_REQUIRE((i >= 5 && i < 605) || back[i] == x[i]);
}

BOOST_AUTO_TEST_CASE(what_is_lost_is_the_length_less_that_of_q) {
  const std::vector<double> m = normals<double>(40 * 30, 3), zeros(m.size());
  PowerSgd<double> codec(4, 40 * 30, {{0, 40, 30}});
  const std::vector<double> back = there_and_back(codec, m);
  double q = 0;
  for (const double value : codec.q()) q += value * value;
  const double all = distance(m, zeros), lost = distance(m, back);
  BOOST_TEST(lost * lost == all * all - q, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(a_step_goes_on_from_the_last) {
  const std::vector<double> m = of_rank<double>(6, 50, 40);
  PowerSgd<double> codec(2, 2000, {{0, 50, 40}});
  const double first = distance(there_and_back(codec, m), m);
  double last = first;
  for (int step = 0; step < 10; ++step) {
    const double next = distance(there_and_back(codec, m), m);
    BOOST_TEST(next <= last * (1 + 1e-12));
    last = next;
  }
  BOOST_TEST(last < 0.9 * first);
}

BOOST_AUTO_TEST_CASE(sums_between_the_steps_are_the_steps_of_the_sum) {
  const std::vector<MatrixAt> matrices{{1, 20, 25}};
  const std::vector<double> a = normals<double>(504, 1), b = normals<double>(504, 2);
  std::vector<double> sum(504), back(504);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = a[i] + b[i];
  PowerSgd<double> first(2, 504, matrices), second(2, 504, matrices), whole(2, 504, matrices);
  const auto add_up = [](std::span<double> x, std::span<double> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] = x[i] + y[i];
  };
  for (int step = 0; step < 3; ++step) {
    first.make_p(a);
    second.make_p(b);
    add_up(first.p_and_rest(), second.p_and_rest());
    first.make_q(a);
    second.make_q(b);
    add_up(first.q(), second.q());
    second.restore(back);
    BOOST_TEST(distance(back, there_and_back(whole, sum)) < 1e-10);
  }
}

BOOST_AUTO_TEST_CASE(zeros_and_new_beginnings) {
  std::vector<double> zeros(600), m = of_rank<double>(2, 30, 20);
  PowerSgd<double> codec(2, 600, {{0, 30, 20}});
  BOOST_TEST(distance(there_and_back(codec, zeros), zeros) == 0);
  BOOST_TEST(distance(there_and_back(codec, m), m) < 1e-12);
}

BOOST_AUTO_TEST_CASE(matrices_that_overlap_or_stick_out_are_refused) {
  BOOST_CHECK_THROW(PowerSgd<float>(1, 10, {{0, 4, 4}}), ValueError);
  BOOST_CHECK_THROW(PowerSgd<float>(1, 32, {{0, 4, 4}, {15, 4, 4}}), ValueError);
  BOOST_CHECK_THROW(PowerSgd<float>(1, 32, {{-1, 4, 4}}), ValueError);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(what_is_no_number_or_too_large_spoils_one_message_alone, T, Elements) {
  const std::vector<T> good = of_rank<T>(1, 400, 20);
  for (const T spoiled : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::max() / 15}) {
    PowerSgd<T> codec(1, 400 * 20, {{0, 400, 20}});
    const std::vector<T> bad(good.size(), spoiled);
    BOOST_TEST(!std::isfinite(distance(there_and_back(codec, bad), good)));
    BOOST_TEST(distance(there_and_back(codec, good), good) < (sizeof(T) == 4 ? 1e-3 : 1e-11));
  }
}

BOOST_AUTO_TEST_SUITE_END()
