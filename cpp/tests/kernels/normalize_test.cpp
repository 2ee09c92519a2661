// Normalization of columns and rows against plain loops in double, for every width; teams must agree on every bit.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;
constexpr Index kMostCols = 140, kMostRows = 300;
constexpr double kEps = 1e-5;

std::vector<Index> widths() { return {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100, 128, 140}; }
std::vector<Index> heights() { return {0, 1, 2, 7, 8, 9, 33, 300}; }

template <class T>
double tolerance() {
  return 64 * double{std::numeric_limits<T>::epsilon()};
}

/// `count` elements that end at a forbidden page.
template <class T>
class Array {
 public:
  explicit Array(Index most) : memory_(most) {}
  T* operator()(Index count) { return data_ = memory_.at_end(count); }
  T* operator()(Index count, std::uint64_t seed, double middle = 0) {
    fill((*this)(count), count, seed);
    for (Index i = 0; i < count; ++i) data_[i] = static_cast<T>(data_[i] + static_cast<T>(middle));
    return data_;
  }

 private:
  Guarded<T> memory_;
  T* data_ = nullptr;
};

/// Runs work(table, part) for each build and team, with `out` cleared before; the first team of a build is checked by
/// check(), the others must give its bits.
template <class T, class Work, class Check>
void for_each_build(T* out, Index count, Work work, Check check) {
  for_each_isa<T>([&](const Table<T>& table) {
    std::vector<T> alone;
    for (const int team : {1, 2, 3, 5, 11}) {
      std::fill_n(out, count, T(-7));
      as_team(team, [&](Part part) { work(table, part); });
      if (team == 1) {
        check();
        alone.assign(out, out + count);
      } else if (!same_bits(out, alone.data(), count)) {
        BOOST_ERROR("a team of " << team << " gave other bits");
      }
    }
  });
}

template <class T>
void expect(T got, double want, double size, const char* what, Index i, Index j) {
  if (!(std::abs(double{got} - want) <= tolerance<T>() * (1 + std::abs(size))))
    BOOST_ERROR(what << "(" << i << ", " << j << "): " << got << ", expected " << want);
}

BOOST_AUTO_TEST_SUITE(normalization)

