// The three products against sums in double, at every remainder of a tile, between forbidden pages, for every build
// and precision.
#include <algorithm>
#include <bit>
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <utility>

#include "pdnn/core/errors.hpp"
#include "random_rounds.hpp"
#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;
enum class Kind { nn, nt, tn };
constexpr Kind kKinds[] = {Kind::nn, Kind::nt, Kind::tn};

/// c [rows, cols] = a [rows, depth] b [depth, cols], with a and b laid out as `kind` wants them. Rows of every matrix
/// lie `gap` elements further apart than they are long; the gaps of c hold `kUntouched` before and after.
template <class T>
class ProductProblem {
 public:
  static constexpr T kUntouched = T(12345);
  ProductProblem(Kind kind, Index rows, Index cols, Index depth, Index gap)
      : kind_(kind), rows_(rows), cols_(cols), depth_(depth), gap_(gap) {
    const auto matrix = [&](Guarded<T>& memory, Index r, Index c, std::uint64_t seed) {
      const Index count = span(r, c);
      T* const data = memory.at_end(count);
      fill(data, count, seed);
      return Matrix<T>(data, r, c, c + gap);
    };
    a_ = kind == Kind::tn ? matrix(memory()[0], depth, rows, 1) : matrix(memory()[0], rows, depth, 1);
    b_ = kind == Kind::nt ? matrix(memory()[1], cols, depth, 2) : matrix(memory()[1], depth, cols, 2);
    f_ = matrix(memory()[2], rows, cols, 3);
    bias_ = memory()[3].at_end(cols);
    fill(bias_, cols, 4);
  }

  /// The product by one build and a team; `add` starts from c = f, the others have bias and activation.
  std::vector<T> run(const ProductKernels<T>& products, int team, Activation f, bool add) {
    const Index count = span(rows_, cols_);
    Matrix<T> c(memory()[4].at_end(count), rows_, cols_, cols_ + gap_);
    std::fill_n(c.data, count, kUntouched);
    for (Index r = 0; add && r < rows_; ++r) std::copy_n(f_.row(r), cols_, c.row(r));
    as_team(team, [&](Part part) {
      if (kind_ == Kind::nn) products.product_nn(part, a_, b_, bias_, f, c);
      if (kind_ == Kind::nt) products.product_nt(part, a_, b_, f, f_, c);
      if (kind_ == Kind::tn) products.product_tn(part, a_, b_, {}, add, c, nullptr);
    });
    return {c.data, c.data + count};
  }

  /// Whether a team deals out the output: every element to one of its members, to none of them more than two members'
  /// share, nor more than half of the columns.
  bool is_dealt_out(const ProductKernels<T>& products, int team) {
    Matrix<T> c(memory()[4].at_end(span(rows_, cols_)), rows_, cols_, cols_ + gap_);
    std::vector<int> owners(static_cast<std::size_t>(rows_ * cols_));
    bool fair = true;
    as_team(team, [&](Part part) {
      std::fill_n(c.data, span(rows_, cols_), kUntouched);
      products.product_nn(part, a_, b_, bias_, Activation::identity, c);
      Index count = 0, last = -1, columns = 0;
      for (Index j = 0; j < cols_; ++j) {
        for (Index r = 0; r < rows_; ++r) {
          if (c.row(r)[j] == kUntouched) continue;
          ++owners[static_cast<std::size_t>(r * cols_ + j)], ++count;
          columns += std::exchange(last, j) != j;
        }
      }
      fair &= count * team <= 2 * rows_ * cols_ && 2 * columns <= cols_;
    });
    return fair && std::ranges::count(owners, 1) == rows_ * cols_;
  }

