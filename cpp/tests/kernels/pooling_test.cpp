// Pooling against its definition, for every channel count and window, between forbidden pages, for every build.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include "pdnn/core/errors.hpp"
#include "random_rounds.hpp"
#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;

Windows windows_of(Index height, Index width, Index kernel_height, Index kernel_width, Index stride,
                   Index padding = 0) {
  return {axis_of(height, kernel_height, stride, padding), axis_of(width, kernel_width, stride, padding)};
}

/// Both kinds of pooling and their backward passes, by a team; every array ends at a forbidden page.
template <class T>
struct Pooled {
  std::vector<T> largest, mean, largest_dx, mean_dx;
  std::vector<std::uint8_t> winners;
  bool operator==(const Pooled&) const = default;
};

template <class T>
Pooled<T> pool(const Table<T>& table, int team, const Windows& v, Index channels, Index batch, const std::vector<T>& x,
               const std::vector<T>& dy, bool relu = false) {
  static Guarded<T> memory[4] = {Guarded<T>(1 << 14), Guarded<T>(1 << 14), Guarded<T>(1 << 14), Guarded<T>(1 << 14)};
  static Guarded<std::uint8_t> bytes(1 << 14);
  const Index x_count = static_cast<Index>(x.size()), y_count = static_cast<Index>(dy.size());
  T *const in = memory[0].at_end(x_count), *const gradient = memory[1].at_end(y_count);
  T *const y = memory[2].at_end(y_count), *const dx = memory[3].at_end(x_count);
  std::uint8_t* const winners = bytes.at_end(y_count);
  std::copy(x.begin(), x.end(), in);
  std::copy(dy.begin(), dy.end(), gradient);
  const auto untouched = [&] { std::fill_n(dx, x_count, T(12345)), std::fill_n(y, y_count, T(12345)); };
  Pooled<T> result;
  untouched();
  as_team(team, [&](Part part) { table.max_pool(part, v, channels, batch, relu, in, y, winners); });
  as_team(team, [&](Part part) { table.max_pool_backward(part, v, channels, batch, winners, gradient, dx); });
  result.largest.assign(y, y + y_count), result.largest_dx.assign(dx, dx + x_count);
  result.winners.assign(winners, winners + y_count);
  untouched();
  as_team(team, [&](Part part) { table.mean_pool(part, v, channels, batch, in, y); });
  as_team(team, [&](Part part) { table.mean_pool_backward(part, v, channels, batch, gradient, dx); });
  result.mean.assign(y, y + y_count), result.mean_dx.assign(dx, dx + x_count);
  return result;
}

template <class T>
void check(const Windows& v, Index channels, Index batch, int large_team = 37) {
  std::vector<T> x = numbers<T>(batch * v.y.extent * v.x.extent * channels, 1);
  for (std::size_t i = 0; i < x.size(); i += 3) x[i] = T(0.5);  // equal ones: the first wins
  const std::vector<T> dy = numbers<T>(batch * v.y.places * v.x.places * channels, 2);
  std::vector<T> largest(dy.size());
  std::vector<double> mean(dy.size()), largest_dx(x.size()), mean_dx(x.size());
  for (std::size_t to = 0; to < dy.size(); ++to) {
    const Index at = static_cast<Index>(to), q = at / channels % v.x.places,
                p = at / channels / v.x.places % v.y.places, n = at / channels / v.x.places / v.y.places;
    bool found = false;
    std::size_t winner = 0;
    const double taps = static_cast<double>(v.y.kernel * v.x.kernel);
    for (Index i = 0; i < v.y.kernel; ++i)
      for (Index j = 0; j < v.x.kernel; ++j) {
        const Index row = p * v.y.stride + i - v.y.padding, column = q * v.x.stride + j - v.x.padding;
        if (row < 0 || row >= v.y.extent || column < 0 || column >= v.x.extent) continue;
        const auto element =
            static_cast<std::size_t>(((n * v.y.extent + row) * v.x.extent + column) * channels + at % channels);
        if (!found || x[element] > x[winner]) winner = element;
        found = true;
        mean[to] += double{x[element]} / taps;
        mean_dx[element] += double{dy[to]} / taps;
      }
    largest[to] = x[winner];
    largest_dx[winner] += double{dy[to]};
  }
  const double unit = 30 * double{std::numeric_limits<T>::epsilon()};
  const auto close = [&](const std::vector<T>& got, const std::vector<double>& want) {
    for (std::size_t i = 0; i < want.size(); ++i)
      if (!(std::abs(double{got[i]} - want[i]) <= unit)) return false;
    return true;
  };
  for_each_isa<T>([&](const Table<T>& table) {
    const Pooled<T> got = pool(table, 1, v, channels, batch, x, dy);
    const std::string where =
        message(batch, " x ", v.y.extent, "x", v.x.extent, "x", channels, ", window ", v.y.kernel, ", stride ",
                v.y.stride, "x", v.x.stride, ", padding ", v.y.padding, "x", v.x.padding);
    if (got.largest != largest) BOOST_ERROR("the largest, " << where);
    if (!close(got.mean, mean)) BOOST_ERROR("the mean, " << where);
    if (!close(got.largest_dx, largest_dx)) BOOST_ERROR("the gradient of the largest, " << where);
    if (!close(got.mean_dx, mean_dx)) BOOST_ERROR("the gradient of the mean, " << where);
    for (const int team : {2, 3, 4, large_team})
      if (got != pool(table, team, v, channels, batch, x, dy)) BOOST_ERROR("a team of " << team << ", " << where);
  });
}

