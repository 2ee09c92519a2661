// exp, log, sigmoid, tanh and the curves of every build against long double: at most 3 units in the last place.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <functional>

#include "random_rounds.hpp"
#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;
constexpr double kMostUlps = 3;

template <class T>
using Function = void (*)(const Table<T>&, Index n, const T* x, T* y);
template <class T>
constexpr Function<T> kExp = [](const Table<T>& table, Index n, const T* x, T* y) { table.exp({}, n, x, y); };
template <class T>
constexpr Function<T> kLog = [](const Table<T>& table, Index n, const T* x, T* y) { table.log({}, n, x, y); };
template <class T>
constexpr Function<T> kSigmoid =
    [](const Table<T>& table, Index n, const T* x, T* y) { table.activate({}, Activation::sigmoid, n, x, y); };
template <class T>
constexpr Function<T> kTanh =
    [](const Table<T>& table, Index n, const T* x, T* y) { table.activate({}, Activation::tanh, n, x, y); };

template <class T>
constexpr Function<T> kGelu =
    [](const Table<T>& table, Index n, const T* x, T* y) { table.curve({}, Curve::gelu, n, x, y); };

template <class T>
constexpr Function<T> kSilu =
    [](const Table<T>& table, Index n, const T* x, T* y) { table.curve({}, Curve::silu, n, x, y); };

template <class T>
constexpr Function<T> kElu =
    [](const Table<T>& table, Index n, const T* x, T* y) { table.curve({}, Curve::elu, n, x, y); };

template <class T>
constexpr Function<T> kSoftplus =
    [](const Table<T>& table, Index n, const T* x, T* y) { table.curve({}, {Curve::softplus, 1, 1000}, n, x, y); };

long double exact_elu(long double x) { return x > 0 ? x : std::expm1(x); }
long double exact_softplus(long double x) { return std::max(x, 0.0L) + std::log1p(std::exp(-std::abs(x))); }
long double exact_gelu(long double x) { return x * std::erfc(-x * std::sqrt(0.5L)) / 2; }
long double exact_sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }
long double exact_silu(long double x) { return x / (1 + std::exp(-x)); }

/// Evenly spaced over [low, high].
template <class T>
std::vector<T> sample(double low, double high, int count = 100001) {
  std::vector<T> x;
  for (int i = 0; i < count; ++i) x.push_back(static_cast<T>(low + (high - low) * (i + 0.37) / count));
  return x;
}

/// ± all powers of two with some digits behind.
template <class T>
std::vector<T> magnitudes() {
  std::vector<T> x;
  using Limits = std::numeric_limits<T>;
  for (int e = Limits::min_exponent - Limits::digits; e < Limits::max_exponent; ++e)
    for (const double digits : {1.0, 1.1234567890123, 1.41421356, 1.9999})
      for (const int sign : {-1, 1}) x.push_back(static_cast<T>(sign * std::ldexp(digits, e)));
  return x;
}

template <class T>
void check(const std::type_identity_t<std::function<void(const Table<T>&, Index, const T*, T*)>>& function,
           long double (*exact)(long double), const std::vector<T>& x, double most = kMostUlps) {
  for_each_isa<T>([&](const Table<T>& table) {
    std::vector<T> y(x.size());
    function(table, static_cast<Index>(x.size()), x.data(), y.data());
    double worst = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = ulps(y[i], exact(static_cast<long double>(x[i])));
      if (!(error <= worst)) worst = error, at = i;
    }
    if (!(worst <= most)) BOOST_ERROR(worst << " ulp at " << x[at] << ": " << y[at]);
  });
}

BOOST_AUTO_TEST_SUITE(elementary_functions)