  void check(const std::vector<T>& c, Activation f, bool add, double rounding) const {
    for (Index r = 0; r < rows_; ++r) {
      for (Index j = 0; j < cols_; ++j) {
        double sum = kind_ == Kind::nn ? double{bias_[j]} : add ? double{f_.row(r)[j]} : 0, size = std::abs(sum);
        for (Index k = 0; k < depth_; ++k) {
          const double term = double{a(r, k)} * double{b(k, j)};
          sum += term;
          size += std::abs(term);
        }
        const double old = double{f_.row(r)[j]};
        if (kind_ == Kind::nn && f == Activation::tanh) sum = std::tanh(sum);
        if (kind_ == Kind::nt && f == Activation::tanh) sum *= 1 - old * old;
        const double epsilon = double{std::numeric_limits<T>::epsilon()};
        const double bound = (static_cast<double>(depth_) + 4) * epsilon * (size + 1) + rounding * size;
        const double got = double{c[static_cast<std::size_t>(r * (cols_ + gap_) + j)]};
        if (!(std::abs(got - sum) <= bound))
          BOOST_ERROR(where() << " at (" << r << ", " << j << "): " << got << ", expected " << sum);
      }
      for (Index j = cols_; r + 1 < rows_ && j < cols_ + gap_; ++j)
        if (c[static_cast<std::size_t>(r * (cols_ + gap_) + j)] != kUntouched)
          BOOST_ERROR(where() << " wrote behind row " << r);
    }
  }

  std::string where() const {
    return message("product ", static_cast<int>(kind_), " of ", rows_, "x", depth_, " and ", depth_, "x", cols_);
  }

 private:
  Index span(Index rows, Index cols) const { return rows == 0 ? 0 : (rows - 1) * (cols + gap_) + cols; }
  T a(Index r, Index k) const { return kind_ == Kind::tn ? a_.row(k)[r] : a_.row(r)[k]; }
  T b(Index k, Index j) const { return kind_ == Kind::nt ? b_.row(j)[k] : b_.row(k)[j]; }
  static Guarded<T>* memory() {
    static Guarded<T> memory[5] = {Guarded<T>(1 << 16), Guarded<T>(1 << 18), Guarded<T>(1 << 16), Guarded<T>(1 << 10),
                                   Guarded<T>(1 << 16)};
    return memory;
  }

  Kind kind_;
  Index rows_, cols_, depth_, gap_;
  Matrix<T> a_, b_, f_;
  T* bias_;
};

template <class T>
void check_shape(Kind kind, Index rows, Index cols, Index depth, int team = 0) {
  ProductProblem<T> problem(kind, rows, cols, depth, (rows + cols) % 3);
  const bool add = kind == Kind::tn && (rows + cols) % 2 == 0;
  const Activation f = (rows + cols) % 4 == 1 ? Activation::tanh : Activation::identity;
  if (team == 0) team = 2 + static_cast<int>((rows + cols + depth) % 3);
  for_each_products<T>([&](const Table<T>&, const ProductKernels<T>& products, double rounding) {
    const std::vector<T> alone = problem.run(products, 1, f, add);
    problem.check(alone, f, add, rounding);
    if (!same_bits(alone.data(), problem.run(products, team, f, add).data(), static_cast<Index>(alone.size())))
      BOOST_ERROR(problem.where() << ": a team of " << team << " changed bits");
  });
}

BOOST_AUTO_TEST_SUITE(products)

