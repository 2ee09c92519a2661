#pragma once
/// Convolutions without copies of windows, on images with channels last.
///
/// Forward and dx are one computation. Along an axis, an output place sees a run of input places under a run of taps;
/// dx sees dy so, with the taps put in another order (flip_taps): those that meet at one place of x are every
/// stride-th one, and they run backwards. A window's part inside the image is a few rows of adjacent elements, for
/// which the tile's loops are made; what lies outside is skipped. The rows of a tile are neighbors in an image, or the
/// same place in several samples, where any window has as many rows as there are samples. Each output element is a sum
/// over taps in ascending order, then channels: neither tiles nor workers change a bit.
///
/// For dw the places of a batch are the depth. A tile's rows are channels of x under one tap. Where channels are few,
/// rows of several taps share a tile: the image, or a piece of it, is copied with its padding, and each row has its own
/// offset there.
#include "pdnn/kernels/impl/elementwise.hpp"
#include "pdnn/kernels/impl/window_tile.hpp"

namespace pdnn::kernels::impl {
namespace {

inline constexpr Index kWindowAhead = 8;          // rows of weights that are fetched before their use
inline constexpr Index kChunkBytes = 192 * 1024;  // of x and dy, summed into dw at once
inline constexpr Index kFewChannels = 8;          // fewer share tiles in dw
inline constexpr Index kPatchBytes = 32 * 1024;   // of an image, padded
inline constexpr Index kMostOffsets = 256;        // of rows in a patch
inline constexpr Index kPatchAhead = 64;          // rows of dy that are fetched before their use

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

/// c[sample, place, j] = f(start[j] + Σ over taps and channels of a b[tap, channel, j]).
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
template <class T, bool backward, class S>
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
              window_kernel<T, S::vectors, Rows::strided, S::few>(wide)(tile);
            });
          }
          x = whole.end - 1;
          continue;
        }
        WindowTile<T> tile = tile_at(in_y, taps_of<backward>(p.x, x), first, y, x);
        tile.row_step = a_sample;
        tile.c_stride = c_sample;
        window_kernel<T, S::vectors, Rows::strided, S::few>(height)(tile);
      }
    }
  });
}

/// A worker's part: samples, or rows of the images where those deal out more evenly.
template <class T, bool backward>
void correlate(Part part, const Correlation<T>& p) {
  Range samples{0, p.batch}, rows{0, p.y.places};
  if (ceil_div(p.batch, part.size) * p.y.places <= ceil_div(p.y.places, part.size) * p.batch)
    samples = deal(part, p.batch);
  else
    rows = deal(part, p.y.places);
  for_strips<T>(p.cols, [&](auto strip, Index col) { correlate_strip<T, backward>(p, strip, col, samples, rows); });
}

template <class T>
void convolution(Part part, const Convolution& s, Index batch, const T* x, const T* w, const T* b, bool relu, T* y) {
  const Windows& v = s.windows;
  const Correlation<T> p{{v.out_height, v.height, v.kernel_height, v.stride, v.padding},
                         {v.out_width, v.width, v.kernel_width, v.stride, v.padding},
                         batch,
                         s.inputs,
                         s.outputs,
                         x,
                         w,
                         b,
                         relu,
                         y};
  correlate<T, false>(part, p);
}