BOOST_AUTO_TEST_SUITE(pooling)

BOOST_AUTO_TEST_CASE_TEMPLATE(equals_its_definition_for_any_channels, T, Elements) {
  for (const Index channels : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 67})
    check<T>(windows_of(4, 6, 2, 2, 2), channels, 2);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equals_its_definition_for_any_window, T, Elements) {
  for (const Index height : {3, 5, 8})
    for (const Index width : {3, 7})
      for (const Index kernel : {1, 2, 3})
        for (const Index stride : {1, 2, 3, 4}) check<T>(windows_of(height, width, kernel, kernel, stride), 5, 3);
  for (const Index kernel : {2, 3, 5})
    for (const Index stride : {1, 2, 3, 5}) check<T>(windows_of(6, 7, kernel, kernel, stride, kernel / 2), 5, 3);
  check<T>(windows_of(3, 3, 3, 3, 3, 1), 5, 3);  // a window as large as the image, but not upon it
  check<T>(windows_of(5, 7, 5, 7, 1), 18, 3);
  for (const bool wide : {false, true})  // no window has the columns, or rows, between two of them
    check<T>(wide ? windows_of(4, 4, 1, 2, 2) : windows_of(4, 4, 2, 1, 2), 5, 3);
  check<T>(windows_of(16, 16, 16, 16, 1), 3, 2);  // as many taps as a byte counts
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equals_its_definition_for_any_batch, T, Elements) {
  for (const Index batch : {0, 1, 2, 3, 7}) check<T>(windows_of(5, 5, 2, 2, 2), 3, batch);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equals_its_definition_at_random_sizes, T, Elements) {
  tests::random_rounds(60, [](tests::Draw& draw) {
    const Index kernel_height = draw(1, 5), kernel_width = draw.once_in(3) ? draw(1, 5) : kernel_height;
    const Index height = kernel_height + draw(0, 7), width = kernel_width + draw(0, 7);
    const Windows windows{axis_of(height, kernel_height, draw(1, 5), draw(0, kernel_height / 2)),
                          axis_of(width, kernel_width, draw(1, 5), draw(0, kernel_width / 2))};
    check<T>(windows, draw(1, 40), draw(0, 2), static_cast<int>(draw(1, 50)));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_nan_wins_and_gets_the_gradient, T, Elements) {
  const T nan = std::numeric_limits<T>::quiet_NaN(), infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> x = {1, nan, infinity, 2, 3, infinity, 4, 5};  // two windows of 2 x 2, side by side
  for_each_isa<T>([&](const Table<T>& table) {
    const Pooled<T> got = pool<T>(table, 1, windows_of(2, 4, 2, 2, 2), 1, 1, x, {7, 8});
    BOOST_TEST(std::isnan(got.largest[0]));
    BOOST_TEST(got.largest[1] == infinity);
    BOOST_TEST(got.largest_dx == (std::vector<T>{0, 7, 8, 0, 0, 0, 0, 0}), boost::test_tools::per_element());
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(relu_cuts_what_is_not_positive_and_its_slope, T, Elements) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> x = {-1, 2, 0, -4, nan, -3};  // three windows of 1 x 2
  for_each_isa<T>([&](const Table<T>& table) {
    const Pooled<T> got = pool<T>(table, 1, {axis_of(1, 1, 2), axis_of(6, 2, 2)}, 1, 1, x, {7, 8, 9}, true);
    BOOST_TEST(got.largest[0] == 2);
    BOOST_TEST(got.largest[1] == 0);
    BOOST_TEST(std::isnan(got.largest[2]));
    BOOST_TEST(got.largest_dx == (std::vector<T>{0, 7, 0, 0, 9, 0}), boost::test_tools::per_element());
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(samples_are_transposed, T, Elements) {
  for (const Index rows : {1, 3, 8, 17})
    for (const Index cols : {1, 5, 16, 35}) {
      const std::vector<T> x = numbers<T>(3 * rows * cols, 1);
      for_each_isa<T>([&](const Table<T>& table) {
        std::vector<T> y(x.size()), back(x.size());
        as_team(2, [&](Part part) { table.transpose_samples(part, 3, rows, cols, x.data(), y.data()); });
        as_team(4, [&](Part part) { table.transpose_samples(part, 3, cols, rows, y.data(), back.data()); });
        BOOST_TEST(back == x);
        std::vector<T> expected;
        for (std::size_t n = 0; n < 3; ++n)
          for (Index j = 0; j < cols; ++j)
            for (Index i = 0; i < rows; ++i)
              expected.push_back(x[n * x.size() / 3 + static_cast<std::size_t>(i * cols + j)]);
        BOOST_TEST(y == expected);
      });
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