BOOST_AUTO_TEST_CASE_TEMPLATE(equal_sums_in_double_at_every_remainder_of_columns, T, Elements) {
  for (const Kind kind : kKinds)
    for (Index cols = 0; cols <= 130; ++cols)
      for (const Index rows : {1, 5, 13}) check_shape<T>(kind, rows, cols, 3);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equal_sums_in_double_at_every_remainder_of_rows, T, Elements) {
  for (const Kind kind : kKinds)
    for (Index rows = 0; rows <= 51; ++rows)
      for (const Index cols : {1, 10, 24, 64, 70}) check_shape<T>(kind, rows, cols, 5);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equal_sums_in_double_at_every_depth, T, Elements) {
  for (const Kind kind : kKinds)
    for (const Index depth : {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 127, 128, 129, 255, 256, 257, 400})
      for (const Index cols : {3, 16, 37, 65})
        for (const Index rows : {2, 14}) check_shape<T>(kind, rows, cols, depth);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equal_sums_in_double_at_random_sizes, T, Elements) {
  tests::random_rounds(60, [](tests::Draw& draw) {
    const Kind kind = draw.one_of({Kind::nn, Kind::nt, Kind::tn});
    const Index rows = draw(0, draw.once_in(4) ? 300 : 60), cols = draw(0, draw.once_in(4) ? 200 : 60);
    const Index depth = draw(0, draw.once_in(4) ? 200 : 40);
    check_shape<T>(kind, rows, cols, depth, static_cast<int>(draw(2, draw.once_in(3) ? 50 : 6)));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(many_workers_divide_both_rows_and_columns, T, Elements) {
  ProductProblem<T> problem(Kind::nn, 64, 256, 5, 0);
  for_each_products<T>([&](const Table<T>&, const ProductKernels<T>& products, double) {
    for (const int team : {8, 16}) BOOST_TEST(problem.is_dealt_out(products, team), "a team of " << team);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equal_sums_in_double_for_rows_pages_apart, T, Elements) {
  for (const Kind kind : kKinds) {
    for (const Index rows : {1, 4, 14}) {
      ProductProblem<T> problem(kind, rows, 150, 20, 1024);
      for_each_products<T>([&](const Table<T>&, const ProductKernels<T>& products, double rounding) {
        problem.check(problem.run(products, 1, Activation::identity, false), Activation::identity, false, rounding);
      });
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(an_empty_batch_may_be_null_and_has_no_gradient, T, Elements) {
  for_each_products<T>([&](const Table<T>&, const ProductKernels<T>& products, double) {
    std::vector<T> dw(30 * 20, T(3));
    products.product_tn({}, {nullptr, 0, 30}, {nullptr, 0, 20}, {}, true, {dw.data(), 30, 20}, nullptr);
    BOOST_TEST(std::count(dw.begin(), dw.end(), T(3)) == 600);
    products.product_tn({}, {nullptr, 0, 30}, {nullptr, 0, 20}, {}, false, {dw.data(), 30, 20}, nullptr);
    BOOST_TEST(std::count(dw.begin(), dw.end(), T(0)) == 600);
    products.product_nn({}, {nullptr, 0, 30}, {dw.data(), 30, 20}, nullptr, Activation::tanh, {nullptr, 0, 20});
    products.product_nt({}, {nullptr, 0, 20}, {dw.data(), 30, 20}, Activation::tanh, {nullptr, 0, 30},
                        {nullptr, 0, 30});
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(teams_of_any_size_agree_bit_for_bit, T, Elements) {
  for (const Kind kind : kKinds) {
    for (const Index cols : {10, 100, 256}) {
      ProductProblem<T> problem(kind, 37, cols, 150, 0);
      for_each_products<T>([&](const Table<T>&, const ProductKernels<T>& products, double) {
        const std::vector<T> alone = problem.run(products, 1, Activation::identity, false);
        for (const int team : {2, 3, 4, 7})
          BOOST_TEST(
              same_bits(alone.data(), problem.run(products, team, Activation::identity, false).data(), 37 * cols));
      });
    }
  }
}

// A row has the same bits in a batch of any size, however far apart rows of the weight lie: neither the copies that pay
// for many rows only, nor tiles for a row or two, nor the cuts of a large batch change them.
BOOST_AUTO_TEST_CASE_TEMPLATE(rows_do_not_depend_on_their_batch, T, Elements) {
  constexpr Index batch = 1400, inputs = 270, outputs = 203, element = sizeof(T);
  const std::vector<T> x = numbers<T>(batch * inputs, 1), dy = numbers<T>(batch * outputs, 2);
  const std::vector<T> b = numbers<T>(outputs, 3), memory = numbers<T>(inputs * 8192 / element, 4);
  for (const Index stride : {outputs, 4096 / element, 8192 / element}) {
    const PanelMatrix<const T> w = Matrix<const T>(memory.data(), inputs, outputs, stride);
    for_each_products<T>([&](const Table<T>&, const ProductKernels<T>& products, double) {
      const auto forward = [&](Index first, Index rows) {
        std::vector<T> y(static_cast<std::size_t>(rows * outputs));
        products.product_nn({}, {x.data() + first * inputs, rows, inputs}, w, b.data(), Activation::tanh,
                            {y.data(), rows, outputs});
        return y;
      };
      const auto backward = [&](Index first, Index rows) {
        std::vector<T> dx(static_cast<std::size_t>(rows * inputs));
        products.product_nt({}, {dy.data() + first * outputs, rows, outputs}, w, Activation::tanh,
                            {x.data() + first * inputs, rows, inputs}, {dx.data(), rows, inputs});
        return dx;
      };
      const std::vector<T> y = forward(0, batch), dx = backward(0, batch);
      for (const Index rows : {1, 2, 3, 4, 5, 6, 7, 13, 24, 25, 105, 256, 257, 300}) {
        const Index first = batch - rows - rows % 7;
        BOOST_TEST(same_bits(y.data() + first * outputs, forward(first, rows).data(), rows * outputs),
                   "y of " << rows << " rows, w's " << stride << " apart");
        BOOST_TEST(same_bits(dx.data() + first * inputs, backward(first, rows).data(), rows * inputs),
                   "dx of " << rows << " rows, w's " << stride << " apart");
      }
    });
  }
}

// The same for weights of any depth and width, in rows near each other, pages apart or in panels, and for every worker.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_few_rows_are_those_of_a_batch, T, Elements) {
  constexpr Index batch = 30, page = 4096 / Index{sizeof(T)}, most_depth = 41, most_cols = 203;
  const std::vector<T> x = numbers<T>(batch * most_depth, 1), b = numbers<T>(most_cols, 2);
  const std::vector<T> memory = numbers<T>(most_depth * page, 3);
  for (const Index depth : {0, 1, 7, 8, 9, 41}) {
    for (const Index cols : {1, 5, 8, 16, 33, 64, 203}) {
      PanelMatrix<const T> far = Matrix<const T>(memory.data(), depth, cols, page);
      const PanelMatrix<const T> weights[] = {
          {memory.data(), depth, cols}, far, {memory.data(), depth, cols, kPanel<T>}};
      for_each_products<T>([&](const Table<T>&, const ProductKernels<T>& products, double) {
        for (const PanelMatrix<const T>& w : weights) {
          const auto forward = [&](Index rows, int team, const T* bias) {
            std::vector<T> y(static_cast<std::size_t>(rows * cols));
            as_team(team, [&](Part part) {
              products.product_nn(part, {x.data(), rows, depth}, w, bias, Activation::relu, {y.data(), rows, cols});
            });
            return y;
          };
          for (const T* const bias : {b.data(), static_cast<const T*>(nullptr)}) {
            const std::vector<T> all = forward(batch, 1, bias);
            for (const Index rows : {1, 2, 3, 4, 5})
              for (const int team : {1, 2, 5})
                BOOST_TEST(same_bits(all.data(), forward(rows, team, bias).data(), rows * cols),
                           rows << " rows by " << depth << "x" << cols << ", a team of " << team);
          }
        }
      });
    }
  }
}

// One product is as good as two parts of the batch added up: micro-batches change no bit of a weight's gradient. With
// bfloat16 these must be whole pairs of rows, with tiles 32 rows or a multiple of them.
BOOST_AUTO_TEST_CASE_TEMPLATE(adding_two_parts_of_a_batch_is_one_sum, T, Elements) {
  const std::vector<T> x = numbers<T>(100 * 30, 1), dy = numbers<T>(100 * 20, 2);
  for_each_products<T>([&](const Table<T>&, const ProductKernels<T>& products, double) {
    std::vector<T> whole(30 * 20), parts(30 * 20);
    products.product_tn({}, {x.data(), 100, 30}, {dy.data(), 100, 20}, {}, false, {whole.data(), 30, 20}, nullptr);
    products.product_tn({}, {x.data(), 64, 30}, {dy.data(), 64, 20}, {}, false, {parts.data(), 30, 20}, nullptr);
    products.product_tn({}, {x.data() + 64 * 30, 36, 30}, {dy.data() + 64 * 20, 36, 20}, {}, true,
                        {parts.data(), 30, 20}, nullptr);
    BOOST_TEST(whole == parts, boost::test_tools::per_element());
  });
}

template <class T>
std::vector<T> positive(std::vector<T> values) {
  for (T& value : values) value = std::abs(value) + 1;  // a running mean of squares, larger than any squared mean
  return values;
}

// The update made inside the product is, bit for bit, the one made after it: for strips that end in the middle of a
// tile, sums in one piece and in several, and every worker of a team.
BOOST_AUTO_TEST_CASE_TEMPLATE(updating_in_the_product_is_updating_after_it, T, Elements) {
  const std::pair<RuleStep, int> rules[] = {{Sgd::Step{0.1, 0, 0.01, false}, 0},
                                            {Sgd::Step{0.1, 0.9, 0.01, true}, 1},
                                            {Adam::Step{0.1, 0.5, 0.9, 0.99, 1e-3, 0.01, 0.9}, 2},
                                            {Lion::Step{0.1, 0.9, 0.99, 0.9}, 1},
                                            {RmsProp::Step{0.1, 0.9, 1e-3, 0.5, 0.01, true}, 3}};
  for (const auto& [rule, kept] : rules) {
    for (const Index depth : {0, 7, 128, 129, 300}) {
      for (const Index cols : {1, 10, 64, 70, 150}) {
        const Index rows = 61, count = rows * cols;
        const std::vector<T> x = numbers<T>(depth * rows, 1), dy = numbers<T>(depth * cols, 2);
        struct State {
          std::vector<T> w, memory[kMostStates];
        };
        const State before{numbers<T>(count, 3),
                           {positive(numbers<T>(count, 4)), positive(numbers<T>(count, 5)), numbers<T>(count, 6)}};
        const auto update_of = [&, rule = rule, kept = kept](State& state) {
          Update<T> update{rule, state.w.data(), {}};
          for (int k = 0; k < kept; ++k) update.state[k] = state.memory[k].data();
          return update;
        };
        for_each_products<T>([&](const Table<T>& table, const ProductKernels<T>& products, double) {
          State after = before;
          std::vector<T> dw(after.w.size());
          products.product_tn({}, {x.data(), depth, rows}, {dy.data(), depth, cols}, {}, false, {dw.data(), rows, cols},
                              nullptr);
          table.update({}, update_of(after), count, dw.data());
          State continued = before;  // the same of a sum that begins elsewhere
          const std::vector<T> from = numbers<T>(count, 9);
          dw = from;
          products.product_tn({}, {x.data(), depth, rows}, {dy.data(), depth, cols}, {}, true, {dw.data(), rows, cols},
                              nullptr);
          table.update({}, update_of(continued), count, dw.data());
          for (const int team : {1, 3, 12})
            for (const bool from_zero : {true, false}) {
              State inside = before;
              const State& want = from_zero ? after : continued;
              std::vector<T> room(dw.size(), T(7));
              const Update<T> update = update_of(inside);
              as_team(team, [&](Part part) {
                products.product_tn_update(part, {x.data(), depth, rows}, {dy.data(), depth, cols}, {}, update,
                                           from_zero ? nullptr : from.data(), {room.data(), rows, cols}, nullptr);
              });
              BOOST_TEST(same_bits(want.w.data(), inside.w.data(), count));
              for (int k = 0; k < kMostStates; ++k)
                BOOST_TEST(same_bits(want.memory[k].data(), inside.memory[k].data(), count));
            }
        });
      }
    }
  }
}

// Ranks may be more than panels: those left over own none, of no columns.
BOOST_AUTO_TEST_CASE(columns_of_no_panels_are_none) {
  const PanelMatrix<float> weights(nullptr, 3, 100, 64);
  BOOST_TEST(weights.panels() == 2);
  for (const int ranks : {1, 2, 3, 7}) {
    Index sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Range own = weights.columns(share(weights.panels(), rank, ranks));
      BOOST_TEST(own.begin == sum);
      BOOST_TEST(own.size() >= 0);
      sum = own.end;
    }
    BOOST_TEST(sum == 100);
  }
}

// A weight in panels gives the bits of the same weight in rows, to every product and every worker.
BOOST_AUTO_TEST_CASE_TEMPLATE(panels_change_no_bit, T, Elements) {
  constexpr Index batch = 23, inputs = 37, panel = kPanel<T>;
  for (const Index outputs : {panel + 1, 2 * panel, 5 * panel + 13}) {
    const Index count = inputs * outputs;
    const std::vector<T> x = numbers<T>(batch * inputs, 1), dy = numbers<T>(batch * outputs, 2);
    const std::vector<T> b = numbers<T>(outputs, 3), w = numbers<T>(count, 4);
    std::vector<T> panels(w.size());
    to_panels(inputs, outputs, w.data(), panels.data());
    BOOST_TEST(!same_bits(panels.data(), w.data(), count));
    const auto in_rows = [&](const std::vector<T>& values) {
      std::vector<T> rows(values.size());
      from_panels(inputs, outputs, values.data(), rows.data());
      return rows;
    };
    BOOST_TEST(same_bits(in_rows(panels).data(), w.data(), count));
    const Matrix<const T> in(x.data(), batch, inputs), gradient(dy.data(), batch, outputs);
    struct Results {
      std::vector<T> y, dx, dw, updated;
    };
    const auto run = [&](const ProductKernels<T>& products, int team, const std::vector<T>& weight, Index width) {
      Results r{std::vector<T>(batch * outputs), std::vector<T>(batch * inputs), weight, weight};
      std::vector<T> sums(weight.size());
      Update<T> rule{Sgd::Step{0.1, 0, 0.01, false}, r.updated.data(), {}};
      const PanelMatrix<const T> view(weight.data(), inputs, outputs, width);
      as_team(team, [&](Part part) {
        products.product_nn(part, in, view, b.data(), Activation::tanh, {r.y.data(), batch, outputs});
        products.product_nt(part, gradient, view, Activation::identity, in, {r.dx.data(), batch, inputs});
        products.product_tn(part, in, gradient, {}, true, {r.dw.data(), inputs, outputs, width}, nullptr);
        products.product_tn_update(part, in, gradient, {}, rule, nullptr, {sums.data(), inputs, outputs, width},
                                   nullptr);
      });
      return r;
    };
    for_each_products<T>([&](const Table<T>&, const ProductKernels<T>& products, double) {
      const Results rows = run(products, 1, w, outputs);
      for (const int team : {1, 2, 3, 12}) {
        const Results cut = run(products, team, panels, panel);
        BOOST_TEST(same_bits(rows.y.data(), cut.y.data(), batch * outputs));
        BOOST_TEST(same_bits(rows.dx.data(), cut.dx.data(), batch * inputs));
        BOOST_TEST(same_bits(rows.dw.data(), in_rows(cut.dw).data(), count));
        BOOST_TEST(same_bits(rows.updated.data(), in_rows(cut.updated).data(), count));
      }
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(nan_and_infinity_reach_their_row_and_no_other, T, Elements) {
  const T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  std::vector<T> x(8 * 40, T(1)), w(40 * 21, T(0.5)), y(8 * 21);
  x[2 * 40 + 7] = nan;
  x[5 * 40 + 39] = infinity;
  for_each_products<T>([&](const Table<T>&, const ProductKernels<T>& products, double) {
    for (const Activation f : {Activation::identity, Activation::relu, Activation::tanh, Activation::sigmoid}) {
      products.product_nn({}, {x.data(), 8, 40}, {w.data(), 40, 21}, nullptr, f, {y.data(), 8, 21});
      const bool open = f == Activation::identity || f == Activation::relu;
      for (std::size_t i = 0; i < y.size(); ++i) {
        const auto row = i / 21;
        if (row == 2)
          BOOST_TEST(std::isnan(y[i]));
        else if (row == 5)
          BOOST_TEST(y[i] == (open ? infinity : T(1)));
        else
          BOOST_TEST(std::isfinite(y[i]));
      }
    }
  });
}

// A float as the nearest bfloat16, of two equally near ones the one whose last bit is 0.
float nearest_bfloat16(float x) {
  if (!std::isfinite(x) || x == 0) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), -126) - 7);
  return static_cast<float>(std::nearbyint(double{x} / unit) * unit);
}

// Products with 1 show how factors are rounded: ties, numbers that round up to a power of two, infinities.
BOOST_AUTO_TEST_CASE(factors_are_rounded_to_the_nearest_bfloat16) {
  std::vector<float> x = {0.0F,   -0.0F,     1.0F,        0x1.01p0F,    0x1.03p0F, 0x1.0101p0F, -0x1.03p0F,
                          3.1e4F, 0x1.ffp0F, 0x1.01p103F, 0x1.fffp103F, 0x1p-126F, INFINITY,    -INFINITY};
  for (const float value : numbers<float>(1000, 1)) x.push_back(value);
  const Index count = std::ssize(x);
  std::vector<float> one{1.0F}, y(x.size());
  for_each_bfloat16([&](std::string_view isa, const Table<float>&, const ProductKernels<float>& products) {
    products.product_nn({}, {x.data(), count, 1}, {one.data(), 1, 1}, nullptr, Activation::identity,
                        {y.data(), count, 1});
    for (std::size_t i = 0; i < x.size(); ++i) BOOST_TEST(y[i] == nearest_bfloat16(x[i]), isa << " of " << x[i]);
    std::vector<float> dx(x.size()), dw(x.size());
    products.product_nt({}, {one.data(), 1, 1}, {x.data(), count, 1}, Activation::identity, {nullptr, 1, count},
                        {dx.data(), 1, count});
    products.product_tn({}, {x.data(), 1, count}, {one.data(), 1, 1}, {}, false, {dw.data(), count, 1}, nullptr);
    BOOST_TEST(same_bits(dx.data(), y.data(), count));
    BOOST_TEST(same_bits(dw.data(), y.data(), count));
  });
}

// At the ends of their range some keep more bits than bfloat16 has, and none goes further away than by rounding.
BOOST_AUTO_TEST_CASE(factors_at_the_ends_of_their_range_are_rounded_within_the_bound) {
  std::vector<float> x = {NAN, -NAN, std::bit_cast<float>(0x7fffffffU), std::bit_cast<float>(0x7f800001U),
                          std::bit_cast<float>(0xffffffffU)};
  for (const float value : {0x1.01p104F, 0x1.0101p112F, 0x1.8101p119F, 0x1.ff7p127F, 0x1.fffffep127F, 0x1.0101p-126F,
                            0x1.0101p-127F, 0x1.1p-140F, 0x1p-149F}) {
    x.push_back(value);
    x.push_back(-value);
  }
  const Index count = std::ssize(x);
  std::vector<float> one{1.0F}, y(x.size());
  for_each_bfloat16([&](std::string_view isa, const Table<float>&, const ProductKernels<float>& products) {
    products.product_nn({}, {x.data(), count, 1}, {one.data(), 1, 1}, nullptr, Activation::identity,
                        {y.data(), count, 1});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool right = std::isnan(x[i])   ? std::isnan(y[i])
                         : std::isinf(y[i]) ? std::isinf(nearest_bfloat16(x[i])) && y[i] * x[i] > 0
                                            : std::abs(y[i] - x[i]) <= std::max(0x1p-8F * std::abs(x[i]), 0x1p-126F);
      BOOST_TEST(right, isa << " of " << x[i] << ": " << y[i]);
    }
  });
}

// Whatever the instruction set, bfloat16 numbers are multiplied without an error: small integers show it.
BOOST_AUTO_TEST_CASE(bfloat16_products_of_integers_are_exact_everywhere) {
  const Index rows = 45, depth = 301, cols = 150;
  const auto integers = [](Index count, std::uint64_t seed) {
    std::vector<float> values = numbers<float>(count, seed);
    for (float& value : values) value = std::nearbyint(16 * value);
    return values;
  };
  const std::vector<float> x = integers(rows * depth, 1), w = integers(depth * cols, 2);
  std::vector<float> want(static_cast<std::size_t>(rows * cols)), y(want.size());
  tables(Isa::v2).floats.product_nn({}, {x.data(), rows, depth}, {w.data(), depth, cols}, nullptr, Activation::identity,
                                    {want.data(), rows, cols});
  for_each_bfloat16([&](std::string_view isa, const Table<float>&, const ProductKernels<float>& products) {
    products.product_nn({}, {x.data(), rows, depth}, {w.data(), depth, cols}, nullptr, Activation::identity,
                        {y.data(), rows, cols});
    BOOST_TEST(same_bits(want.data(), y.data(), rows * cols), isa);
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
