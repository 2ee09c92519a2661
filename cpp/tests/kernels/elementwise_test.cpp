// Activations and their derivatives, and additions against one-line loops, at every remainder of a vector.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;
constexpr Activation kActivations[] = {Activation::identity, Activation::relu, Activation::sigmoid, Activation::tanh};

double value(Activation f, double x) {
  switch (f) {
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::tanh:
      return std::tanh(x);
    case Activation::identity:
      break;
  }
  return x;
}

double derivative(Activation f, double y) {
  switch (f) {
    case Activation::relu:
      return y > 0 ? 1 : 0;
    case Activation::sigmoid:
      return y * (1 - y);
    case Activation::tanh:
      return 1 - y * y;
    case Activation::identity:
      break;
  }
  return 1;
}

/// Runs work(table, part, data) on a copy of `initial` between forbidden pages, for each build, alone and as teams, at
/// the end of the memory and at its beginning; checks data[i] against expected(i).
template <class T, class Work, class Expected>
void check(const std::vector<T>& initial, Work work, Expected expected) {
  static Guarded<T> memory(1024);
  const Index n = static_cast<Index>(initial.size());
  for_each_isa<T>([&](const Table<T>& table) {
    for (const int team : {1, 2, 3, 4}) {
      T* const data = team % 2 == 0 ? memory.at_begin() : memory.at_end(n);
      std::copy(initial.begin(), initial.end(), data);
      as_team(team, [&](Part part) { work(table, part, data); });
      for (Index i = 0; i < n; ++i) {
        const double want = expected(static_cast<std::size_t>(i)), error = std::abs(double{data[i]} - want);
        if (!(error <= 8 * double{std::numeric_limits<T>::epsilon()} * (1 + std::abs(want))))
          BOOST_ERROR("element " << i << " of " << n << ", team " << team << ": " << data[i] << ", expected " << want);
      }
    }
  });
}

BOOST_AUTO_TEST_SUITE(elementwise)

BOOST_AUTO_TEST_CASE_TEMPLATE(activations_in_place_at_every_length, T, Elements) {
  for (const Activation f : kActivations) {
    for (Index n = 0; n <= 70; ++n) {
      const std::vector<T> x = numbers<T>(n, 5);
      check<T>(
          x, [&](const Table<T>& table, Part part, T* data) { table.activate(part, f, n, data, data); },
          [&](std::size_t i) { return value(f, double{x[i]}); });
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(derivatives_in_place_at_every_length, T, Elements) {
  for (const Activation f : kActivations) {
    for (Index n = 0; n <= 70; ++n) {
      const std::vector<T> y = numbers<T>(n, 6), dy = numbers<T>(n, 7);
      check<T>(
          dy,
          [&](const Table<T>& table, Part part, T* data) { table.activate_backward(part, f, n, y.data(), data, data); },
          [&](std::size_t i) { return double{dy[i]} * derivative(f, double{y[i]}); });
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(curves_at_every_length, T, Elements) {
  for (Index n = 0; n <= 70; ++n) {
    const std::vector<T> x = numbers<T>(n, 5), dy = numbers<T>(n, 7);
    const auto below = [&](std::size_t i) { return std::erfc(-double{x[i]} * std::sqrt(0.5)) / 2; };
    check<T>(
        dy,
        [&](const Table<T>& table, Part part, T* data) { table.leaky_relu(part, T(0.25), n, x.data(), data, data); },
        [&](std::size_t i) { return double{dy[i]} * (x[i] > 0 ? 1 : 0.25); });
    check<T>(
        x, [&](const Table<T>& table, Part part, T* data) { table.curve(part, Curve::gelu, n, data, data); },
        [&](std::size_t i) { return double{x[i]} * below(i); });
    check<T>(
        dy,
        [&](const Table<T>& table, Part part, T* data) {
          table.curve_backward(part, Curve::gelu, n, x.data(), data, data);
        },
        [&](std::size_t i) {
          const double at = double{x[i]};
          return double{dy[i]} * (below(i) + at * std::exp(-at * at / 2) * 0.3989422804014327);
        });
    const auto logistic = [&](std::size_t i) { return 1 / (1 + std::exp(-double{x[i]})); };
    check<T>(
        x, [&](const Table<T>& table, Part part, T* data) { table.curve(part, Curve::silu, n, data, data); },
        [&](std::size_t i) { return double{x[i]} * logistic(i); });
    check<T>(
        dy,
        [&](const Table<T>& table, Part part, T* data) {
          table.curve_backward(part, Curve::silu, n, x.data(), data, data);
        },
        [&](std::size_t i) { return double{dy[i]} * logistic(i) * (1 + double{x[i]} * (1 - logistic(i))); });
    const Curve elu(Curve::elu, 0.75), softplus(Curve::softplus, 0.5, 0.25);
    check<T>(
        x, [&](const Table<T>& table, Part part, T* data) { table.curve(part, elu, n, data, data); },
        [&](std::size_t i) { return x[i] > 0 ? double{x[i]} : 0.75 * std::expm1(double{x[i]}); });
    check<T>(
        dy,
        [&](const Table<T>& table, Part part, T* data) { table.curve_backward(part, elu, n, x.data(), data, data); },
        [&](std::size_t i) { return double{dy[i]} * (x[i] > 0 ? 1 : 0.75 * std::exp(double{x[i]})); });
    const auto above = [&](std::size_t i) { return double{x[i]} / 2 > 0.25; };
    check<T>(
        x, [&](const Table<T>& table, Part part, T* data) { table.curve(part, softplus, n, data, data); },
        [&](std::size_t i) { return above(i) ? double{x[i]} : 2 * std::log1p(std::exp(double{x[i]} / 2)); });
    check<T>(
        dy,
        [&](const Table<T>& table, Part part, T* data) {
          table.curve_backward(part, softplus, n, x.data(), data, data);
        },
        [&](std::size_t i) { return double{dy[i]} * (above(i) ? 1 : 1 / (1 + std::exp(-double{x[i]} / 2))); });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(sums_at_every_length, T, Elements) {
  for (Index n = 0; n <= 140; ++n) {
    const std::vector<T> x = numbers<T>(n, 8), y = numbers<T>(n, 9);
    check<T>(
        y, [&](const Table<T>& table, Part part, T* data) { table.add(part, n, data, x.data(), data); },
        [&](std::size_t i) { return double{y[i]} + double{x[i]}; });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(relu_passes_nan_and_its_derivative_passes_a_gradient_of_nan, T, Elements) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for_each_isa<T>([&](const Table<T>& table) {
    const std::vector<T> x = {nan, T(-1), T(2)}, dy = {T(1), T(1), nan};
    std::vector<T> y(3), dx(3);
    table.activate({}, Activation::relu, 3, x.data(), y.data());
    BOOST_TEST((std::isnan(y[0]) && y[1] == 0 && y[2] == 2));
    table.activate_backward({}, Activation::relu, 3, y.data(), dy.data(), dx.data());
    BOOST_TEST((dx[1] == 0 && std::isnan(dx[2])));
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
