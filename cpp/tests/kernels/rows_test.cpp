// Softmax, log-softmax, their backward passes and the cross-entropies against their definitions in double.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <numeric>

#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;
constexpr Index kRows = 5, kMostClasses = 70;
constexpr double kScale = 0.25;

/// A row's softmax in double.
template <class T>
std::vector<double> exact_softmax(const T* x, Index cols) {
  std::vector<double> y(x, x + cols);
  const double largest = *std::max_element(y.begin(), y.end());
  double sum = 0;
  for (double& element : y) sum += element = std::exp(element - largest);
  for (double& element : y) element /= sum;
  return y;
}

/// Inputs of kRows rows, some far from 0, and two outputs between forbidden pages.
template <class T>
struct Fixture {
  Index cols;
  std::vector<T> x, dy, t;
  std::vector<std::int32_t> classes;
  Matrix<T> out;

  explicit Fixture(Index columns)
      : cols(columns),
        x(numbers<T>(kRows * cols, 20)),
        dy(numbers<T>(kRows * cols, 21)),
        t(numbers<T>(kRows * cols, 22)),
        classes(kRows) {
    static Guarded<T> memory(kRows * kMostClasses);
    out = {memory.at_end(kRows * cols), kRows, cols};
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = x[i] * T(20) + T(i < x.size() / 2 ? 300 : 0);
      t[i] = std::abs(t[i]);
    }
    for (std::size_t r = 0; r < kRows; ++r)
      classes[r] = static_cast<std::int32_t>(r * 7 % static_cast<std::size_t>(cols));
  }
  Matrix<const T> view(const std::vector<T>& values) const { return {values.data(), kRows, cols}; }
  const T* row(const std::vector<T>& values, Index r) const { return values.data() + r * cols; }

  /// Runs work(table, part) for all builds and teams and checks out[r, j] against expected(r)[j].
  template <class Work, class Expected>
  void check(Work work, Expected expected) {
    for_each_isa<T>([&](const Table<T>& table) {
      std::vector<T> alone;
      for (const int team : {1, 2, 3, 4}) {
        std::fill_n(out.data, kRows * cols, T(-7));
        as_team(team, [&](Part part) { work(table, part); });
        if (team == 1) alone.assign(out.data, out.data + kRows * cols);
        BOOST_TEST(same_bits(alone.data(), out.data, kRows * cols));
      }
      for (Index r = 0; r < kRows; ++r) {
        const std::vector<double> want = expected(r);
        for (Index j = 0; j < cols; ++j) {
          const double w = want[static_cast<std::size_t>(j)], error = std::abs(double{out.row(r)[j]} - w);
          if (!(error <= 100 * double{std::numeric_limits<T>::epsilon()} * (1 + std::abs(w))))
            BOOST_ERROR("(" << r << ", " << j << ") of " << cols << ": " << out.row(r)[j] << ", expected " << w);
        }
      }
    });
  }
};

template <class T, class Check>
void for_every_width(Check check) {
  for (Index cols = 1; cols <= kMostClasses; ++cols) {
    Fixture<T> fixture(cols);
    check(fixture);
  }
}

BOOST_AUTO_TEST_SUITE(rows)

