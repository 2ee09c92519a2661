// Column sums and gathered rows against plain loops, at every remainder of a vector.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;

BOOST_AUTO_TEST_SUITE(columns)

BOOST_AUTO_TEST_CASE_TEMPLATE(column_sums_of_every_width, T, Elements) {
  Guarded<T> in(9 * 140), out(140);
  for (const Index rows : {0, 1, 9}) {
    for (Index cols = 0; cols <= 140; ++cols) {
      const Matrix<T> x(in.at_end(rows * cols), rows, cols);
      fill(x.data, rows * cols, 30);
      T* const sums = out.at_end(cols);
      for (const bool add : {false, true}) {
        for_each_isa<T>([&](const Table<T>& table) {
          for (const int team : {1, 2, 3}) {
            std::fill_n(sums, cols, T(2));
            as_team(team, [&](Part part) { table.column_sums(part, x, {}, add, sums); });
            for (Index j = 0; j < cols; ++j) {
              T want = add ? T(2) : T(0);  // in the rows' order, so bit for bit
              for (Index r = 0; r < rows; ++r) want += x.row(r)[j];
              if (sums[j] != want) BOOST_ERROR("column " << j << " of " << cols << ": " << sums[j] << ", not " << want);
            }
          }
        });
      }
    }
  }
}

template <class T, class Source, class Gather>
void check_gather(Gather gather) {
  const Index stride = 45, order[] = {3, 0, 6, 3, 5};
  std::vector<Source> x(7 * 45);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<Source>(i % 251);
  Guarded<T> memory(5 * 45);
  for (const Index width : {0, 1, 7, 16, 33, 45}) {
    T* const out = memory.at_end(5 * width);
    for_each_isa<T>([&](const Table<T>& table) {
      for (const int team : {1, 2, 3}) {
        std::fill_n(out, 5 * width, T(-1));
        as_team(team, [&](Part part) { gather(table)(part, x.data(), stride, order, 5, width, 1 / 255., 0.5, out); });
        for (Index r = 0; r < 5; ++r) {
          for (Index j = 0; j < width; ++j) {
            const double want = static_cast<double>(x[static_cast<std::size_t>(order[r] * stride + j)]) / 255 + 0.5;
            if (!(std::abs(double{out[r * width + j]} - want) <= 4 * double{std::numeric_limits<T>::epsilon()}))
              BOOST_ERROR("(" << r << ", " << j << "): " << out[r * width + j] << ", expected " << want);
          }
        }
      }
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(gathered_rows_are_converted, T, Elements) {
  check_gather<T, std::uint8_t>([](const Table<T>& table) { return table.gather_bytes; });
  check_gather<T, float>([](const Table<T>& table) { return table.gather_floats; });
  check_gather<T, double>([](const Table<T>& table) { return table.gather_doubles; });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
