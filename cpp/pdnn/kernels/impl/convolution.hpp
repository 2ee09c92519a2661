#pragma once
/// Convolutions without copies of windows, on images with channels last.
///
/// Forward and dx are one computation. Along an axis, an output place sees a run of input places under a run of taps;
/// dx sees dy so, with the taps put in another order (flip_taps): those that meet at one place of x are every
/// stride-th one, and they run backwards. A window's part inside the image is a few rows of adjacent elements, for
/// which the tile's loops are made; what lies outside is skipped. The rows of a tile are neighbors in an image, or the
/// same place in several samples, where any window has as many rows as there are samples. Each output element is a sum
/// over taps in ascending order, then channels: neither tiles nor workers change a bit.
#include "pdnn/kernels/impl/elementwise.hpp"
#include "pdnn/kernels/impl/window_tile.hpp"

namespace pdnn::kernels::impl {
namespace {

inline constexpr Index kWindowAhead = 8;  // rows of weights that are fetched before their use

/// The input places [begin, end) that an output place sees, under the taps from `tap` on.
struct Taps {
  Index begin, end, tap;
};

/// One axis of the images: output places, input places, and the window's way over them.
struct Axis {
  Index places, extent, kernel, stride, padding;
};

PDNN_INLINE Index max(Index a, Index b) { return a < b ? b : a; }

template <bool backward>
PDNN_INLINE Taps taps_of(const Axis& axis, Index place) {
  Index first = place * axis.stride - axis.padding, count = axis.kernel, tap = 0;
  if constexpr (backward) {  // the places are x's, the extent is dy's
    const Index t = place + axis.padding, phase = t % axis.stride;
    const Index each = axis.kernel / axis.stride, more = axis.kernel % axis.stride;
    count = each + (phase < more ? 1 : 0);
    first = t / axis.stride - count + 1;
    tap = phase * each + min(phase, more);
  }
  const Index begin = min(max(first, 0), axis.extent), end = max(begin, min(first + count, axis.extent));
  return {begin, end, tap + begin - first};
}

/// Where flip_taps puts a tap: by the place of x it belongs to, and backwards.
PDNN_INLINE Index flipped(Index tap, Index kernel, Index stride) {
  const Index phase = tap % stride, each = kernel / stride, more = kernel % stride;
  const Index first = phase * each + min(phase, more), count = each + (phase < more ? 1 : 0);
  return first + count - 1 - tap / stride;
}

PDNN_INLINE bool empty(Range range) { return range.begin == range.end; }
/// The output places whose tap `tap` is inside the image.
PDNN_INLINE Range places_under(const Axis& axis, Index tap) {
  const Index first = tap - axis.padding;  // what the tap of place 0 sees
  const Index begin = first < 0 ? ceil_div(-first, axis.stride) : 0;
  const Index end = axis.extent - first <= 0 ? 0 : ceil_div(axis.extent - first, axis.stride);
  return {min(begin, axis.places), max(min(begin, axis.places), min(end, axis.places))};
}

/// c[sample, place, j] = f(start[j] + Σ over taps and channels of a b[tap, channel, j]); channels in groups of the
/// operands.
template <class T>
struct Correlation {
  Axis y, x;
  Index batch, channels, cols;
  const T *a, *b, *start;
  bool relu;
  T* c;
};

/// Output places side by side whose windows lie inside whole, if the strides of memory allow tiles of them.
template <bool backward>
PDNN_INLINE Range inside(const Axis& x) {
  Range range{0, 0};
  if (backward && x.stride > 1) return range;
  while (range.begin < x.places &&
         taps_of<backward>(x, range.begin).end - taps_of<backward>(x, range.begin).begin < x.kernel)
    ++range.begin;
  range.end = range.begin;
  while (range.end < x.places &&
         taps_of<backward>(x, range.end).end - taps_of<backward>(x, range.end).begin == x.kernel)
    ++range.end;
  return range;
}

/// All places in [rows.begin, rows.end) of the given samples, one strip of columns.
template <class Operands, bool backward, class S, class T = typename Operands::Value>
void correlate_strip(const Correlation<T>& p, S, Index col, Range samples, Range rows) {
  constexpr Index most = kMostWindowRows<S::vectors, Rows::strided, S::few>;
  const Index a_row = p.x.extent * p.channels, a_sample = p.y.extent * a_row;
  const Index c_row = p.x.places * p.cols, c_sample = p.y.places * c_row;
  const Index b_row = p.x.kernel * p.channels * p.cols;
  const Range whole = inside<backward>(p.x);
  const bool along = whole.end - whole.begin >= min(most, samples.end - samples.begin);

  // The tile of the window at row y whose first tap in x is at `taps`.
  const auto tile_at = [&](const Taps& in_y, const Taps& in_x, Index sample, Index y, Index x) {
    WindowTile<T> tile{};
    tile.loops[0] = {1, 0, 0};
    tile.loops[1] = {in_y.end - in_y.begin, a_row, b_row};
    tile.loops[2] = {(in_x.end - in_x.begin) * p.channels, 1, p.cols};
    tile.a = p.a + sample * a_sample + in_y.begin * a_row + in_x.begin * p.channels;
    tile.b = p.b + in_y.tap * b_row + in_x.tap * p.channels * p.cols + col;
    tile.cols = p.cols - col;
    tile.ahead = kWindowAhead;
    tile.start = p.start ? p.start + col : nullptr;
    tile.start_stride = 0;
    tile.c = p.c + sample * c_sample + y * c_row + x * p.cols + col;
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
              tile.row_step = (backward ? 1 : p.x.stride) * p.channels;
              tile.a += at * tile.row_step;
              tile.c_stride = p.cols;
              window_kernel<Operands, S::vectors, Rows::strided, S::few>(wide)(tile);
            });
          }
          x = whole.end - 1;
          continue;
        }
        WindowTile<T> tile = tile_at(in_y, taps_of<backward>(p.x, x), first, y, x);
        tile.row_step = a_sample;
        tile.c_stride = c_sample;
        window_kernel<Operands, S::vectors, Rows::strided, S::few>(height)(tile);
      }
    }
  });
}

