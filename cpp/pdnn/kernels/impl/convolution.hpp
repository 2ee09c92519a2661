#pragma once
/// Convolutions without copies of windows, on images with channels last.
///
/// Forward and dx are one computation. Along an axis, an output place sees a run of input places under a run of taps;
/// dx sees dy so, with the taps put in another order (flip_taps): those that meet at one place of x are every
/// stride-th one (if taps are not dilated), and they run backwards. A window's part inside the image is a few rows of
/// adjacent elements, for which the tile's loops are made; what lies outside is skipped. Where places are dilated, or
/// their channels in groups, the loops go from tap to tap. One channel a group is no product: channels are lanes. The
/// rows of a tile are neighbors in an image, or the same place in several samples, where any window has as many rows as
/// there are samples. Each output element is a sum over taps in ascending order, then channels: neither tiles nor
/// workers change a bit.
#include "pdnn/kernels/impl/elementwise.hpp"
#include "pdnn/kernels/impl/window_tile.hpp"

namespace pdnn::kernels::impl {
namespace {

inline constexpr Index kWindowAhead = 8;  // rows of weights that are fetched before their use

/// The input places that an output place sees: `count` from `begin` on, `step` apart, under the taps from `tap` on.
struct Taps {
  Index begin, count, step, tap;
};

PDNN_INLINE Index max(Index a, Index b) { return a < b ? b : a; }

/// As dx sees an axis: from places of x to those of dy.
PDNN_INLINE Axis turned(Axis axis) {
  const Index places = axis.places;
  axis.places = axis.extent, axis.extent = places;
  return axis;
}

/// How many taps on one meets the same place of x again, in which other place of dy.
struct Period {
  Index taps, step;
};
PDNN_INLINE Period period_of(const Axis& axis) {
  if (axis.dilation == 1) return {axis.stride, 1};
  Index common = axis.stride, other = axis.dilation;
  while (other != 0) {
    const Index rest = common % other;
    common = other, other = rest;
  }
  return {axis.stride / common, axis.dilation / common};
}

/// How many steps it takes to get at least so far.
PDNN_INLINE Index steps_to(Index far, Index step) { return far <= 0 ? 0 : step == 1 ? far : ceil_div(far, step); }

template <bool backward>
PDNN_INLINE Taps taps_of(const Axis& axis, Index place) {
  Index first = place * axis.stride - axis.padding, count = axis.kernel, step = axis.dilation, tap = 0;
  if constexpr (backward) {  // the places are x's, the extent is dy's
    const Period period = period_of(axis);
    const Index t = place + axis.padding;
    Index phase = t % axis.stride;  // the first tap that meets this place
    if (axis.dilation > 1)
      for (phase = 0; phase < period.taps && (t - phase * axis.dilation) % axis.stride != 0;) ++phase;
    const Index each = axis.kernel / period.taps, more = axis.kernel % period.taps;
    count = phase == period.taps ? 0 : each + (phase < more ? 1 : 0);
    step = period.step;
    first = (t - phase * axis.dilation) / axis.stride - (count - 1) * step;
    tap = phase * each + min(phase, more);
  }
  const Index skipped = steps_to(-first, step), end = min(count, steps_to(axis.extent - first, step));
  if (skipped >= end) return {0, 0, step, 0};
  return {first + skipped * step, end - skipped, step, tap + skipped};
}

/// Where flip_taps puts a tap: by the place of x it belongs to, and backwards.
PDNN_INLINE Index flipped(Index tap, const Axis& axis) {
  const Index period = period_of(axis).taps;
  const Index phase = tap % period, each = axis.kernel / period, more = axis.kernel % period;
  const Index first = phase * each + min(phase, more), count = each + (phase < more ? 1 : 0);
  return first + count - 1 - tap / period;
}

PDNN_INLINE bool empty(Range range) { return range.begin == range.end; }
/// The output places whose tap `tap` is inside the image.
PDNN_INLINE Range places_under(const Axis& axis, Index tap) {
  const Index first = tap * axis.dilation - axis.padding;  // what the tap of place 0 sees
  const Index begin = first < 0 ? ceil_div(-first, axis.stride) : 0;
  const Index end = axis.extent - first <= 0 ? 0 : ceil_div(axis.extent - first, axis.stride);
  return {min(begin, axis.places), max(min(begin, axis.places), min(end, axis.places))};
}

/// c[sample, place, j] = f(start[j] + Σ over taps and channels of a b[tap, channel, j]), for one group of channels;
/// those of a in groups of the operands. From one place to the next are a_place and c_place elements, from one row of b
/// to the next as many as c_place.
template <class T>
struct Correlation {
  Axis y, x;
  Index batch, channels, cols, a_place, c_place;
  const T *a, *b, *start;
  bool relu;
  T* c;
};

/// Output places side by side whose windows lie inside whole, if the strides of memory allow tiles of them.
template <bool backward>
PDNN_INLINE Range inside(const Axis& x) {
  Range range{0, 0};
  if (backward && x.stride > 1) return range;
  while (range.begin < x.places && taps_of<backward>(x, range.begin).count < x.kernel) ++range.begin;
  range.end = range.begin;
  while (range.end < x.places && taps_of<backward>(x, range.end).count == x.kernel) ++range.end;
  return range;
}

/// All places in [rows.begin, rows.end) of the given samples, one strip of columns.
template <bool backward, class T>
void correlate_strip(const Correlation<T>& p, const Strip<T>& strip, Index col, Range samples, Range rows) {
  const Index most = strip.most_rows;
  const Index a_row = p.x.extent * p.a_place, a_sample = p.y.extent * a_row;
  const Index c_row = p.x.places * p.c_place, c_sample = p.y.places * c_row;
  const Index b_tap = p.channels * p.c_place, b_row = p.x.kernel * b_tap;
  const Range whole = inside<backward>(p.x);
  const bool along = whole.end - whole.begin >= min(most, samples.end - samples.begin);

  // The tile of the window at row y whose first tap in x is at `taps`.
  const auto tile_at = [&](const Taps& in_y, const Taps& in_x, Index sample, Index y, Index x) {
    WindowTile<T> tile{};
    const Loop down{in_y.count, in_y.step * a_row, b_row};
    if (in_x.step == 1 && p.a_place == p.channels) {
      tile.loops[0] = {1, 0, 0}, tile.loops[1] = down;
      tile.loops[2] = {in_x.count * p.channels, 1, p.c_place};
    } else {
      tile.loops[0] = down, tile.loops[1] = {in_x.count, in_x.step * p.a_place, b_tap};
      tile.loops[2] = {p.channels, 1, p.c_place};
    }
    tile.a = p.a + sample * a_sample + in_y.begin * a_row + in_x.begin * p.a_place;
    tile.b = p.b + in_y.tap * b_row + in_x.tap * b_tap + col;
    tile.cols = p.cols - col;
    tile.ahead = kWindowAhead;
    tile.start = p.start ? p.start + col : nullptr;
    tile.start_stride = 0;
    tile.c = p.c + sample * c_sample + y * c_row + x * p.c_place + col;
    tile.relu = p.relu;
    return tile;
  };

  for_tiles(samples.end - samples.begin, most, [&](Index first, Index height) {
    first += samples.begin;
    for (Index y = rows.begin; y < rows.end; ++y) {
      const Taps in_y = taps_of<backward>(p.y, y);
      for (Index x = 0; x < p.x.places; ++x) {
        if (along && x == whole.begin) {
          const Taps in_x = taps_of<backward>(p.x, x);
          for (Index sample = first; sample < first + height; ++sample) {
            for_tiles(whole.end - whole.begin, most, [&](Index at, Index wide) {
              WindowTile<T> tile = tile_at(in_y, in_x, sample, y, x + at);
              tile.row_step = (backward ? 1 : p.x.stride) * p.a_place;
              tile.a += at * tile.row_step;
              tile.c_stride = p.c_place;
              strip.sum(wide, tile);
            });
          }
          x = whole.end - 1;
          continue;
        }
        WindowTile<T> tile = tile_at(in_y, taps_of<backward>(p.x, x), first, y, x);
        tile.row_step = a_sample;
        tile.c_stride = c_sample;
        strip.sum(height, tile);
      }
    }
  });
}

/// A worker's part: samples, or rows of the images where those deal out more evenly.
template <class Operands, bool backward, class T = typename Operands::Value>
void correlate_group(Part part, const Correlation<T>& p) {
  Range samples{0, p.batch}, rows{0, p.y.places};
  if (ceil_div(p.batch, part.size) * p.y.places <= ceil_div(p.y.places, part.size) * p.batch)
    samples = deal(part, p.batch);
  else
    rows = deal(part, p.y.places);
  for_strips<Operands, Rows::strided>(
      p.cols, [&](const Strip<T>& strip, Index col) { correlate_strip<backward>(p, strip, col, samples, rows); });
}

/// Places side by side of which each channel sees itself alone, one vector of channels after the other.
template <class Operands, int places, class T = typename Operands::Value>
PDNN_INLINE void correlate_lanes(const Correlation<T>& p, const Taps& in_y, const Taps& in_x, Index a_step, const T* a,
                                 const T* b, T* c) {
  constexpr Index n = kLanes<T>;
  const Index channels = p.c_place, a_row = p.x.extent * channels, b_row = p.x.kernel * channels;
  for (Index j = 0; j < channels; j += n) {
    const auto sum_up = [&](auto read) {
      Vector<T> sum[places];
      PDNN_UNROLL for (int r = 0; r < places; ++r) sum[r] = p.start ? read(p.start + j) : Vector<T>{};
      for (Index y = 0; y < in_y.count; ++y) {
        const T *from = a + y * in_y.step * a_row + j, *weight = b + y * b_row + j;
        for (Index x = 0; x < in_x.count; ++x, from += in_x.step * channels, weight += channels) {
          const Vector<T> w = read(weight);
          PDNN_UNROLL for (int r = 0; r < places; ++r) sum[r] =
              Operands::multiply_add(read(from + r * a_step), w, sum[r]);
        }
      }
      PDNN_UNROLL for (int r = 0; r < places; ++r) {
        if (p.relu) sum[r] = at_least<T>(sum[r], Vector<T>{});
        store(c + r * channels + j, sum[r], channels - j);
      }
    };
    if (channels - j >= n)
      sum_up([](const T* from) { return load(from); });
    else
      sum_up([&](const T* from) { return load_few(from, channels - j); });
  }
}

/// A worker's rows of the images where each group has one channel.
template <class Operands, bool backward, class T = typename Operands::Value>
void correlate_channels(Part part, const Correlation<T>& p) {
  constexpr int most = 4;
  const Index channels = p.c_place, a_row = p.x.extent * channels;
  const Range mine = deal(part, p.batch * p.y.places), whole = inside<backward>(p.x);
  const Index a_step = (backward ? 1 : p.x.stride) * channels;
  for (Index row = mine.begin; row < mine.end; ++row) {
    const Taps in_y = taps_of<backward>(p.y, row % p.y.places);
    const T* const a = p.a + (row / p.y.places * p.y.extent + in_y.begin) * a_row;
    const T* const b = p.b + in_y.tap * p.x.kernel * channels;
    T* const c = p.c + row * p.x.places * channels;
    for (Index x = 0; x < p.x.places;) {
      const Taps in_x = taps_of<backward>(p.x, x);
      const T *const from = a + in_x.begin * channels, *const weights = b + in_x.tap * channels;
      const bool several = x >= whole.begin && x + most <= whole.end;
      if (several)
        correlate_lanes<Operands, most>(p, in_y, in_x, a_step, from, weights, c + x * channels);
      else
        correlate_lanes<Operands, 1>(p, in_y, in_x, a_step, from, weights, c + x * channels);
      x += several ? most : 1;
    }
  }
}

/// p is the first of so many groups.
template <class Operands, bool backward, class T = typename Operands::Value>
void correlate(Part part, Correlation<T> p, Index groups) {
  if (groups > 1 && p.channels == 1 && p.cols == 1) return correlate_channels<Operands, backward>(part, p);
  for (; groups > 0; --groups) {
    correlate_group<Operands, backward>(part, p);
    p.a += p.channels, p.b += p.cols, p.c += p.cols;
    if (p.start) p.start += p.cols;
  }
}

template <class Operands, class T = typename Operands::Value>
void convolution(Part part, const Convolution& s, Index batch, const T* x, const T* w, const T* b, bool relu, T* y) {
  const Index channels = ceil_div(s.inputs / s.groups, Operands::kGroup);
  const Correlation<T> p{
      s.windows.y, s.windows.x, batch, channels, s.outputs / s.groups, s.groups * channels, s.outputs, x,
      w,           b,           relu,  y};
  correlate<Operands, false>(part, p, s.groups);
}

template <class Operands, class T = typename Operands::Value>
void convolution_dx(Part part, const Convolution& s, Index batch, const T* dy, const T* flipped_w, T* dx) {
  const Index channels = ceil_div(s.outputs / s.groups, Operands::kGroup);
  const Correlation<T> p{turned(s.windows.y),
                         turned(s.windows.x),
                         batch,
                         channels,
                         s.inputs / s.groups,
                         s.groups * channels,
                         s.inputs,
                         dy,
                         flipped_w,
                         nullptr,
                         false,
                         dx};
  correlate<Operands, true>(part, p, s.groups);
}

/// flip_taps of change(w).
template <class T, class Change>
void flip_changed_taps(Part part, const Convolution& s, const T* w, T* flipped_w, Change change) {
  const Windows& v = s.windows;
  const Index inputs = s.inputs / s.groups, outputs = s.outputs / s.groups;  // of a group
  const Range mine = deal(part, v.y.kernel * v.x.kernel);
  for (Index tap = mine.begin; tap < mine.end; ++tap) {
    const Index tap_y = tap / v.x.kernel, tap_x = tap % v.x.kernel;
    if (empty(places_under(v.y, tap_y)) || empty(places_under(v.x, tap_x))) continue;  // it is never read
    const T* const all = w + tap * inputs * s.outputs;
    T* const all_flipped = flipped_w + (flipped(tap_y, v.y) * v.x.kernel + flipped(tap_x, v.x)) * inputs * s.outputs;
    constexpr Index n = kLanes<T>;
    if (inputs == 1 && outputs == 1) {
      for (Index i = 0; i < s.groups; i += n) store(all_flipped + i, change(load(all + i, s.groups - i)), s.groups - i);
      continue;
    }
    for (Index group = 0; group < s.groups; ++group) {
      const T* const from = all + group * outputs;
      T* const to = all_flipped + group * inputs;
      for (Index i = 0; i < inputs; i += n) {
        for (Index o = 0; o < outputs; o += n) {
          Vector<T> square[n];
          PDNN_UNROLL for (Index r = 0; r < n; ++r) square[r] =
              i + r < inputs ? change(load(from + (i + r) * s.outputs + o, outputs - o)) : Vector<T>{};
          transpose<T>(square);
          PDNN_UNROLL for (Index r = 0; r < n; ++r) {
            if (o + r < outputs) store(to + (o + r) * s.inputs + i, square[r], inputs - i);
          }
        }
      }
    }
  }
}

template <class T>
void flip_taps(Part part, const Convolution& s, const T* w, T* flipped_w) {
  flip_changed_taps(part, s, w, flipped_w, AsItIs{});
}

}  // namespace
}  // namespace pdnn::kernels::impl