template <class T>
void convolution_dx(Part part, const Convolution& s, Index batch, const T* dy, const T* flipped_w, T* dx) {
  const Windows& v = s.windows;
  const Correlation<T> p{{v.height, v.out_height, v.kernel_height, v.stride, v.padding},
                         {v.width, v.out_width, v.kernel_width, v.stride, v.padding},
                         batch,
                         s.outputs,
                         s.inputs,
                         dy,
                         flipped_w,
                         nullptr,
                         false,
                         dx};
  correlate<T, true>(part, p);
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

/// What dw is summed from: some samples, and where the sum begins.
template <class T>
struct Chunk {
  const Convolution& s;
  Axis y, x;
  Index batch;
  const T *in, *dy;
  bool from_zero;
};

/// Rows of dw += the tile's sum over the chunk, one strip of columns; `tile` has loops, a and b.
template <class T, Rows lie, class S>
void sum_rows(WindowTile<T> tile, S, Index rows, bool from_zero, Index cols, Index col, T* dw) {
  const T* const a = tile.a;
  const Index* const offsets = tile.offsets;
  tile.cols = cols - col;
  tile.start_stride = tile.c_stride = cols;
  tile.relu = false;
  for_tiles(rows, kMostWindowRows<S::vectors, lie, S::few>, [&](Index row, Index height) {
    if constexpr (lie == Rows::scattered)
      tile.offsets = offsets + row;
    else
      tile.a = a + row;
    tile.c = dw + row * cols + col;
    tile.start = from_zero ? nullptr : tile.c;
    window_kernel<T, S::vectors, lie, S::few>(height)(tile);
  });
}

/// Rows of dw under one tap, which are channels of x.
template <class T>
void sum_channels(const Chunk<T>& p, Index tap, Range channels, T* dw) {
  const Index inputs = p.s.inputs, outputs = p.s.outputs;
  const Index tap_y = tap / p.x.kernel, tap_x = tap % p.x.kernel;
  const Range ys = places_under(p.y, tap_y), xs = places_under(p.x, tap_x);
  const Index a_row = p.x.extent * inputs, b_row = p.x.places * outputs;
  const Loop samples{p.batch, p.y.extent * a_row, p.y.places * b_row};
  const Loop rows{ys.end - ys.begin, p.y.stride * a_row, b_row};
  const Loop places{xs.end - xs.begin, p.x.stride * inputs, outputs};
  WindowTile<T> tile{};
  if (places.count >= min(p.batch, 8)) {
    tile.loops[0] = samples, tile.loops[1] = rows, tile.loops[2] = places;
  } else {  // the longest loop inside
    tile.loops[0] = rows, tile.loops[1] = places, tile.loops[2] = samples;
  }
  const Index y = ys.begin * p.y.stride - p.y.padding + tap_y, x = xs.begin * p.x.stride - p.x.padding + tap_x;
  const bool none = rows.count == 0 || places.count == 0;  // the tap never meets the image
  const T* const b = none ? p.dy : p.dy + ys.begin * b_row + xs.begin * outputs;
  tile.a = none ? p.in : p.in + y * a_row + x * inputs + channels.begin;
  for_strips<T>(outputs, [&](auto strip, Index col) {
    tile.b = b + col;
    sum_rows<T, Rows::adjacent>(tile, strip, channels.end - channels.begin, p.from_zero, outputs, col,
                                dw + channels.begin * outputs);
  });
}

/// How many places of an axis a patch of `most` elements has room for.
PDNN_INLINE Index places_in(const Axis& axis, Index most) {
  return min(axis.places, (most - axis.kernel) / axis.stride + 1);
}
PDNN_INLINE Index seen_by(const Axis& axis, Index places) { return (places - 1) * axis.stride + axis.kernel; }

/// patch[i, j, :] = what tap (i, j) of the window at place (y, x) sees in an image, 0 outside of it.
template <class T>
void copy_patch(const Chunk<T>& p, const T* image, Index y, Index x, Index rows, Index cols, T* patch) {
  const Index inputs = p.s.inputs, line = p.x.extent * inputs, width = cols * inputs;
  const Index first_y = y * p.y.stride - p.y.padding, first = (x * p.x.stride - p.x.padding) * inputs;
  for (Index i = 0; i < rows; ++i, patch += width) {
    const bool seen = first_y + i >= 0 && first_y + i < p.y.extent;
    const Index begin = seen ? min(max(0, -first), width) : width, end = max(begin, min(width, line - first));
    for (Index j = 0; j < begin; j += kLanes<T>) store(patch + j, Vector<T>{}, begin - j);
    const T* const in = seen ? image + (first_y + i) * line + first : image;
    for (Index j = begin; j < end; j += kLanes<T>) store(patch + j, load(in + j, end - j), end - j);
    for (Index j = end; j < width; j += kLanes<T>) store(patch + j, Vector<T>{}, width - j);
  }
}

/// Rows of dw where channels are few, by way of patches.
template <class T>
void sum_patches(const Chunk<T>& p, Range rows, T* dw) {
  alignas(64) T patch[kPatchBytes / sizeof(T)];
  Index offsets[kMostOffsets];
  constexpr Index size = sizeof(T);
  const Index inputs = p.s.inputs, outputs = p.s.outputs, across = p.x.kernel * inputs;
  const Index sample = p.y.extent * p.x.extent * inputs, dy_row = p.x.places * outputs;
  const Index most_wide = places_in(p.x, kPatchBytes / size / (p.y.kernel * inputs));
  const Index room = places_in(p.y, kPatchBytes / size / (seen_by(p.x, most_wide) * inputs));
  const Index most_high = min(room, max(1, kPatchBytes / size / dy_row));  // its part of dy stays near, too
  for (; rows.begin < rows.end; rows.begin += kMostOffsets) {
    const Index count = min(kMostOffsets, rows.end - rows.begin);
    Index offsets_width = 0;
    for (Index n = 0; n < p.batch; ++n) {
      for (Index y = 0; y < p.y.places; y += most_high) {
        for (Index x = 0; x < p.x.places; x += most_wide) {
          const Index high = min(most_high, p.y.places - y), wide = min(most_wide, p.x.places - x);
          const Index width = seen_by(p.x, wide) * inputs;
          copy_patch(p, p.in + n * sample, y, x, seen_by(p.y, high), seen_by(p.x, wide), patch);
          for (Index r = 0; width != offsets_width && r < count; ++r)
            offsets[r] = (rows.begin + r) / across * width + (rows.begin + r) % across;
          offsets_width = width;
          WindowTile<T> tile{};
          tile.loops[0] = {1, 0, 0};
          tile.loops[1] = {high, p.y.stride * width, dy_row};
          tile.loops[2] = {wide, p.x.stride * inputs, outputs};
          tile.a = patch;
          tile.offsets = offsets;
          tile.ahead = kPatchAhead;
          for_strips<T>(outputs, [&](auto strip, Index col) {
            tile.b = p.dy + (n * p.y.places + y) * dy_row + x * outputs + col;
            sum_rows<T, Rows::scattered>(tile, strip, count, p.from_zero && n == 0 && y == 0 && x == 0, outputs, col,
                                         dw + rows.begin * outputs);
          });
        }
      }
    }
  }
}

/// db += Σ dy over the chunk, in several sums of every so many places, to keep additions in flight.
template <class T>
void sum_places(const Chunk<T>& p, T* db) {
  constexpr Index chains = 8, n = kLanes<T>;
  const Index cols = p.s.outputs, places = p.batch * p.y.places * p.x.places;
  for (Index j = 0; j < cols; j += n) {
    Vector<T> sum[chains]{};
    const auto add_up = [&](auto read) {
      const T* at = p.dy + j;
      Index place = 0;
      for (; place + chains <= places; place += chains)
        PDNN_UNROLL for (Index i = 0; i < chains; ++i, at += cols) sum[i] += read(at);
      for (Index i = 0; place < places; ++place, ++i, at += cols) sum[0] += read(at);
    };
    const Index left = cols - j;
    if (left >= n)
      add_up([](const T* at) { return load(at); });
    else
      add_up([&](const T* at) { return load_few(at, left); });
    PDNN_UNROLL for (Index i = 1; i < chains; ++i) sum[0] += sum[i];
    store(db + j, p.from_zero ? sum[0] : load(db + j, left) + sum[0], left);
  }
}

template <class T>
void convolution_dw(Part part, const Convolution& s, Index batch, const T* x, const T* dy, bool add, T* dw, T* db) {
  const Windows& v = s.windows;
  const Index taps = v.kernel_height * v.kernel_width, x_sample = v.height * v.width * s.inputs;
  const Index dy_sample = v.out_height * v.out_width * s.outputs;
  // Dealt are the rows of dw, and behind them db as one more.
  const Index rows = taps * s.inputs;
  const Range dealt = deal(part, rows + (db ? 1 : 0)), mine{min(dealt.begin, rows), min(dealt.end, rows)};
  const bool sums_db = dealt.begin <= rows && rows < dealt.end;
  const Index samples = max(1, kChunkBytes / static_cast<Index>(sizeof(T)) / max(1, x_sample + dy_sample));
  const bool in_patches = batch > 0 && s.inputs < kFewChannels && rows <= kPatchBytes / static_cast<Index>(sizeof(T));
  Index first = 0;
  do {
    Chunk<T> chunk{s,
                   {v.out_height, v.height, v.kernel_height, v.stride, v.padding},
                   {v.out_width, v.width, v.kernel_width, v.stride, v.padding},
                   min(samples, batch - first),
                   x + first * x_sample,
                   dy + first * dy_sample,
                   first == 0 && !add};
    if (batch == 0) chunk.in = chunk.dy = dw;  // they may be null, where arithmetic is undefined; nothing is read
    if (in_patches) {
      sum_patches(chunk, mine, dw);
    } else {
      for (Index tap = mine.begin / s.inputs; tap * s.inputs < mine.end; ++tap) {
        const Range channels{max(mine.begin - tap * s.inputs, 0), min(mine.end - tap * s.inputs, s.inputs)};
        sum_channels(chunk, tap, channels, dw + tap * s.inputs * s.outputs);
      }
    }
    if (sums_db) sum_places(chunk, db);
    first += samples;
  } while (first < batch);
}

}  // namespace
}  // namespace pdnn::kernels::impl
