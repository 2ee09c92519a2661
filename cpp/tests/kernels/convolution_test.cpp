// The convolutions against sums in double, for every way that a window lies on an image, between forbidden pages, for
// every build and precision.
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include "pdnn/core/errors.hpp"
#include "random_rounds.hpp"
#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

using Elements = boost::mpl::list<float, double>;

Convolution shape_of(Index height, Index width, Index inputs, Index outputs, Index kernel_height, Index kernel_width,
                     Index stride, Index padding) {
  return {{height, width, kernel_height, kernel_width, stride, padding,
           (height + 2 * padding - kernel_height) / stride + 1, (width + 2 * padding - kernel_width) / stride + 1},
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
        x_count(batch * v_.height * v_.width * s_.inputs),
        w_count(v_.kernel_height * v_.kernel_width * s_.inputs * s_.outputs),
        y_count(batch * v_.out_height * v_.out_width * s_.outputs),
        x_(memory()[0].at_end(x_count)),
        w_(memory()[1].at_end(w_count)),
        b_(memory()[2].at_end(s_.outputs)),
        dy_(memory()[3].at_end(y_count)) {
    fill(x_, x_count, 1);
    fill(w_, w_count, 2);
    fill(b_, s_.outputs, 3);
    fill(dy_, y_count, 4);
  }

  std::vector<T> forward(const Build<T>& build, int team, bool bias, bool relu) {
    T* const y = memory()[4].at_end(y_count);
    std::fill_n(y, y_count, kUntouched);
    std::vector<T> rx, rw;
    const T* const x = by_channels(build, team, x_, x_count, s_.inputs, rx);
    const T* const w = by_taps(build, team, w_, s_.inputs, s_.outputs, rw);
    as_team(team, [&](Part part) { build.kernels.convolution(part, s_, batch_, x, w, bias ? b_ : nullptr, relu, y); });
    return {y, y + y_count};
  }
  std::vector<T> dx(const Build<T>& build, int team) {
    T *const flipped = memory()[4].at_end(w_count), *const dx = memory()[5].at_end(x_count);
    std::fill_n(dx, x_count, kUntouched);
    std::fill_n(flipped, w_count, T(1));
    as_team(team, [&](Part part) { build.table.flip_taps(part, s_, w_, flipped); });
    std::vector<T> rdy, rw;
    const T* const dy = by_channels(build, team, dy_, y_count, s_.outputs, rdy);
    const T* const w = by_taps(build, team, flipped, s_.outputs, s_.inputs, rw);
    as_team(team, [&](Part part) { build.kernels.convolution_dx(part, s_, batch_, dy, w, dx); });
    return {dx, dx + x_count};
  }
  /// dw and db, in memory together or apart; `add` starts from w and b.
  std::vector<T> dw(const Build<T>& build, int team, bool add, bool together) {
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
      for (Index p = 0; p < v_.out_height; ++p)
        for (Index q = 0; q < v_.out_width; ++q)
          for (Index i = 0; i < v_.kernel_height; ++i)
            for (Index j = 0; j < v_.kernel_width; ++j) {
              const Index r = p * v_.stride + i - v_.padding, s = q * v_.stride + j - v_.padding;
              if (r < 0 || r >= v_.height || s < 0 || s >= v_.width) continue;
              action((n * v_.height + r) * v_.width + s, (n * v_.out_height + p) * v_.out_width + q,
                     i * v_.kernel_width + j);
            }
  }

  /// All three against the definition.
  void check(const Build<T>& build, int team) {
    const bool bias = batch_ % 2 == 0, relu = (s_.outputs + batch_) % 3 == 1, add = s_.outputs % 2 == 0;
    std::vector<double> y(size(y_count)), dx_(size(x_count)), dw_(size(w_count + s_.outputs)),
        y_size = y, dx_size = dx_, dw_size = dw_;
    const Index ci = s_.inputs, co = s_.outputs;
    for (Index i = 0; bias && i < y_count; ++i) y_size[size(i)] = std::abs(y[size(i)] = double{b_[i % co]});
    for (Index i = 0; add && i < w_count + co; ++i)
      dw_size[size(i)] = std::abs(dw_[size(i)] = double{i < w_count ? w_[i] : b_[i - w_count]});
    each_meeting([&](Index at_x, Index at_y, Index tap) {
      for (Index i = 0; i < ci; ++i)
        for (Index o = 0; o < co; ++o) {
          const double x = double{x_[at_x * ci + i]}, w = double{w_[(tap * ci + i) * co + o]},
                       dy = double{dy_[at_y * co + o]};
          y[size(at_y * co + o)] += x * w, y_size[size(at_y * co + o)] += std::abs(x * w);
          dx_[size(at_x * ci + i)] += dy * w, dx_size[size(at_x * ci + i)] += std::abs(dy * w);
          dw_[size((tap * ci + i) * co + o)] += x * dy, dw_size[size((tap * ci + i) * co + o)] += std::abs(x * dy);
        }
    });
    for (Index i = 0; i < y_count; ++i)
      dw_[size(w_count + i % co)] += double{dy_[i]}, dw_size[size(w_count + i % co)] += std::abs(double{dy_[i]});
    for (double& value : y) value = relu && value < 0 ? 0 : value;
    compare("y", forward(build, team, bias, relu), y, y_size, build.error);
    compare("dx", dx(build, team), dx_, dx_size, build.error);
    compare("dw", dw(build, team, add, batch_ % 3 == 0), dw_, dw_size, build.error);
  }

  /// Whether a team changes no bit of any result.
  bool agrees(const Build<T>& build, int team) {
    return same(forward(build, 1, true, true), forward(build, team, true, true)) &&
           same(dx(build, 1), dx(build, team)) && same(dw(build, 1, false, true), dw(build, team, false, true)) &&
           same(dw(build, 1, true, false), dw(build, team, true, false));
  }

  std::string where() const {
    return message(batch_, " x ", v_.height, "x", v_.width, "x", s_.inputs, " to ", s_.outputs, ", kernel ",
                   v_.kernel_height, "x", v_.kernel_width, ", stride ", v_.stride, ", padding ", v_.padding);
  }

 private:
  static constexpr T kUntouched = T(12345);
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
      build.rounding->round_taps(part, v_.kernel_height * v_.kernel_width, rows, cols, values, room.data());
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
  void compare(const char* what, const std::vector<T>& got, const std::vector<double>& want,
               const std::vector<double>& sizes, double error) const {
    const double depth = static_cast<double>(w_count + y_count);
    const double unit = std::min(depth, 1000.) * double{std::numeric_limits<T>::epsilon()} + error;
    for (std::size_t i = 0; i < want.size(); ++i)
      if (!(std::abs(double{got[i]} - want[i]) <= unit * sizes[i] + double{std::numeric_limits<T>::min()}))
        BOOST_ERROR(where() << ": " << what << "[" << i << "] is " << got[i] << ", expected " << want[i]);
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
};

template <class T>
void check_shape(const Convolution& shape, Index batch, int large_team = 37) {
  ConvolutionProblem<T> problem(shape, batch);
  for_each_build<T>([&](const Build<T>& build) {
    problem.check(build, 1 + static_cast<int>((shape.outputs + batch) % 4));
    for (const int team : {2, 3, 4, large_team})
      if (!problem.agrees(build, team)) BOOST_ERROR(problem.where() << ": a team of " << team << " changed bits");
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
    const Index kernel_height = draw(1, 6), kernel_width = draw.once_in(3) ? draw(1, 6) : kernel_height;
    const Index stride = draw(1, 4), padding = draw(0, draw.once_in(4) ? 7 : 2);
    const Index height = std::max(draw(1, 14), kernel_height - 2 * padding);
    const Index width = std::max(draw(1, 14), kernel_width - 2 * padding);
    const Index inputs = draw.one_of<Index>({1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33});
    const Index outputs = draw.one_of<Index>({1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 32, 33, 48, 63, 65, 80});
    const Convolution shape = shape_of(height, width, inputs, outputs, kernel_height, kernel_width, stride, padding);
    const Index y_sample = shape.windows.out_height * shape.windows.out_width * outputs;
    const Index batch = std::min(draw(0, 9), Index{1 << 16} / std::max(height * width * inputs, y_sample));
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

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
