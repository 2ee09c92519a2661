// The convolutions against sums in double, for every way that a window lies on an image, between forbidden pages, for
// every build and precision.
#include <algorithm>
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <initializer_list>

#include "pdnn/core/errors.hpp"
#include "random_rounds.hpp"
#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;

Convolution shape_of(Index height, Index width, Index inputs, Index outputs, Index kernel_height, Index kernel_width,
                     Index stride, Index padding) {
  return {{axis_of(height, kernel_height, stride, padding), axis_of(width, kernel_width, stride, padding)},
          inputs,
          outputs};
}

/// What computes it, and by how much of a product that may be off.
template <class T>
struct Build {
  const Table<T>& table;
  const ConvolutionKernels<T>& kernels;
  const RoundingKernels<T>* rounding;  // null: factors are not rounded
  double error;
};
template <class T, class Action>
void for_each_build(Action action) {
  for_each_isa<T>([&](const Table<T>& table) { action(Build<T>{table, table, nullptr, 0}); });
  if constexpr (std::is_same_v<T, float>)
    for (const Isa isa : supported_isas()) {
      const Tables& all = tables(isa);
      action(Build<T>{all.floats, all.bfloat16, &all.bfloat16, kRounding});
    }
}

/// One convolution, all of whose arrays end at a forbidden page.
template <class T>
class ConvolutionProblem {
 public:
  ConvolutionProblem(const Convolution& shape, Index batch)
      : s_(shape),
        v_(shape.windows),
        batch_(batch),
        x_count(batch * v_.y.extent * v_.x.extent * s_.inputs),
        w_count(v_.y.kernel * v_.x.kernel * shape.inputs / shape.groups * s_.outputs),
        y_count(batch * v_.y.places * v_.x.places * s_.outputs),
        x_(memory()[0].at_end(x_count)),
        w_(memory()[1].at_end(w_count)),
        b_(memory()[2].at_end(s_.outputs)),
        dy_(memory()[3].at_end(y_count)),
        bias_(batch % 2 == 0),
        relu_((shape.outputs + batch) % 3 == 1),
        add_(shape.outputs % 2 == 0),
        want_y_(zeros(y_count)),
        want_dx_(zeros(x_count)),
        want_dw_(zeros(w_count + shape.outputs)) {
    fill(x_, x_count, 1);
    fill(w_, w_count, 2);
    fill(b_, s_.outputs, 3);
    fill(dy_, y_count, 4);
    define();
  }

  std::vector<T> forward(const Build<T>& build, int team, bool bias, bool relu) const {
    T* const y = memory()[4].at_end(y_count);
    std::fill_n(y, y_count, kUntouched);
    std::vector<T> rx, rw;
    const T* const x = by_channels(build, team, x_, x_count, s_.inputs / s_.groups, rx);
    const T* const w = by_taps(build, team, w_, s_.inputs / s_.groups, s_.outputs, rw);
    as_team(team, [&](Part part) { build.kernels.convolution(part, s_, batch_, x, w, bias ? b_ : nullptr, relu, y); });
    return {y, y + y_count};
  }
  std::vector<T> dx(const Build<T>& build, int team) const {
    T *const flipped = memory()[4].at_end(w_count), *const dx = memory()[5].at_end(x_count);
    std::fill_n(dx, x_count, kUntouched);
    std::fill_n(flipped, w_count, T(1));
    as_team(team, [&](Part part) { build.table.flip_taps(part, s_, w_, flipped); });
    std::vector<T> rdy, rw;
    const T* const dy = by_channels(build, team, dy_, y_count, s_.outputs / s_.groups, rdy);
    const T* const w = by_taps(build, team, flipped, s_.outputs / s_.groups, s_.inputs, rw);
    if (build.rounding && build.rounding->as_floats) {
      as_team(team, [&](Part part) { build.rounding->flip_rounded_taps(part, s_, w_, flipped); });
      if (!same_bits(flipped, w, w_count)) BOOST_ERROR(where() << ": weights flipped and rounded in one go differ");
    }
    as_team(team, [&](Part part) { build.kernels.convolution_dx(part, s_, batch_, dy, w, dx); });
    return {dx, dx + x_count};
  }
  /// dw and db, in memory together or apart; `add` starts from w and b.
  std::vector<T> dw(const Build<T>& build, int team, bool add, bool together) const {
    T* const dw = memory()[4].at_end(w_count + (together ? s_.outputs : 0));
    T* const db = together ? dw + w_count : memory()[5].at_end(s_.outputs);
    std::copy_n(w_, w_count, dw);
    std::copy_n(b_, s_.outputs, db);
    std::vector<T> rx, rdy;
    const T* const x = by_samples(build, team, x_, x_count, rx);
    const T* const dy = by_samples(build, team, dy_, y_count, rdy);
    as_team(team, [&](Part part) { build.kernels.convolution_dw(part, s_, batch_, x, dy, dy_, {}, add, dw, db); });
    std::vector<T> both(dw, dw + w_count);
    both.insert(both.end(), db, db + s_.outputs);
    return both;
  }

