// Sums by leaves against leaf after leaf, joined by the tree over them: bit for bit, at random sizes, for every build.
#include "pdnn/core/leaves.hpp"

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include "random_rounds.hpp"
#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;

/// Random leaves of some rows, often empty ones, sometimes one that is longer than any piece of a product.
struct RandomLeaves {
  std::vector<Index> ends;
  Index rows = 0;

  explicit RandomLeaves(tests::Draw& draw, Index longest) {
    const Index count = draw.one_of<Index>({1, 2, 3, 7, 8, 13, draw(1, 200)});
    const Index long_one = draw.once_in(4) ? draw(0, count - 1) : -1;
    for (Index leaf = 0; leaf < count; ++leaf) {
      rows += leaf == long_one ? draw(1, 10 * longest) : draw.once_in(5) ? 0 : draw(1, longest);
      ends.push_back(rows);
    }
  }
  Index count() const { return std::ssize(ends); }
  Range of(Index leaf) const {
    return {leaf == 0 ? 0 : ends[static_cast<std::size_t>(leaf - 1)], ends[static_cast<std::size_t>(leaf)]};
  }
};

/// What sum(rows, result) makes of each leaf, joined: `size` elements.
template <class T, class Sum>
std::vector<T> by_leaves(const RandomLeaves& leaves, Index size, Sum sum) {
  std::vector<std::vector<T>> sums;
  for (Index leaf = 0; leaf < leaves.count(); ++leaf) {
    sums.emplace_back(static_cast<std::size_t>(size));
    sum(leaves.of(leaf), sums.back().data());
  }
  std::vector<T> joined(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < joined.size(); ++i)
    joined[i] = tree_sum<T>(leaves.count(), [&](Index leaf) { return sums[static_cast<std::size_t>(leaf)][i]; });
  return joined;
}

/// Checks sum(rows, leaves, part, result) by leaves, for teams, against the same of each leaf. The room ends at a
/// forbidden page.
template <class T, class Sum>
void check_leaves(const RandomLeaves& leaves, Index size, Sum sum) {
  const std::vector<T> want =
      by_leaves<T>(leaves, size, [&](Range rows, T* to) { sum(rows, LeafSums<T>{}, Part{}, to); });
  const Index room = tree_levels(leaves.count()) * size;
  Guarded<T> memory(std::max<Index>(1, room));
  for (const int team : {1, 2, 5, 12}) {
    std::vector<T> got(want.size(), T(7));
    const LeafSums<T> cut{leaves.ends.data(), leaves.count(), memory.at_end(room)};
    as_team(team, [&](Part part) { sum({0, leaves.rows}, cut, part, got.data()); });
    BOOST_TEST(same_bits(want.data(), got.data(), size));
  }
}

BOOST_AUTO_TEST_SUITE(leaves)