BOOST_AUTO_TEST_CASE_TEMPLATE(exp_is_exact_to_3_ulp, T, Elements) {
  const double widest = sizeof(T) == 4 ? 110 : 760;  // beyond both ends: 0 and infinity
  check<T>(kExp<T>, [](long double x) { return std::exp(x); }, sample<T>(-widest, widest));
  check<T>(kExp<T>, [](long double x) { return std::exp(x); }, sample<T>(-2, 2));
  check<T>(kExp<T>, [](long double x) { return std::exp(x); }, magnitudes<T>());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(log_is_exact_to_3_ulp, T, Elements) {
  std::vector<T> positive = magnitudes<T>();
  std::erase_if(positive, [](T value) { return value < 0; });
  check<T>(kLog<T>, [](long double x) { return std::log(x); }, positive);
  check<T>(kLog<T>, [](long double x) { return std::log(x); }, sample<T>(0.4, 2.5));
  check<T>(kLog<T>, [](long double x) { return std::log(x); }, sample<T>(0, 1e6));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sigmoid_is_exact_to_3_ulp, T, Elements) {
  const double widest = sizeof(T) == 4 ? 110 : 760;
  check<T>(kSigmoid<T>, exact_sigmoid, sample<T>(-widest, widest));
  check<T>(kSigmoid<T>, exact_sigmoid, sample<T>(-8, 8));
  check<T>(kSigmoid<T>, exact_sigmoid, magnitudes<T>());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(tanh_is_exact_to_3_ulp, T, Elements) {
  check<T>(kTanh<T>, [](long double x) { return std::tanh(x); }, sample<T>(-25, 25));
  check<T>(kTanh<T>, [](long double x) { return std::tanh(x); }, sample<T>(-1, 1));
  check<T>(kTanh<T>, [](long double x) { return std::tanh(x); }, magnitudes<T>());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(gelu_is_exact_to_3_ulp_and_in_its_lower_tail_to_6, T, Elements) {
  constexpr bool single = sizeof(T) == 4;  // computed in double
  const double most = single ? 1 : kMostUlps, most_below = single ? 1 : 6;
  check<T>(kGelu<T>, exact_gelu, sample<T>(-0.6, 3), most);
  check<T>(kGelu<T>, exact_gelu, sample<T>(3, 50), most);
  check<T>(kGelu<T>, exact_gelu, sample<T>(-3, -0.6), most_below);
  check<T>(kGelu<T>, exact_gelu, sample<T>(-40, -3), most_below);
  check<T>(kGelu<T>, exact_gelu, magnitudes<T>(), most_below);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(functions_keep_their_bounds_at_random_places, T, Elements) {
  tests::random_rounds(1, [](tests::Draw& draw) {
    const double widest = sizeof(T) == 4 ? 110 : 760;
    const auto anywhere = [&](double low, double high) {
      std::vector<T> x(200000);
      for (T& value : x) value = static_cast<T>(low + (high - low) * static_cast<double>(draw(0, 1 << 30)) * 0x1p-30);
      return x;
    };
    check<T>(kExp<T>, [](long double x) { return std::exp(x); }, anywhere(-widest, widest));
    check<T>(kSigmoid<T>, exact_sigmoid, anywhere(-widest, widest));
    check<T>(kTanh<T>, [](long double x) { return std::tanh(x); }, anywhere(-25, 25));
    check<T>(kGelu<T>, exact_gelu, anywhere(-40, 3), sizeof(T) == 4 ? 1 : 6);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_derivative_of_gelu_is_exact_but_for_its_zero, T, Elements) {
  const std::vector<T> x = sample<T>(-15, 15), ones(x.size(), T(1));
  for_each_isa<T>([&](const Table<T>& table) {
    std::vector<T> derivative(x.size());
    table.curve_backward({}, Curve::gelu, static_cast<Index>(x.size()), x.data(), ones.data(), derivative.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = static_cast<long double>(x[i]);
      const long double below = std::erfc(-at * std::sqrt(0.5L)) / 2;
      const long double density = std::exp(-at * at / 2) * 0.398942280401432677939946L;
      const long double error = std::abs(static_cast<long double>(derivative[i]) - (below + at * density));
      const auto eps = static_cast<long double>(std::numeric_limits<T>::epsilon());
      const long double least = std::numeric_limits<T>::min();
      if (!(error <= 4 * eps * (below + std::abs(at) * density) + least)) BOOST_ERROR(x[i] << ": " << derivative[i]);
    }
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(silu_is_exact_to_4_ulp_where_the_logistic_function_is_normal, T, Elements) {
  const double lowest = sizeof(T) == 4 ? -87 : -708;
  check<T>(kSilu<T>, exact_silu, sample<T>(lowest, -lowest), 4);
  check<T>(kSilu<T>, exact_silu, sample<T>(-8, 8), 4);
  std::vector<T> within = magnitudes<T>();
  std::erase_if(within, [=](T value) { return double{value} < lowest; });
  check<T>(kSilu<T>, exact_silu, within, 4);
  for_each_isa<T>([&](const Table<T>& table) {  // below, it goes to 0 with the smallest numbers there are
    const std::vector<T> x = sample<T>(10 * lowest, lowest);
    std::vector<T> y(x.size());
    table.curve({}, Curve::silu, static_cast<Index>(x.size()), x.data(), y.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const long double error = std::abs(y[i] - exact_silu(static_cast<long double>(x[i])));
      const long double bound = std::abs(x[i]) * static_cast<long double>(std::numeric_limits<T>::denorm_min());
      if (!(error <= bound)) BOOST_ERROR("silu(" << x[i] << ") = " << y[i]);
    }
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(elu_and_softplus_are_exact_to_4_ulp, T, Elements) {
  const double lowest = sizeof(T) == 4 ? -87 : -708;
  for (const auto& x : {sample<T>(lowest, -lowest), sample<T>(-3, 3), sample<T>(-50, 50), magnitudes<T>()}) {
    check<T>(kElu<T>, exact_elu, x, 4);
    check<T>(kSoftplus<T>, exact_softplus, x, 4);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_derivatives_of_elu_and_softplus_are_exact_to_4_ulp, T, Elements) {
  const double widest = sizeof(T) == 4 ? 87 : 708;
  for (const auto& x : {sample<T>(-widest, widest), sample<T>(-8, 8), magnitudes<T>()}) {
    const std::vector<T> ones(x.size(), T(1));
    const auto derivative = [&](const Curve& f) {
      return [&ones, f](const Table<T>& table, Index n, const T* at, T* y) {
        table.curve_backward({}, f, n, at, ones.data(), y);
      };
    };
    check<T>(derivative(Curve::elu), [](long double at) { return at > 0 ? 1 : std::exp(at); }, x, 4);
    check<T>(derivative({Curve::softplus, 1, 1000}), exact_sigmoid, x, 4);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_derivative_of_silu_is_exact_but_for_its_zero, T, Elements) {
  const double widest = sizeof(T) == 4 ? 87 : 708;
  for (const auto& x : {sample<T>(-widest, widest), sample<T>(-8, 8)}) {
    const std::vector<T> ones(x.size(), T(1));
    for_each_isa<T>([&](const Table<T>& table) {
      std::vector<T> derivative(x.size());
      table.curve_backward({}, Curve::silu, static_cast<Index>(x.size()), x.data(), ones.data(), derivative.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto at = static_cast<long double>(x[i]);
        const long double value = exact_sigmoid(at), curved = at * exact_sigmoid(-at);
        const long double error = std::abs(static_cast<long double>(derivative[i]) - value * (1 + curved));
        const auto eps = static_cast<long double>(std::numeric_limits<T>::epsilon());
        if (!(error <= 4 * eps * value * (1 + std::abs(curved)))) BOOST_ERROR(x[i] << ": " << derivative[i]);
      }
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_derivative_of_silu_at_both_ends, T, Elements) {
  const T infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> x = {-infinity, infinity, std::numeric_limits<T>::quiet_NaN()}, ones(x.size(), T(1));
  for_each_isa<T>([&](const Table<T>& table) {
    std::vector<T> derivative(x.size());
    table.curve_backward({}, Curve::silu, static_cast<Index>(x.size()), x.data(), ones.data(), derivative.data());
    BOOST_TEST((derivative[0] == 0 && derivative[1] == 1 && std::isnan(derivative[2])));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(special_values_come_out_as_in_the_standard_library, T, Elements) {
  const T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> x = {nan, infinity, -infinity, T(0), T(-0.0), T(1), T(-1)};
  const auto equal = [](T a, T b) {
    return std::isnan(b) ? std::isnan(a) : a == b && std::signbit(a) == std::signbit(b);
  };
  for_each_isa<T>([&](const Table<T>& table) {
    std::vector<T> y(x.size());
    const auto check_all = [&](Function<T> function, const std::vector<T>& expected) {
      function(table, static_cast<Index>(x.size()), x.data(), y.data());
      for (std::size_t i = 0; i < expected.size(); ++i)
        BOOST_TEST(equal(y[i], expected[i]), x[i] << " gave " << y[i] << ", expected " << expected[i]);
    };
    check_all(kExp<T>, {nan, infinity, T(0), T(1), T(1)});
    check_all(kLog<T>, {nan, infinity, nan, -infinity, -infinity, T(0), nan});
    check_all(kSigmoid<T>, {nan, T(1), T(0), T(0.5), T(0.5)});
    check_all(kTanh<T>, {nan, T(1), T(-1), T(0), T(-0.0)});
    check_all(kGelu<T>, {nan, infinity, T(-0.0), T(0), T(-0.0)});
    check_all(kSilu<T>, {nan, infinity, T(-0.0), T(0), T(-0.0)});
    check_all(kElu<T>, {nan, infinity, T(-1), T(0)});
    check_all(kSoftplus<T>, {nan, infinity, T(0)});
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
