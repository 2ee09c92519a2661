// The optimizers' rules and the kernels of clipping against one-line loops, at remainders of a vector, for any team.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <numeric>

#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;
using Truth = std::vector<long double>;
constexpr Index kLengths[] = {0, 1, 7, 16, 17, 64, 65, 133};

/// w and up to three arrays of memory.
struct State {
  Truth w, memory[kMostStates];
};

/// What the formula makes of element i.
void follow(const RuleStep& rule, long double g, std::size_t i, State& s) {
  long double& w = s.w[i];
  const auto at = [&](int k) -> long double& { return s.memory[k][i]; };
  switch (rule.kind) {
    case RuleStep::Kind::sgd: {
      const Sgd::Step& r = rule.sgd;
      const long double d = g + r.l2 * w;
      at(0) = r.momentum * at(0) + d;
      w -= r.lr * (r.nesterov ? d + r.momentum * at(0) : at(0));
      break;
    }
    case RuleStep::Kind::adam: {
      const Adam::Step& r = rule.adam;
      const long double d = g + r.l2 * w;
      at(0) = r.beta1 * at(0) + (1 - r.beta1) * d;
      at(1) = r.beta2 * at(1) + (1 - r.beta2) * d * d;
      w = r.shrink * w - r.rate * at(0) / (std::sqrt(at(1)) / r.root + r.eps);
      break;
    }
    case RuleStep::Kind::lion: {
      const Lion::Step& r = rule.lion;
      const long double c = r.beta1 * at(0) + (1 - r.beta1) * g;
      at(0) = r.beta2 * at(0) + (1 - r.beta2) * g;
      w = r.shrink * w - r.lr * (c > 0 ? 1 : c < 0 ? -1 : 0);
      break;
    }
    case RuleStep::Kind::rmsprop: {
      const RmsProp::Step& r = rule.rmsprop;
      const long double d = g + r.l2 * w;
      at(0) = r.alpha * at(0) + (1 - r.alpha) * d * d;
      if (r.centered) at(2) = r.alpha * at(2) + (1 - r.alpha) * d;
      at(1) = r.momentum * at(1) + d / (std::sqrt(at(0) - (r.centered ? at(2) * at(2) : 0.0L)) + r.eps);
      w -= r.lr * at(1);
      break;
    }
  }
}

/// Two steps of a rule that remembers the arrays in `kept`, by every build and by teams, against the formula.
template <class T>
void check_rule(const RuleStep& rule, std::initializer_list<int> kept) {
  static Guarded<T> parameters(256), first(256), second(256), third(256);
  Guarded<T>* const arrays[] = {&first, &second, &third};
  for (const Index n : kLengths) {
    const auto g = numbers<T>(n, 11), w = numbers<T>(n, 10);
    State want{Truth(w.begin(), w.end()), {}};
    for (Truth& memory : want.memory) memory.assign(w.size(), 0);
    for (int step = 0; step < 2; ++step)
      for (std::size_t i = 0; i < w.size(); ++i) follow(rule, static_cast<long double>(g[i]), i, want);
    for_each_isa<T>([&](const Table<T>& table) {
      std::vector<T> alone;
      for (const int team : {1, 2, 3, 4}) {
        const auto place = [&](Guarded<T>& memory) { return team % 2 == 0 ? memory.at_begin() : memory.at_end(n); };
        Update<T> update{rule, place(parameters), {}};
        std::copy(w.begin(), w.end(), update.w);
        for (const int k : kept) {
          update.state[k] = place(*arrays[k]);
          std::fill_n(update.state[k], n, T{});
        }
        for (int step = 0; step < 2; ++step) as_team(team, [&](Part part) { table.update(part, update, n, g.data()); });
        const auto close = [&](const T* got, const Truth& expected) {
          for (std::size_t i = 0; i < expected.size(); ++i) {
            const long double error = std::abs(got[i] - expected[i]);
            if (!(error <= 64 * std::numeric_limits<T>::epsilon() * (1 + std::abs(expected[i]))))
              BOOST_ERROR("element " << i << " of " << n << ", team " << team << ": " << got[i] << ", expected "
                                     << expected[i]);
          }
        };
        close(update.w, want.w);
        for (const int k : kept) close(update.state[k], want.memory[k]);
        if (team == 1) alone.assign(update.w, update.w + n);
        BOOST_TEST(same_bits(update.w, alone.data(), n));
      }
    });
  }
}

BOOST_AUTO_TEST_SUITE(rules)