BOOST_AUTO_TEST_CASE_TEMPLATE(products_at_random_sizes, T, Elements) {
  tests::random_rounds(40, [](tests::Draw& draw) {
    const RandomLeaves leaves(draw, draw.one_of<Index>({2, 14, 40}));
    const Index inputs = draw(1, draw.once_in(4) ? 130 : 30), outputs = draw(1, draw.once_in(4) ? 300 : 70);
    const Index panel = draw.once_in(2) ? kPanel<T> : outputs, size = inputs * outputs;
    const std::vector<T> x = numbers<T>(leaves.rows * inputs, 1), dy = numbers<T>(leaves.rows * outputs, 2);
    const auto x_of = [&](Range rows) { return Matrix<const T>(x.data() + rows.begin * inputs, rows.size(), inputs); };
    const auto dy_of = [&](Range rows) {
      return Matrix<const T>(dy.data() + rows.begin * outputs, rows.size(), outputs);
    };
    const std::vector<T> before = numbers<T>(size, 3), others = numbers<T>(size, 4);
    for (const RuleStep& rule : {RuleStep(Sgd::Step{0.1, 0, 0.01, false}), RuleStep(Lion::Step{0.1, 0.9, 0.99, 0.9})}) {
      for_each_products<T>([&](const Table<T>& table, const ProductKernels<T>& products, double) {
        std::vector<T> dw(before.size());
        check_leaves<T>(leaves, size, [&](Range rows, const LeafSums<T>& cut, Part part, T* to) {
          products.product_tn(part, x_of(rows), dy_of(rows), cut, false, {to, inputs, outputs, panel}, nullptr);
          if (cut.count > 0) std::copy_n(to, size, dw.data());
        });
        const auto update_of = [&](std::vector<T>& w, std::vector<T>& state) {
          return Update<T>{rule, w.data(), {rule.kind == RuleStep::Kind::lion ? state.data() : nullptr}};
        };
        for (const bool alone : {true, false}) {
          std::vector<T> want = before, want_state(before.size(), T(1));
          if (!alone) table.add({}, size, dw.data(), others.data(), dw.data());
          table.update({}, update_of(want, want_state), size, dw.data());
          for (const int team : {1, 3}) {
            std::vector<T> w = before, state(before.size(), T(1)), sums(before.size());
            std::vector<T> room(before.size() * static_cast<std::size_t>(tree_levels(leaves.count())));
            const LeafSums<T> cut{leaves.ends.data(), leaves.count(), room.data()};
            const Update<T> update = update_of(w, state);
            as_team(team, [&](Part part) {
              products.product_tn_update(part, x_of({0, leaves.rows}), dy_of({0, leaves.rows}), cut, update,
                                         alone ? nullptr : others.data(), {sums.data(), inputs, outputs, panel},
                                         nullptr);
            });
            BOOST_TEST(same_bits(want.data(), w.data(), size));
            BOOST_TEST(same_bits(want_state.data(), state.data(), size));
          }
        }
      });
    }
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(column_and_row_sums_at_random_sizes, T, Elements) {
  tests::random_rounds(40, [](tests::Draw& draw) {
    const RandomLeaves leaves(draw, 14);
    const Index cols = draw(1, 150);
    const std::vector<T> x = numbers<T>(leaves.rows * cols, 1), dy = numbers<T>(leaves.rows * cols, 2);
    const std::vector<T> moments = numbers<T>(2 * leaves.rows, 3);
    const auto some = [&](const std::vector<T>& values, Range rows) {
      return Matrix<const T>(values.data() + rows.begin * cols, rows.size(), cols);
    };
    for_each_isa<T>([&](const Table<T>& table) {
      check_leaves<T>(leaves, cols, [&](Range rows, const LeafSums<T>& cut, Part part, T* to) {
        table.column_sums(part, some(x, rows), cut, false, to);
      });
      check_leaves<T>(leaves, 2 * cols, [&](Range rows, const LeafSums<T>& cut, Part part, T* to) {
        table.layer_norm_sums(part, some(x, rows), some(dy, rows), moments.data() + 2 * rows.begin, cut, false, to,
                              to + cols);
      });
    });
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(convolutions_at_random_sizes, T, Elements) {
  tests::random_rounds(20, [](tests::Draw& draw) {
    const RandomLeaves leaves(draw, 3);
    const Index kernel = draw(1, 3), padding = draw(0, 1), extent = draw(kernel, 9),
                out = extent + 2 * padding - kernel + 1;
    const Index inputs = draw.one_of<Index>({1, 3, 9, 17}), outputs = draw.one_of<Index>({1, 8, 21});
    const Index groups = draw.once_in(3) ? inputs : 1;
    const Axis axis = axis_of(extent, kernel, 1, padding);
    const Convolution shape{{axis, axis}, inputs, groups > 1 ? inputs : outputs, groups};
    const Index in = extent * extent * inputs, places = out * out * shape.outputs;
    const Index size = kernel * kernel * inputs / groups * shape.outputs;
    const std::vector<T> x = numbers<T>(leaves.rows * in, 1), dy = numbers<T>(leaves.rows * places, 2);
    const auto check = [&](const ConvolutionKernels<T>& kernels, const RoundingKernels<T>* rounding) {
      const auto rounded = [&](const std::vector<T>& values, Index elements, Range rows, const LeafSums<T>& cut,
                               std::vector<T>& room) {
        const T* const own = values.data() + rows.begin * elements;
        if (!rounding) return own;
        room.resize(static_cast<std::size_t>(rows.size() * elements));
        rounding->round_samples({}, rows.size(), elements, cut, own, room.data());
        return static_cast<const T*>(room.data());
      };
      for (const bool bias : {true, false})
        check_leaves<T>(
            leaves, size + (bias ? shape.outputs : 0), [&](Range rows, const LeafSums<T>& cut, Part part, T* to) {
              std::vector<T> x_room, dy_room;
              kernels.convolution_dw(part, shape, rows.size(), rounded(x, in, rows, cut, x_room),
                                     rounded(dy, places, rows, cut, dy_room), dy.data() + rows.begin * places, cut,
                                     false, to, bias ? to + size : nullptr);
            });
    };
    for_each_isa<T>([&](const Table<T>& table) { check(table, nullptr); });
    if constexpr (std::is_same_v<T, float>)
      for (const Isa isa : supported_isas()) check(tables(isa).bfloat16, &tables(isa).bfloat16);
  });
}

// What batch normalization keeps of a leaf does not depend on the leaves around it.
BOOST_AUTO_TEST_CASE_TEMPLATE(chunks_of_normalization_are_leaves, T, Elements) {
  tests::random_rounds(20, [](tests::Draw& draw) {
    const RandomLeaves leaves(draw, 14);
    const Index cols = draw(1, 90), places = draw(1, 9);
    const std::vector<T> x = numbers<T>(leaves.rows * places * cols, 1),
                         dy = numbers<T>(leaves.rows * places * cols, 2);
    const std::vector<T> mean = numbers<T>(cols, 3);
    const auto some = [&](const std::vector<T>& values, Range rows) {
      return Matrix<const T>(values.data() + rows.begin * places * cols, rows.size() * places, cols);
    };
    for_each_isa<T>([&](const Table<T>& table) {
      std::vector<T> moments(static_cast<std::size_t>(2 * cols * leaves.count())), sums = moments, alone(2 * cols);
      const Chunks chunks{leaves.ends.data(), leaves.count(), places};
      const Range all{0, leaves.rows};
      as_team(3, [&](Part part) {
        table.column_moments(part, some(x, all), chunks, moments.data());
        table.normalize_sums(part, some(x, all), some(x, all), some(dy, all), mean.data(), true, chunks, sums.data());
      });
      for (Index leaf = 0; leaf < leaves.count(); ++leaf) {
        const Range rows = leaves.of(leaf);
        const Index end = rows.size();
        const Chunks own{&end, 1, places};
        table.column_moments({}, some(x, rows), own, alone.data());
        BOOST_TEST(same_bits(alone.data(), moments.data() + 2 * leaf * cols, 2 * cols));
        table.normalize_sums({}, some(x, rows), some(x, rows), some(dy, rows), mean.data(), true, own, alone.data());
        BOOST_TEST(same_bits(alone.data(), sums.data() + 2 * leaf * cols, 2 * cols));
      }
    });
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
