// Products of sparse samples have the bits of those of the same samples with their zeros.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;

/// The values of some lines of a matrix [lines, width], element (i, j) being at(i, j), that are not 0.
template <class T>
struct Lines {
  std::vector<Index> starts{0};
  std::vector<std::int32_t> at;
  std::vector<T> values;

  template <class At>
  Lines(Index lines, Index width, At element) {
    for (Index i = 0; i < lines; ++i) {
      for (Index j = 0; j < width; ++j) {
        if (element(i, j) == 0) continue;
        at.push_back(static_cast<std::int32_t>(j));
        values.push_back(element(i, j));
      }
      starts.push_back(std::ssize(at));
    }
  }
  typename SparseBatch<T>::Lines view() const { return {starts.data(), at.data(), values.data()}; }
};

/// A batch, each row of which has a few elements, and most columns none.
template <class T>
class SparseProblem {
 public:
  SparseProblem(Index rows, Index inputs, Index outputs, Index panel)
      : rows_(rows), inputs_(inputs), outputs_(outputs), panel_(panel) {
    std::vector<T> sizes = numbers<T>(rows * inputs, 1), chances = numbers<T>(rows * inputs, 2);
    for (std::size_t i = 0; i < sizes.size(); ++i) x_.push_back(chances[i] > T(0.8) ? sizes[i] : T{});
    if (rows > 2) std::fill_n(x_.begin() + inputs, inputs, T{});  // a row of zeros
  }

  /// y by sparse or dense products, and three kinds of dw: stored, added to another, and applied to weights.
  std::vector<std::vector<T>> run(const Table<T>& table, int team, bool sparse, Activation f, bool has_bias) const {
    const auto element = [&](Index r, Index k) { return x_[static_cast<std::size_t>(r * inputs_ + k)]; };
    const Lines<T> by_row(rows_, inputs_, element);
    const Lines<T> by_column(inputs_, rows_, [&](Index k, Index r) { return element(r, k); });
    const SparseBatch<T> x{by_row.view(), by_column.view()};
    const Matrix<const T> dense(x_.data(), rows_, inputs_);
    const Index weights = inputs_ * outputs_;
    const std::vector<T> w = numbers<T>(weights, 3), b = numbers<T>(outputs_, 4), dy = numbers<T>(rows_ * outputs_, 5);
    const Matrix<const T> delta(dy.data(), rows_, outputs_);
    std::vector<T> y(dy.size()), stored(w.size()), added = numbers<T>(weights, 6), applied = w, v = added,
                                                   room(w.size());
    const T* const bias = has_bias ? b.data() : nullptr;
    const auto panels = [&](auto* values) { return PanelMatrix(values, inputs_, outputs_, panel_); };
    const Update<T> update{Sgd::Step{0.1, 0.9, 0.01, false}, applied.data(), {v.data()}};
    as_team(team, [&](Part part) {
      const Matrix<T> out(y.data(), rows_, outputs_);
      if (sparse) {
        table.sparse_nn(part, x, panels(w.data()), bias, f, out);
        table.sparse_tn(part, x, delta, nullptr, nullptr, panels(stored.data()));
        table.sparse_tn(part, x, delta, added.data(), nullptr, panels(added.data()));
        table.sparse_tn(part, x, delta, w.data(), &update, panels(room.data()));
      } else {
        table.product_nn(part, dense, panels(w.data()), bias, f, out);
        table.product_tn(part, dense, delta, {}, false, panels(stored.data()), nullptr);
        table.product_tn(part, dense, delta, {}, true, panels(added.data()), nullptr);
        table.product_tn_update(part, dense, delta, {}, update, w.data(), panels(room.data()), nullptr);
      }
    });
    return {y, stored, added, applied, v};
  }

 private:
  Index rows_, inputs_, outputs_, panel_;
  std::vector<T> x_;
};

template <class T>
void check_shape(Index rows, Index inputs, Index outputs, Index panel) {
  const SparseProblem<T> problem(rows, inputs, outputs, panel);
  const bool odd = (rows + inputs + outputs) % 2 == 1;
  const Activation f = odd ? Activation::tanh : Activation::relu;
  for_each_isa<T>([&](const Table<T>& table) {
    const auto want = problem.run(table, 1, false, f, odd);
    for (const int team : {1, 3}) {
      const auto got = problem.run(table, team, true, f, odd);
      for (std::size_t i = 0; i < want.size(); ++i)
        if (!same_bits(got[i].data(), want[i].data(), std::ssize(want[i])))
          BOOST_ERROR("result " << i << " of " << rows << "x" << inputs << " and " << inputs << "x" << outputs
                                << " by a team of " << team);
    }
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sparse)

BOOST_AUTO_TEST_CASE_TEMPLATE(they_have_the_bits_of_dense_products, T, Elements) {
  constexpr Index kWide = kPanel<T>;
  for (const Index rows : {0, 1, 3, 20})
    for (const Index inputs : {0, 1, 33, 150})
      for (const Index outputs : {Index{0}, Index{1}, Index{10}, kWide - 1, kWide, kWide + 5, 3 * kWide + 7}) {
        check_shape<T>(rows, inputs, outputs, kWide);
        check_shape<T>(rows, inputs, outputs, std::max<Index>(outputs, 1));  // row-major
      }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace pdnn::kernels::testing