BOOST_AUTO_TEST_CASE_TEMPLATE(softmax_of_every_width, T, Elements) {
  for_every_width<T>([](Fixture<T>& f) {
    f.check([&](const Table<T>& table, Part part) { table.softmax(part, f.view(f.x), f.out); },
            [&](Index r) { return exact_softmax(f.row(f.x, r), f.cols); });
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(log_softmax_of_every_width, T, Elements) {
  for_every_width<T>([](Fixture<T>& f) {
    f.check([&](const Table<T>& table, Part part) { table.log_softmax(part, f.view(f.x), f.out); },
            [&](Index r) {
              std::vector<double> y = exact_softmax(f.row(f.x, r), f.cols);
              for (double& element : y) element = std::log(element);
              return y;
            });
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(softmax_backward_of_every_width, T, Elements) {
  for_every_width<T>([](Fixture<T>& f) {  // any y will do
    f.check([&](const Table<T>& table, Part part) { table.softmax_backward(part, f.view(f.t), f.view(f.dy), f.out); },
            [&](Index r) {
              const T *y = f.row(f.t, r), *dy = f.row(f.dy, r);
              double dot = 0;
              for (Index j = 0; j < f.cols; ++j) dot += double{y[j]} * double{dy[j]};
              std::vector<double> dx;
              for (Index j = 0; j < f.cols; ++j) dx.push_back(double{y[j]} * (double{dy[j]} - dot));
              return dx;
            });
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(log_softmax_backward_of_every_width, T, Elements) {
  for_every_width<T>([](Fixture<T>& f) {
    f.check(
        [&](const Table<T>& table, Part part) { table.log_softmax_backward(part, f.view(f.t), f.view(f.dy), f.out); },
        [&](Index r) {
          const T *y = f.row(f.t, r), *dy = f.row(f.dy, r);
          double sum = 0;
          for (Index j = 0; j < f.cols; ++j) sum += double{dy[j]};
          std::vector<double> dx;
          for (Index j = 0; j < f.cols; ++j) dx.push_back(double{dy[j]} - std::exp(double{y[j]}) * sum);
          return dx;
        });
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(cross_entropy_of_classes_of_every_width, T, Elements) {
  for_every_width<T>([](Fixture<T>& f) {
    std::vector<double> loss(2 * kRows);
    f.check(
        [&](const Table<T>& table, Part part) {
          table.cross_entropy_of_classes(part, f.view(f.x), f.classes.data(), kScale, f.out, loss.data());
        },
        [&](Index r) {
          std::vector<double> y = exact_softmax(f.row(f.x, r), f.cols);
          const auto at = static_cast<std::size_t>(r), wanted = static_cast<std::size_t>(f.classes[at]);
          BOOST_TEST(std::abs(loss[2 * at] + std::log(y[wanted])) <= 1e-5 * (1 + loss[2 * at]));
          const bool correct = std::max_element(y.begin(), y.end()) - y.begin() == f.classes[at];
          BOOST_TEST(loss[2 * at + 1] == (correct ? 1 : 0));
          for (double& element : y) element *= kScale;
          y[wanted] -= kScale;
          return y;
        });
    std::vector<double> value(2 * kRows);
    for_each_isa<T>([&](const Table<T>& table) {  // the same loss without dy
      table.cross_entropy_of_classes({}, f.view(f.x), f.classes.data(), kScale, {}, value.data());
      for (std::size_t i = 0; i < value.size(); ++i) BOOST_TEST(std::abs(value[i] - loss[i]) <= 1e-5 * (1 + loss[i]));
    });
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(cross_entropy_of_targets_of_every_width, T, Elements) {
  for_every_width<T>([](Fixture<T>& f) {
    std::vector<double> loss(2 * kRows);
    f.check(
        [&](const Table<T>& table, Part part) {
          table.cross_entropy_of_targets(part, f.view(f.x), f.view(f.t), kScale, f.out, loss.data());
        },
        [&](Index r) {
          std::vector<double> y = exact_softmax(f.row(f.x, r), f.cols);
          const T* t = f.row(f.t, r);
          const double total = std::accumulate(t, t + f.cols, 0.0);
          const bool correct = std::max_element(y.begin(), y.end()) - y.begin() == std::max_element(t, t + f.cols) - t;
          BOOST_TEST(loss[2 * static_cast<std::size_t>(r) + 1] == (correct ? 1 : 0));
          double want = 0;
          for (std::size_t j = 0; j < y.size(); ++j) {
            want -= double{t[j]} * std::log(y[j]);
            y[j] = kScale * (y[j] * total - double{t[j]});
          }
          BOOST_TEST(loss[2 * static_cast<std::size_t>(r)] == want, boost::test_tools::tolerance(1e-5));
          return y;
        });
  });
}

BOOST_AUTO_TEST_CASE(the_first_of_equal_outputs_is_the_answer) {
  const std::vector<float> y = {1, 3, 3, 2, 3, 3, 1, 2};
  const std::vector<std::int32_t> classes = {1, 1};
  for_each_isa<float>([&](const Table<float>& table) {
    double rows[4];
    table.cross_entropy_of_classes({}, {y.data(), 2, 4}, classes.data(), 1, {}, rows);
    BOOST_TEST(rows[1] == 1);  // 3 at 1 and 2
    BOOST_TEST(rows[3] == 0);  // 3 at 0 and 1
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_nan_or_an_infinity_spoils_its_row_only, T, Elements) {
  std::vector<T> x(3 * 10, T(1)), y(3 * 10);
  x[3] = std::numeric_limits<T>::quiet_NaN();
  x[15] = -std::numeric_limits<T>::infinity();
  for_each_isa<T>([&](const Table<T>& table) {
    table.softmax({}, {x.data(), 3, 10}, {y.data(), 3, 10});
    for (std::size_t i = 0; i < 10; ++i) {
      BOOST_TEST(std::isnan(y[i]));
      BOOST_TEST(std::abs(y[10 + i] - (i == 5 ? T(0) : T(1) / 9)) < T(1e-6));
      BOOST_TEST(std::abs(y[20 + i] - T(0.1)) < T(1e-6));
    }
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