  /// Calls action(place of x, place of y, place of w) for each meeting of a tap with an image, without channels.
  template <class Action>
  void each_meeting(Action action) const {
    for (Index n = 0; n < batch_; ++n)
      for (Index p = 0; p < v_.y.places; ++p)
        for (Index q = 0; q < v_.x.places; ++q)
          for (Index i = 0; i < v_.y.kernel; ++i)
            for (Index j = 0; j < v_.x.kernel; ++j) {
              const auto at = [](const Axis& axis, Index place, Index tap) {
                return place * axis.stride + tap * axis.dilation - axis.padding;
              };
              const Index r = at(v_.y, p, i), s = at(v_.x, q, j);
              if (r < 0 || r >= v_.y.extent || s < 0 || s >= v_.x.extent) continue;
              action((n * v_.y.extent + r) * v_.x.extent + s, (n * v_.y.places + p) * v_.x.places + q,
                     i * v_.x.kernel + j);
            }
  }

  /// All three against the definition.
  void check(const Build<T>& build, int team) const {
    compare("y", forward(build, team, bias_, relu_), want_y_, build.error);
    compare("dx", dx(build, team), want_dx_, build.error);
    compare("dw", dw(build, team, add_, batch_ % 3 == 0), want_dw_, build.error);
  }

  /// Whether teams of these sizes change no bit of any result.
  bool agree(const Build<T>& build, std::initializer_list<int> teams) const {
    const auto all = [&](int team) {
      return std::vector{forward(build, team, true, true), dx(build, team), dw(build, team, false, true),
                         dw(build, team, true, false)};
    };
    const std::vector<std::vector<T>> alone = all(1);
    return std::ranges::all_of(teams, [&](int team) { return std::ranges::equal(alone, all(team), same); });
  }

  std::string where() const {
    const auto both = [&](Index Axis::* number) { return message(v_.y.*number, "x", v_.x.*number); };
    return message(batch_, " x ", both(&Axis::extent), "x", s_.inputs, " to ", s_.outputs, " in ", s_.groups,
                   " groups, kernel ", both(&Axis::kernel), ", stride ", both(&Axis::stride), ", padding ",
                   both(&Axis::padding), ", dilation ", both(&Axis::dilation));
  }

 private:
  static constexpr T kUntouched = T(12345);
  struct Sums {
    std::vector<double> values, sizes;  // sizes: of the absolute terms
    void add(Index i, double term) { values[size(i)] += term, sizes[size(i)] += std::abs(term); }
  };
  static Sums zeros(Index count) { return {std::vector<double>(size(count)), std::vector<double>(size(count))}; }

  void define() {
    const Index ci = s_.inputs, co = s_.outputs, own = ci / s_.groups;
    for (Index i = 0; bias_ && i < y_count; ++i) want_y_.add(i, double{b_[i % co]});
    for (Index i = 0; add_ && i < w_count + co; ++i) want_dw_.add(i, double{i < w_count ? w_[i] : b_[i - w_count]});
    each_meeting([&](Index at_x, Index at_y, Index tap) {
      for (Index c = 0; c < own; ++c)
        for (Index o = 0; o < co; ++o) {
          const Index i = o / (co / s_.groups) * own + c, at_w = (tap * own + c) * co + o;
          const double x = double{x_[at_x * ci + i]}, w = double{w_[at_w]}, dy = double{dy_[at_y * co + o]};
          want_y_.add(at_y * co + o, x * w);
          want_dx_.add(at_x * ci + i, dy * w);
          want_dw_.add(at_w, x * dy);
        }
    });
    for (Index i = 0; i < y_count; ++i) want_dw_.add(w_count + i % co, double{dy_[i]});
    for (double& value : want_y_.values) value = relu_ && value < 0 ? 0 : value;
  }