BOOST_AUTO_TEST_CASE_TEMPLATE(sgd_follows_its_formula, T, Elements) {
  check_rule<T>(Sgd::Step{0.1, 0, 0, false}, {});
  check_rule<T>(Sgd::Step{0.1, 0, 0.01, false}, {});
  for (const bool nesterov : {false, true}) check_rule<T>(Sgd::Step{0.1, 0.9, 0.01, nesterov}, {0});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(adam_follows_its_formula, T, Elements) {
  check_rule<T>(Adam::Step{0.01, 0.5, 0.9, 0.99, 1e-3, 0, 1}, {0, 1});
  check_rule<T>(Adam::Step{0.01, 1, 0.8, 0.9, 1e-2, 0.1, 1}, {0, 1});
  check_rule<T>(Adam::Step{0.01, 0.7, 0.9, 0.999, 1e-3, 0, 0.75}, {0, 1});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rmsprop_follows_its_formula, T, Elements) {
  check_rule<T>(RmsProp::Step{0.01, 0.9, 1e-2, 0, 0, false}, {0});
  check_rule<T>(RmsProp::Step{0.01, 0.9, 1e-2, 0.5, 0.1, false}, {0, 1});
  check_rule<T>(RmsProp::Step{0.01, 0.9, 1e-2, 0, 0.1, true}, {0, 2});
  check_rule<T>(RmsProp::Step{0.01, 0.9, 1e-2, 0.5, 0, true}, {0, 1, 2});
}

// A constant gradient has no variance: what rounding leaves of it may be below 0.
BOOST_AUTO_TEST_CASE_TEMPLATE(centered_rmsprop_of_a_constant_gradient_stays_finite, T, Elements) {
  constexpr Index n = 64;
  for_each_isa<T>([&](const Table<T>& table) {
    std::vector<T> w(n), g(n), square(n), mean(n);
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = static_cast<T>(1 + 0.01 * static_cast<double>(i));
    const Update<T> update{RmsProp::Step{1e-3, 0.9, 1e-8, 0, 0, true}, w.data(), {square.data(), nullptr, mean.data()}};
    for (int step = 0; step < 1500; ++step) table.update({}, update, n, g.data());
    BOOST_TEST(std::all_of(w.begin(), w.end(), [](T value) { return std::isfinite(value) && value < 0; }));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rmsprop_passes_nan, T, Elements) {
  for_each_isa<T>([&](const Table<T>& table) {
    T w = 0, g = std::numeric_limits<T>::quiet_NaN(), square = 0, mean = 0;
    table.update({}, {RmsProp::Step{1e-3, 0.9, 1e-8, 0, 0, true}, &w, {&square, nullptr, &mean}}, 1, &g);
    BOOST_TEST(std::isnan(w));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(lion_follows_its_formula, T, Elements) {
  check_rule<T>(Lion::Step{0.01, 0.9, 0.99, 1}, {0});
  check_rule<T>(Lion::Step{0.1, 0.5, 0.25, 0.75}, {0});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(lion_stands_where_the_mean_is_0_and_passes_nan, T, Elements) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for_each_isa<T>([&](const Table<T>& table) {
    T w[] = {2, 2, 2}, m[] = {0, 1, 1};
    const T g[] = {0, -1, nan};
    table.update({}, {Lion::Step{0.5, 0.5, 0.5, 1}, w, {m}}, 3, g);
    BOOST_TEST((w[0] == 2 && w[1] == 2 && std::isnan(w[2])));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sums_of_squares_of_chunks, T, Elements) {
  static Guarded<T> memory(3 * kSquareSumChunk);
  for (const Index n : {Index{0}, Index{1}, Index{63}, kSquareSumChunk, kSquareSumChunk + 1, 3 * kSquareSumChunk - 5}) {
    const auto values = numbers<T>(n, 3);
    T* const x = memory.at_end(n);
    std::copy(values.begin(), values.end(), x);
    const auto chunks = static_cast<std::size_t>(square_chunks(n));
    for_each_isa<T>([&](const Table<T>& table) {
      std::vector<double> alone;
      for (const int team : {1, 2, 3}) {
        std::vector<double> sums(chunks, -1);
        as_team(team, [&](Part part) { table.square_sums(part, n, x, sums.data()); });
        long double want = 0;
        for (const T value : values) want += static_cast<long double>(value) * static_cast<long double>(value);
        const double got = std::accumulate(sums.begin(), sums.end(), 0.0);
        BOOST_TEST(std::abs(got - want) <= 32 * double{std::numeric_limits<T>::epsilon()} * want);
        if (team == 1) alone = sums;
        BOOST_TEST(sums == alone, boost::test_tools::per_element());
      }
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(scaling_and_clamping, T, Elements) {
  static Guarded<T> memory(256);
  for (const Index n : kLengths) {
    const auto values = numbers<T>(n, 4);
    for_each_isa<T>([&](const Table<T>& table) {
      for (const int team : {1, 3}) {
        T* const x = memory.at_end(n);
        std::copy(values.begin(), values.end(), x);
        as_team(team, [&](Part part) { table.scale(part, n, T(0.75), x); });
        for (std::size_t i = 0; i < values.size(); ++i) BOOST_TEST(x[i] == T(0.75) * values[i]);
        as_team(team, [&](Part part) { table.clamp(part, n, T(0.25), x); });
        for (std::size_t i = 0; i < values.size(); ++i)
          BOOST_TEST(x[i] == std::clamp(T(0.75) * values[i], T(-0.25), T(0.25)));
      }
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(clamping_passes_nan, T, Elements) {
  for_each_isa<T>([&](const Table<T>& table) {
    T x[] = {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()};
    table.clamp({}, 2, T(1), x);
    BOOST_TEST((std::isnan(x[0]) && x[1] == 1));
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