BOOST_AUTO_TEST_CASE_TEMPLATE(moments_of_chunks_far_from_zero, T, Elements) {
  Array<T> xs(kMostRows * kMostCols), out(2 * kChunks * kMostCols);
  const double middle = 100;  // squares of sums would lose most digits
  for (const Index rows : heights())
    for (const Index cols : widths()) {
      const Matrix<const T> x(xs(rows * cols, 1, middle), rows, cols);
      T* const moments = out(2 * kChunks * cols);
      for_each_build<T>(
          moments, 2 * kChunks * cols,
          [&](const Table<T>& table, Part part) { table.column_moments(part, x, {}, moments); },
          [&] {
            for (Index q = 0; q < kChunks; ++q)
              for (Index j = 0; j < cols; ++j) {
                const Range chunk = share(rows, q, kChunks);
                double mean = 0, squares = 0;
                for (Index r = chunk.begin; r < chunk.end; ++r) mean += double{x.row(r)[j]};
                if (chunk.size() > 0) mean /= static_cast<double>(chunk.size());
                for (Index r = chunk.begin; r < chunk.end; ++r) squares += std::pow(double{x.row(r)[j]} - mean, 2);
                expect(moments[2 * q * cols + j], mean, mean, "mean", q, j);
                expect(moments[(2 * q + 1) * cols + j], squares, squares * middle, "squares", q, j);
              }
          });
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(columns_are_normalized_forward_and_backward, T, Elements) {
  Array<T> xs(kMostRows * kMostCols), ys(kMostRows * kMostCols), dys(kMostRows * kMostCols), out(kMostRows * kMostCols),
      means(kMostCols), vars(kMostCols), gammas(kMostCols), betas(kMostCols), shifts(kMostCols), slopes(kMostCols),
      sums_out(2 * kChunks * kMostCols);
  for (const bool relu : {false, true})
    for (const Index rows : {0, 1, 9, 300})
      for (const Index cols : widths()) {
        const Matrix<const T> x(xs(rows * cols, 1), rows, cols), y(ys(rows * cols, 2), rows, cols),
            dy(dys(rows * cols, 3), rows, cols);
        const NormParams<T> normal{means(cols, 4), vars(cols, 5, 1.5), gammas(cols, 6), betas(cols, 7), kEps};
        const T *const shift = shifts(cols, 8), *const slope = slopes(cols, 9);
        const Matrix<T> result(out(rows * cols), rows, cols);
        const auto scale = [&](Index j) { return double{normal.gamma[j]} / std::sqrt(double{normal.var[j]} + kEps); };
        const auto apart = [&](Index r, Index j) { return double{x.row(r)[j]} - double{normal.mean[j]}; };
        const auto dz = [&](Index r, Index j) { return relu && y.row(r)[j] <= 0 ? 0 : double{dy.row(r)[j]}; };
        const auto each = [&](auto check) {
          for (Index r = 0; r < rows; ++r)
            for (Index j = 0; j < cols; ++j) check(r, j);
        };
        for_each_build<T>(
            result.data, rows * cols,
            [&](const Table<T>& table, Part part) { table.normalize(part, x, normal, relu, result); },
            [&] {
              each([&](Index r, Index j) {
                const double value = apart(r, j) * scale(j) + double{normal.beta[j]};
                expect(result.row(r)[j], relu ? std::max(value, 0.0) : value, 3, "y", r, j);
              });
            });
        for_each_build<T>(
            result.data, rows * cols,
            [&](const Table<T>& table, Part part) {
              table.normalize_backward(part, x, y, dy, normal, shift, slope, relu, result);
            },
            [&] {
              each([&](Index r, Index j) {
                const double want = (dz(r, j) - double{shift[j]} - apart(r, j) * double{slope[j]}) * scale(j);
                expect(result.row(r)[j], want, 3, "dx", r, j);
              });
            });
        T* const sums = sums_out(2 * kChunks * cols);
        for_each_build<T>(
            sums, 2 * kChunks * cols,
            [&](const Table<T>& table, Part part) {
              table.normalize_sums(part, x, y, dy, normal.mean, relu, {}, sums);
            },
            [&] {
              for (Index q = 0; q < kChunks; ++q)
                for (Index j = 0; j < cols; ++j) {
                  const Range chunk = share(rows, q, kChunks);
                  double sum = 0, tilt = 0;
                  for (Index r = chunk.begin; r < chunk.end; ++r) sum += dz(r, j), tilt += dz(r, j) * apart(r, j);
                  expect(sums[2 * q * cols + j], sum, 10, "sum of dz", q, j);
                  expect(sums[(2 * q + 1) * cols + j], tilt, 10, "sum of dz (x - mean)", q, j);
                }
            });
      }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_are_normalized_forward_and_backward, T, Elements) {
  Array<T> xs(9 * kMostCols), dys(9 * kMostCols), out(9 * kMostCols), gammas(kMostCols), betas(kMostCols),
      moments_out(18), dgammas(kMostCols), dbetas(kMostCols);
  for (const Index rows : {0, 1, 9})
    for (const Index cols : widths()) {
      const Matrix<const T> x(xs(rows * cols, 1, 10), rows, cols), dy(dys(rows * cols, 3), rows, cols);
      const T *const gamma = gammas(cols, 6), *const beta = betas(cols, 7);
      const Matrix<T> result(out(rows * cols), rows, cols);
      T* const moments = moments_out(2 * rows);
      std::vector<double> mean, scale;
      for (Index r = 0; r < rows; ++r) {
        double sum = 0, squares = 0;
        for (Index j = 0; j < cols; ++j) sum += double{x.row(r)[j]};
        mean.push_back(sum / static_cast<double>(cols));
        for (Index j = 0; j < cols; ++j) squares += std::pow(double{x.row(r)[j]} - mean.back(), 2);
        scale.push_back(1 / std::sqrt(squares / static_cast<double>(cols) + 0.1));
      }
      const auto z = [&](Index r, Index j) {
        const auto row = static_cast<std::size_t>(r);
        return (double{x.row(r)[j]} - mean[row]) * scale[row];
      };
      for_each_build<T>(
          result.data, rows * cols,
          [&](const Table<T>& table, Part part) { table.layer_norm(part, x, gamma, beta, 0.1, result, moments); },
          [&] {
            for (Index r = 0; r < rows; ++r)
              for (Index j = 0; j < cols; ++j)
                expect(result.row(r)[j], z(r, j) * double{gamma[j]} + double{beta[j]}, 10, "y", r, j);
          });
      for_each_build<T>(
          result.data, rows * cols,
          [&](const Table<T>& table, Part part) { table.layer_norm_backward(part, x, dy, gamma, moments, result); },
          [&] {
            for (Index r = 0; r < rows; ++r) {
              double shift = 0, tilt = 0;
              const auto dz = [&](Index j) { return double{dy.row(r)[j]} * double{gamma[j]}; };
              for (Index j = 0; j < cols; ++j) shift += dz(j), tilt += dz(j) * z(r, j);
              shift /= static_cast<double>(cols), tilt /= static_cast<double>(cols);
              for (Index j = 0; j < cols; ++j)
                expect(result.row(r)[j], (dz(j) - shift - z(r, j) * tilt) * scale[static_cast<std::size_t>(r)], 10,
                       "dx", r, j);
            }
          });
      for (const bool add : {false, true}) {
        T *const dgamma = dgammas(cols), *const dbeta = dbetas(cols);
        for_each_build<T>(
            dgamma, cols,
            [&](const Table<T>& table, Part part) {
              if (part.first()) std::fill_n(dbeta, cols, T(-7));
              table.layer_norm_sums(part, x, dy, moments, {}, add, dgamma, dbeta);
            },
            [&] {
              for (Index j = 0; j < cols; ++j) {
                double want_gamma = add ? -7 : 0, want_beta = want_gamma;
                for (Index r = 0; r < rows; ++r)
                  want_gamma += double{dy.row(r)[j]} * z(r, j), want_beta += double{dy.row(r)[j]};
                expect(dgamma[j], want_gamma, 20, "dgamma", 0, j);
                expect(dbeta[j], want_beta, 20, "dbeta", 0, j);
              }
            });
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