  // A factor as the build's products read it, in `room` if it is rounded.
  const T* by_channels(const Build<T>& build, int team, const T* values, Index count, Index channels,
                       std::vector<T>& room) const {
    if (!build.rounding) return values;
    room.resize(size(count));
    as_team(team,
            [&](Part part) { build.rounding->round_channels(part, count / channels, channels, values, room.data()); });
    return room.data();
  }
  const T* by_taps(const Build<T>& build, int team, const T* values, Index rows, Index cols,
                   std::vector<T>& room) const {
    if (!build.rounding) return values;
    room.resize(size(w_count));
    as_team(team, [&](Part part) {
      build.rounding->round_taps(part, v_.y.kernel * v_.x.kernel, rows, cols, values, room.data());
    });
    return room.data();
  }
  const T* by_samples(const Build<T>& build, int team, const T* values, Index count, std::vector<T>& room) const {
    if (!build.rounding || batch_ == 0) return values;
    room.resize(size(count));
    as_team(team,
            [&](Part part) { build.rounding->round_samples(part, batch_, count / batch_, {}, values, room.data()); });
    return room.data();
  }
  static std::size_t size(Index index) { return static_cast<std::size_t>(index); }
  static bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && same_bits(a.data(), b.data(), static_cast<Index>(a.size()));
  }
  void compare(const char* what, const std::vector<T>& got, const Sums& want, double error) const {
    const double depth = static_cast<double>(w_count + y_count);
    const double unit = std::min(depth, 1000.) * double{std::numeric_limits<T>::epsilon()} + error;
    for (std::size_t i = 0; i < got.size(); ++i)
      if (!(std::abs(double{got[i]} - want.values[i]) <= unit * want.sizes[i] + double{std::numeric_limits<T>::min()}))
        BOOST_ERROR(where() << ": " << what << "[" << i << "] is " << got[i] << ", expected " << want.values[i]);
  }
  static Guarded<T>* memory() {
    static Guarded<T> memory[6] = {Guarded<T>(1 << 17), Guarded<T>(1 << 17), Guarded<T>(1 << 10),
                                   Guarded<T>(1 << 17), Guarded<T>(1 << 17), Guarded<T>(1 << 17)};
    return memory;
  }

  Convolution s_;
  Windows v_;
  Index batch_, x_count, w_count, y_count;
  T *x_, *w_, *b_, *dy_;
  bool bias_, relu_, add_;
  Sums want_y_, want_dx_, want_dw_;
};

Axis draw_axis(tests::Draw& draw) {
  const Index kernel = draw(1, 6), padding = draw(0, draw.once_in(4) ? 7 : 2),
              dilation = draw.once_in(3) ? draw(1, 4) : 1;
  return axis_of(std::max(draw(1, 14), (kernel - 1) * dilation + 1 - 2 * padding), kernel, draw(1, 4), padding,
                 dilation);
}

template <class T>
void check_shape(const Convolution& shape, Index batch, int large_team = 37) {
  const ConvolutionProblem<T> problem(shape, batch);
  for_each_build<T>([&](const Build<T>& build) {
    problem.check(build, 1 + static_cast<int>((shape.outputs + batch) % 4));
    if (!problem.agree(build, {2, 3, 4, large_team}))
      BOOST_ERROR(problem.where() << ": a team of 2, 3, 4 or " << large_team << " changed bits");
  });
}

BOOST_AUTO_TEST_SUITE(convolutions)

