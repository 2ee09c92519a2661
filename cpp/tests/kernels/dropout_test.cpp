// Dropout's mask is the one that Rng::bits32 draws, whoever draws it and in whichever pieces.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include "pdnn/core/random.hpp"
#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;

BOOST_AUTO_TEST_SUITE(dropout_mask)

BOOST_AUTO_TEST_CASE_TEMPLATE(equals_the_generator_for_every_width, T, Elements) {
  const Rng key = Rng(42).child(7);
  const Index rows = 3;
  const double p = 0.25;
  Guarded<T> memory(rows * 80);
  for (Index cols = 0; cols <= 80; ++cols) {
    const Matrix<T> x(memory.at_end(rows * cols), rows, cols);
    const Index stride = cols + 7 * (cols % 3), first = 11 * stride + cols % 5;  // whole rows, or a part of wider ones
    fill(x.data, rows * cols, 40);
    for_each_isa<T>([&](const Table<T>& table) {
      for (const int team : {1, 2}) {
        std::vector<T> y(static_cast<std::size_t>(rows * cols), T(-1));
        as_team(team, [&](Part part) { table.dropout(part, key.key(), first, stride, p, x, {y.data(), rows, cols}); });
        for (Index i = 0; i < rows * cols; ++i) {
          const Index number = first + i / cols * stride + i % cols;
          const bool kept = key.bits32(static_cast<std::uint64_t>(number)) >= p * 0x1p32;
          if (y[static_cast<std::size_t>(i)] != (kept ? x.data[i] * static_cast<T>(1 / (1 - p)) : T(0)))
            BOOST_ERROR("element " << i << " of rows of " << cols << " is " << y[static_cast<std::size_t>(i)]);
        }
      }
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(keeps_the_mean, T, Elements) {
  const Index n = 100000;
  const std::vector<T> x(n, T(1));
  std::vector<T> y(n);
  for (const double p : {0.0, 0.1, 0.4, 0.999}) {
    table<T>().dropout({}, Rng(1).key(), 0, n, p, {x.data(), 1, n}, {y.data(), 1, n});
    const double zeros = static_cast<double>(std::count(y.begin(), y.end(), T(0))) / n;
    BOOST_TEST(std::abs(zeros - p) <= 5 * std::sqrt(p * (1 - p) / n));
    BOOST_TEST(*std::max_element(y.begin(), y.end()) == static_cast<T>(1 / (1 - p)));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