/// A worker's part: samples, or rows of the images where those deal out more evenly.
template <class Operands, bool backward, class T = typename Operands::Value>
void correlate(Part part, const Correlation<T>& p) {
  Range samples{0, p.batch}, rows{0, p.y.places};
  if (ceil_div(p.batch, part.size) * p.y.places <= ceil_div(p.y.places, part.size) * p.batch)
    samples = deal(part, p.batch);
  else
    rows = deal(part, p.y.places);
  for_strips<T>(p.cols,
                [&](auto strip, Index col) { correlate_strip<Operands, backward>(p, strip, col, samples, rows); });
}

template <class Operands, class T = typename Operands::Value>
void convolution(Part part, const Convolution& s, Index batch, const T* x, const T* w, const T* b, bool relu, T* y) {
  const Windows& v = s.windows;
  const Correlation<T> p{{v.out_height, v.height, v.kernel_height, v.stride, v.padding},
                         {v.out_width, v.width, v.kernel_width, v.stride, v.padding},
                         batch,
                         ceil_div(s.inputs, Operands::kGroup),
                         s.outputs,
                         x,
                         w,
                         b,
                         relu,
                         y};
  correlate<Operands, false>(part, p);
}

template <class Operands, class T = typename Operands::Value>
void convolution_dx(Part part, const Convolution& s, Index batch, const T* dy, const T* flipped_w, T* dx) {
  const Windows& v = s.windows;
  const Correlation<T> p{{v.height, v.out_height, v.kernel_height, v.stride, v.padding},
                         {v.width, v.out_width, v.kernel_width, v.stride, v.padding},
                         batch,
                         ceil_div(s.outputs, Operands::kGroup),
                         s.inputs,
                         dy,
                         flipped_w,
                         nullptr,
                         false,
                         dx};
  correlate<Operands, true>(part, p);
}

template <class T>
void flip_taps(Part part, const Convolution& s, const T* w, T* flipped_w) {
  const Windows& v = s.windows;
  const Axis in_y{v.out_height, v.height, v.kernel_height, v.stride, v.padding};
  const Axis in_x{v.out_width, v.width, v.kernel_width, v.stride, v.padding};
  const Range mine = deal(part, v.kernel_height * v.kernel_width);
  for (Index tap = mine.begin; tap < mine.end; ++tap) {
    const Index tap_y = tap / v.kernel_width, tap_x = tap % v.kernel_width;
    if (empty(places_under(in_y, tap_y)) || empty(places_under(in_x, tap_x))) continue;  // it is never read
    const Index y = flipped(tap_y, v.kernel_height, v.stride), x = flipped(tap_x, v.kernel_width, v.stride);
    const T* const from = w + tap * s.inputs * s.outputs;
    T* const to = flipped_w + (y * v.kernel_width + x) * s.inputs * s.outputs;
    constexpr Index n = kLanes<T>;
    for (Index i = 0; i < s.inputs; i += n) {
      for (Index o = 0; o < s.outputs; o += n) {
        Vector<T> square[n];
        PDNN_UNROLL for (Index r = 0; r < n; ++r) square[r] =
            i + r < s.inputs ? load(from + (i + r) * s.outputs + o, s.outputs - o) : Vector<T>{};
        transpose<T>(square);
        PDNN_UNROLL for (Index r = 0; r < n; ++r) {
          if (o + r < s.outputs) store(to + (o + r) * s.inputs + i, square[r], s.inputs - i);
        }
      }
    }
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