BOOST_AUTO_TEST_CASE_TEMPLATE(equal_sums_in_double_for_any_channels, T, Elements) {
  for (const Index inputs : {1, 2, 3, 7, 8, 9, 17, 33})
    for (const Index outputs : {1, 3, 4, 5, 8, 15, 16, 17, 40, 67}) {
      check_shape<T>(shape_of(4, 5, inputs, outputs, 3, 3, 1, 1), 2);
      check_shape<T>(shape_of(5, 4, inputs, outputs, 2, 3, 2, 0), 3);
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equal_sums_in_double_for_any_window, T, Elements) {
  for (const Index height : {1, 2, 3, 7})
    for (const Index width : {1, 4, 19})
      for (const Index kernel : {1, 2, 3, 5})
        for (const Index stride : {1, 2, 3, 4})
          for (const Index padding : {0, 1, 3, 6}) {
            if (height + 2 * padding < kernel || width + 2 * padding < kernel) continue;
            check_shape<T>(shape_of(height, width, height % 2 == 0 ? 9 : 2, 5, kernel, kernel, stride, padding), 2);
          }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equal_sums_in_double_for_dilated_and_unequal_windows, T, Elements) {
  for (const Index dilation : {1, 2, 3, 4, 6})
    for (const Index stride : {1, 2, 3, 4})
      for (const Index channels : {2, 9}) {
        const Axis y = axis_of(7, 3, stride, 4, dilation), x = axis_of(19, 2, 5 - stride, 1, 7 - dilation);
        check_shape<T>({{y, x}, channels, 5}, 2);
        check_shape<T>({{x, y}, channels, 18}, 3);
      }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equal_sums_in_double_for_channels_in_groups, T, Elements) {
  for (const Index stride : {1, 2})
    for (const Index dilation : {1, 2}) {
      const Axis y = axis_of(6, 3, stride, 1, dilation), x = axis_of(11, 3, 1, 2, dilation);
      for (const Index groups : {2, 3})
        for (const Index inputs : {1, 2, 9})
          for (const Index outputs : {1, 3, 17}) check_shape<T>({{y, x}, groups * inputs, groups * outputs, groups}, 3);
      for (const Index channels : {2, 3, 8, 17, 33, 64}) check_shape<T>({{y, x}, channels, channels, channels}, 2);
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equal_sums_in_double_for_any_batch, T, Elements) {
  for (const Index batch : {0, 1, 2, 5, 6, 7, 11, 12, 13, 14, 15, 29}) {
    check_shape<T>(shape_of(3, 3, 8, 18, 3, 3, 2, 1), batch);
    check_shape<T>(shape_of(1, 1, 10, 33, 3, 3, 1, 1), batch);
    check_shape<T>(shape_of(6, 6, 1, 5, 5, 5, 1, 0), batch);
  }
}

// Chunks of samples, pieces of an image, and a window that has no room in one.
BOOST_AUTO_TEST_CASE_TEMPLATE(equal_sums_in_double_for_large_images, T, Elements) {
  check_shape<T>(shape_of(60, 61, 3, 4, 7, 7, 4, 3), 2);
  check_shape<T>(shape_of(90, 90, 2, 2, 5, 5, 1, 2), 1);
  check_shape<T>(shape_of(5, 900, 2, 2, 5, 5, 1, 2), 1);
  check_shape<T>(shape_of(9, 9, 7, 3, 7, 7, 2, 3), 2);
  check_shape<T>(shape_of(40, 40, 16, 4, 3, 3, 1, 1), 4);
  check_shape<T>(shape_of(70, 2, 7, 1, 70, 20, 1, 9), 1);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(equal_sums_in_double_at_random_sizes, T, Elements) {
  tests::random_rounds(60, [](tests::Draw& draw) {
    Convolution shape{};
    shape.windows.y = draw_axis(draw);
    shape.windows.x = draw.once_in(3) ? draw_axis(draw) : shape.windows.y;
    shape.groups = draw.once_in(3) ? draw(2, 4) : 1;
    shape.inputs = shape.groups * draw.one_of<Index>({1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33});
    shape.outputs = shape.groups * draw.one_of<Index>({1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 32, 33, 48, 63, 65, 80});
    if (draw.once_in(6)) shape.groups = shape.inputs = shape.outputs = draw(1, 80);
    const auto& [y, x] = shape.windows;
    const Index most = std::max(y.extent * x.extent * shape.inputs, y.places * x.places * shape.outputs);
    const Index batch = std::min(draw(0, 9), Index{1 << 16} / most);
    check_shape<T>(shape, batch, static_cast<int>(draw(1, 50)));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(nan_and_infinity_reach_what_sees_them_and_no_other, T, Elements) {
  const T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const Convolution shape = shape_of(5, 5, 2, 20, 3, 3, 1, 1);
  std::vector<T> x(2 * 25 * 2, T(1)), w(9 * 2 * 20, T(0.5)), y(2 * 25 * 20), dw(9 * 2 * 20 + 20);
  const std::vector<T> ones(y.size(), T(1));
  x[0] = nan;                          // sample 0, place (0, 0)
  x[(25 + 4 * 5 + 4) * 2] = infinity;  // sample 1, place (4, 4)
  for_each_isa<T>([&](const Table<T>& table) {
    table.convolution({}, shape, 2, x.data(), w.data(), nullptr, true, y.data());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t sample = i / 500, row = i / 100 % 5, col = i / 20 % 5;
      if (sample == 0 && row <= 1 && col <= 1)
        BOOST_TEST(std::isnan(y[i]));
      else if (sample == 1 && row >= 3 && col >= 3)
        BOOST_TEST(y[i] == infinity);
      else
        BOOST_TEST(std::isfinite(y[i]));
    }
    table.convolution_dw({}, shape, 2, x.data(), ones.data(), ones.data(), {}, false, dw.data(), dw.data() + 360);
    BOOST_TEST(std::isnan(dw[0]));
    BOOST_TEST(std::isfinite(dw[20]));  // the other channel
    BOOST_TEST(dw[360] == T(50));
  });
}

// Of images of one place the tap in the middle alone sees anything: its 64 rows are what there is to do.
BOOST_AUTO_TEST_CASE(rows_of_dw_are_dealt_by_the_places_that_their_taps_see) {
  constexpr Index batch = 256, inputs = 64, outputs = 16, rows = 9 * inputs;
  const std::vector<float> x(batch * inputs, 1), dy(batch * outputs, 1);
  Index all = 0;
  as_team(4, [&](Part part) {
    std::vector<float> dw(rows * outputs, 7), db(outputs);
    table<float>().convolution_dw(part, shape_of(1, 1, inputs, outputs, 3, 3, 1, 1), batch, x.data(), dy.data(),
                                  dy.data(), {}, false, dw.data(), db.data());
    const Index sums = std::ranges::count(dw, float{batch}) / outputs;
    BOOST_TEST(sums <= inputs / 4 + 8);
    all += sums;
  });
  BOOST_TEST(all == inputs);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
