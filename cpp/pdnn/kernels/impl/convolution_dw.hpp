#pragma once
/// The gradient of a convolution's weights, for which the places of a batch are the depth. A tile's rows are channels
/// of x under one tap. Where channels are few, rows of several taps share a tile: the image, or a piece of it, is
/// copied with its padding, and each row has its own offset there.
#include "pdnn/kernels/impl/convolution.hpp"
#include "pdnn/kernels/impl/leaves.hpp"

namespace pdnn::kernels::impl {
namespace {

inline constexpr Index kChunkBytes = 192 * 1024;  // of x and dy, summed into dw at once
inline constexpr Index kFewChannels = 8;          // fewer share tiles in dw
inline constexpr Index kPatchBytes = 32 * 1024;   // of an image, padded
inline constexpr Index kMostOffsets = 256;        // of rows in a patch
inline constexpr Index kPatchAhead = 64;          // rows of dy that are fetched before their use
inline constexpr Index kEmptyRow = 8;             // places take as long as writing a row whose tap sees none

/// What dw is summed from: some samples, in groups of the operands, and where the sum begins. The channels of each
/// group of channels are `inputs` and `outputs`.
template <class T>
struct Chunk {
  const Convolution& s;
  const Axis &y, &x;
  Index inputs, outputs, batch;
  const T *in, *dy;
  bool from_zero;
};

/// Rows of dw, `stride` elements apart, += the tile's sum over the chunk, one strip of columns; `tile` has loops, a and
/// b.
template <Rows lie, class T>
void sum_rows(WindowTile<T> tile, const Strip<T>& strip, Index rows, bool from_zero, Index cols, Index col,
              Index stride, T* dw) {
  const T* const a = tile.a;
  const Index* const offsets = tile.offsets;
  tile.cols = cols - col;
  tile.start_stride = tile.c_stride = stride;
  tile.relu = false;
  for_tiles(rows, strip.most_rows, [&](Index row, Index height) {
    if constexpr (lie == Rows::scattered)
      tile.offsets = offsets + row;
    else
      tile.a = a + row;
    tile.c = dw + row * stride + col;
    tile.start = from_zero ? nullptr : tile.c;
    strip.sum(height, tile);
  });
}

/// Rows of dw under one tap, which are channels of x, of each group.
template <class Operands, class T = typename Operands::Value>
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
  const Index y = ys.begin * p.y.stride - p.y.padding + tap_y * p.y.dilation;
  const Index x = xs.begin * p.x.stride - p.x.padding + tap_x * p.x.dilation;
  const bool none = rows.count == 0 || places.count == 0;  // the tap never meets the image
  const T* b = none ? p.dy : p.dy + ys.begin * b_row + xs.begin * outputs;
  tile.a = none ? p.in : p.in + y * a_row + x * inputs + channels.begin;
  dw += channels.begin * outputs;
  for (Index group = 0; group < p.s.groups; ++group) {
    for_strips<Operands, Rows::adjacent>(p.outputs, [&](const Strip<T>& strip, Index col) {
      tile.b = b + col;
      sum_rows<Rows::adjacent>(tile, strip, channels.end - channels.begin, p.from_zero, p.outputs, col, outputs, dw);
    });
    tile.a += p.inputs, b += p.outputs, dw += p.outputs;
  }
}

/// The rows of dw under some taps where each group has one channel, in several sums of every so many places.
template <class Operands, class T = typename Operands::Value>
void sum_lanes(const Chunk<T>& p, Range taps, T* dw) {
  constexpr Index chains = 4, n = kLanes<T>;
  const Index channels = p.s.inputs, a_row = p.x.extent * channels, b_row = p.x.places * channels;
  for (Index tap = taps.begin; tap < taps.end; ++tap) {
    const Index tap_y = tap / p.x.kernel, tap_x = tap % p.x.kernel;
    const Range ys = places_under(p.y, tap_y), xs = places_under(p.x, tap_x);
    const Index first_y = tap_y * p.y.dilation - p.y.padding, first_x = tap_x * p.x.dilation - p.x.padding;
    for (Index j = 0; j < channels; j += n) {
      T* const to = dw + tap * channels + j;
      const auto sum_up = [&](auto read) {
        Vector<T> sum[chains]{};
        if (!p.from_zero) sum[0] = read(to);
        for (Index sample = 0; sample < p.batch; ++sample) {
          for (Index y = ys.begin; y < ys.end; ++y) {
            const T* a = p.in + (sample * p.y.extent + y * p.y.stride + first_y) * a_row + j;
            const T* b = p.dy + (sample * p.y.places + y) * b_row + xs.begin * channels + j;
            a += (xs.begin * p.x.stride + first_x) * channels;
            const auto add = [&](Index chain) {
              sum[chain] = Operands::multiply_add(read(a), read(b), sum[chain]);
              a += p.x.stride * channels, b += channels;
            };
            Index x = xs.begin;
            for (; x + chains <= xs.end; x += chains)
              PDNN_UNROLL for (Index chain = 0; chain < chains; ++chain) add(chain);
            for (; x < xs.end; ++x) add(0);
          }
        }
        store(to, (sum[0] + sum[1]) + (sum[2] + sum[3]), channels - j);
      };
      if (channels - j >= n)
        sum_up([](const T* from) { return load(from); });
      else
        sum_up([&](const T* from) { return load_few(from, channels - j); });
    }
  }
}

PDNN_INLINE Index seen_by(const Axis& axis, Index places) {
  return (places - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
}
/// How many places of an axis a patch of `most` elements has room for.
PDNN_INLINE Index places_in(const Axis& axis, Index most) {
  return min(axis.places, (most - seen_by(axis, 1)) / axis.stride + 1);
}

/// patch[i, j, :] = what the window at place (y, x) has i elements down and j along in an image, 0 outside of it, as
/// far as so many places down and along see it by these rows of taps.
template <class T>
void copy_patch(const Chunk<T>& p, const T* image, Index y, Index x, Index high, Index wide, Range taps, T* patch) {
  const Index inputs = p.s.inputs, line = p.x.extent * inputs, width = seen_by(p.x, wide) * inputs;
  const Index first_y = y * p.y.stride - p.y.padding, first = (x * p.x.stride - p.x.padding) * inputs;
  const auto copy_line = [&](Index i) {
    T* const to = patch + i * width;
    const bool seen = first_y + i >= 0 && first_y + i < p.y.extent;
    const Index begin = seen ? min(max(0, -first), width) : width, end = max(begin, min(width, line - first));
    for (Index j = 0; j < begin; j += kLanes<T>) store(to + j, Vector<T>{}, begin - j);
    const T* const in = seen ? image + (first_y + i) * line + first : image;
    for (Index j = begin; j < end; j += kLanes<T>) store(to + j, load(in + j, end - j), end - j);
    for (Index j = end; j < width; j += kLanes<T>) store(to + j, Vector<T>{}, width - j);
  };
  if ((taps.end - taps.begin - 1) * p.y.dilation >= p.y.stride) {
    for (Index i = 0; i < seen_by(p.y, high); ++i) copy_line(i);
  } else {  // no two taps see the same line
    for (Index tap = taps.begin; tap < taps.end; ++tap)
      for (Index place = 0; place < high; ++place) copy_line(place * p.y.stride + tap * p.y.dilation);
  }
}

/// Rows of dw where channels are few, by way of patches.
template <class Operands, class T = typename Operands::Value>
void sum_patches(const Chunk<T>& p, Range rows, T* dw) {
  alignas(64) T patch[kPatchBytes / sizeof(T)];
  Index offsets[kMostOffsets];
  constexpr Index size = sizeof(T);
  const Index inputs = p.s.inputs, outputs = p.s.outputs, across = p.x.kernel * p.inputs;
  const Index sample = p.y.extent * p.x.extent * inputs, dy_row = p.x.places * outputs;
  const Index most_wide = places_in(p.x, kPatchBytes / size / (seen_by(p.y, 1) * inputs));
  const Index room = places_in(p.y, kPatchBytes / size / (seen_by(p.x, most_wide) * inputs));
  const Index most_high = min(room, max(1, kPatchBytes / size / dy_row));  // its part of dy stays near, too
  for (; rows.begin < rows.end; rows.begin += kMostOffsets) {
    const Index count = min(kMostOffsets, rows.end - rows.begin);
    const Range taps{rows.begin / across, (rows.begin + count - 1) / across + 1};
    Index offsets_width = 0;
    for (Index n = 0; n < p.batch; ++n) {
      for (Index y = 0; y < p.y.places; y += most_high) {
        for (Index x = 0; x < p.x.places; x += most_wide) {
          const Index high = min(most_high, p.y.places - y), wide = min(most_wide, p.x.places - x);
          const Index width = seen_by(p.x, wide) * inputs;
          copy_patch(p, p.in + n * sample, y, x, high, wide, taps, patch);
          for (Index r = 0; width != offsets_width && r < count; ++r) {
            const Index down = (rows.begin + r) / across, along = (rows.begin + r) % across;
            offsets[r] = down * p.y.dilation * width + along / p.inputs * p.x.dilation * inputs + along % p.inputs;
          }
          offsets_width = width;
          WindowTile<T> tile{};
          tile.loops[0] = {1, 0, 0};
          tile.loops[1] = {high, p.y.stride * width, dy_row};
          tile.loops[2] = {wide, p.x.stride * inputs, outputs};
          tile.a = patch;
          tile.offsets = offsets;
          tile.ahead = kPatchAhead;
          const T* b = p.dy + (n * p.y.places + y) * dy_row + x * outputs;
          T* to = dw + rows.begin * outputs;
          for (Index group = 0; group < p.s.groups; ++group) {
            for_strips<Operands, Rows::scattered>(p.outputs, [&](const Strip<T>& strip, Index col) {
              tile.b = b + col;
              sum_rows<Rows::scattered>(tile, strip, count, p.from_zero && n == 0 && y == 0 && x == 0, p.outputs, col,
                                        outputs, to);
            });
            tile.a += p.inputs, b += p.outputs, to += p.outputs;
          }
        }
      }
    }
  }
}

/// db = Σ dy over all places, or db += it, in several sums of every so many places, to keep additions in flight.
template <class T>
void sum_places(const T* dy, Index places, Index cols, bool from_zero, T* db) {
  constexpr Index chains = 8, n = kLanes<T>;
  for (Index j = 0; j < cols; j += n) {
    Vector<T> sum[chains]{};
    const auto add_up = [&](auto read) {
      const T* at = dy + j;
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
    store(db + j, from_zero ? sum[0] : load(db + j, left) + sum[0], left);
  }
}

/// Whether each channel sees itself alone.
PDNN_INLINE bool channel_by_channel(const Convolution& s) {
  return s.groups > 1 && s.inputs == s.groups && s.outputs == s.groups;
}
/// Whether rows of several taps share a tile.
template <class T>
PDNN_INLINE bool in_patches(const Convolution& s) {
  const Index seen = seen_by(s.windows.y, 1) * seen_by(s.windows.x, 1) * s.inputs;
  return !channel_by_channel(s) && s.inputs / s.groups < kFewChannels &&
         seen <= kPatchBytes / static_cast<Index>(sizeof(T));
}

/// A worker's rows of dw, and behind them of so many more, db. A row takes as long as there are places whose tap is
/// inside the image, or in patches as long as any other.
template <class T>
PDNN_INLINE Range deal_rows(Part part, const Convolution& s, Index batch, Index more) {
  const Axis &y = s.windows.y, &x = s.windows.x;
  const Index inputs = s.inputs / s.groups, taps = y.kernel * x.kernel;
  if (part.size == 1 || in_patches<T>(s)) return deal(part, taps * inputs + more);
  const auto work = [&](Index tap) {
    const Range ys = places_under(y, tap / x.kernel), xs = places_under(x, tap % x.kernel);
    return batch * (ys.end - ys.begin) * (xs.end - xs.begin) + kEmptyRow;
  };
  const Index whole = batch * y.places * x.places;
  Index all = more * whole;
  for (Index tap = 0; tap < taps; ++tap) all += inputs * work(tap);
  const auto rows_before = [&](Index share) {
    Index left = all / part.size * share + all % part.size * share / part.size;
    for (Index tap = 0; tap < taps; left -= inputs * work(tap++))
      if (left < inputs * work(tap)) return tap * inputs + left / work(tap);
    return taps * inputs + (whole > 0 ? left / whole : more);
  };
  return {rows_before(part.index), part.index + 1 == part.size ? taps * inputs + more : rows_before(part.index + 1)};
}

/// Adds up a worker's rows of dw over some groups of samples.
template <class Operands>
struct WeightSums {
  using T = typename Operands::Value;
  const Convolution& s;
  const T *x, *dy;
  Range mine;
  bool sums_db;  // and db, too

  void operator()(Range batch, bool add, T* dw, T* db) const {
    const Windows& v = s.windows;
    const Index inputs = s.inputs / s.groups, outputs = s.outputs / s.groups;  // of a group
    const Index x_sample = v.y.extent * v.x.extent * s.inputs;
    const Index places = v.y.places * v.x.places, dy_sample = places * s.outputs;
    const Index samples = max(1, kChunkBytes / static_cast<Index>(sizeof(T)) / max(1, x_sample + dy_sample));
    Index first = batch.begin;
    do {
      Chunk<T> chunk{s,
                     v.y,
                     v.x,
                     inputs,
                     outputs,
                     min(samples, batch.end - first),
                     x + first * x_sample,
                     dy + first * dy_sample,
                     first == batch.begin && !add};
      if (batch.begin == batch.end) chunk.in = chunk.dy = dw;  // they may be null, and nothing is read
      if (channel_by_channel(s)) {
        sum_lanes<Operands>(chunk, mine, dw);
      } else if (batch.begin < batch.end && in_patches<T>(s)) {
        sum_patches<Operands>(chunk, mine, dw);
      } else {
        for (Index tap = mine.begin / inputs; tap * inputs < mine.end; ++tap) {
          const Range channels{max(mine.begin - tap * inputs, 0), min(mine.end - tap * inputs, inputs)};
          sum_channels<Operands>(chunk, tap, channels, dw + tap * inputs * s.outputs);
        }
      }
      if (sums_db) sum_places(chunk.dy, chunk.batch * places, s.outputs, chunk.from_zero, db);
      first += samples;
    } while (first < batch.end);
  }
};

template <class Operands, class T = typename Operands::Value>
void convolution_dw(Part part, const Convolution& s, Index batch, const T* x, const T* dy, const T* exact_dy,
                    const LeafSums<T>& leaves, bool add, T* dw, T* db) {
  constexpr Index group = Operands::kGroup;
  constexpr bool exact = !Operands::kCopied;  // db is a sum of what dw is
  const Index rows = s.windows.y.kernel * s.windows.x.kernel * (s.inputs / s.groups), count = rows * s.outputs;
  const Range dealt = deal_rows<T>(part, s, batch, db ? 1 : 0), mine{min(dealt.begin, rows), min(dealt.end, rows)};
  const bool sums_db = dealt.begin <= rows && rows < dealt.end;
  const WeightSums<Operands> sum_groups{s, x, dy, mine, sums_db && exact};
  const Index places = s.windows.y.places * s.windows.x.places;
  const auto sum = [&](Range samples, Range groups, bool more, T* own_dw, T* own_db) {
    sum_groups(groups, more, own_dw, own_db);
    if (sums_db && !exact)
      sum_places(exact_dy + samples.begin * places * s.outputs, (samples.end - samples.begin) * places, s.outputs,
                 !more, own_db);
  };
  if (!leaves.several()) return sum({0, batch}, {0, ceil_div(batch, group)}, add, dw, db);
  // The sum that waits at the bottom is dw itself.
  struct Place {
    T *dw, *db;
  };
  const auto place = [&](int at) {
    T* const room = leaves.room + (at - 1) * (count + (db ? s.outputs : 0));
    return at == 0 ? Place{dw, db} : Place{room, room + count};
  };
  int waits = 0;
  Range groups{0, 0};
  for (Index leaf = 0, begin = 0; leaf < leaves.count; begin = leaves.ends[leaf++]) {
    groups = {groups.end, groups.end + ceil_div(leaves.ends[leaf] - begin, group)};
    sum({begin, leaves.ends[leaf]}, groups, false, place(waits).dw, place(waits).db);
    for (int joins = joins_after(leaf, leaves.count); joins > 0; --joins, --waits) {
      const Place from = place(waits), to = place(waits - 1);
      const Index first = mine.begin * s.outputs;
      join_run((mine.end - mine.begin) * s.outputs, from.dw + first, to.dw + first);
      if (sums_db) join_run(s.outputs, from.db, to.db);
    }
    ++waits;
  }
}

/// The convolutions of such factors.
template <class Operands>
constexpr ConvolutionKernels<typename Operands::Value> convolution_kernels() {
  return {.convolution = convolution<Operands>,
          .convolution_dx = convolution_dx<Operands>,
          .convolution_dw = convolution_dw<Operands>};
}

}  // namespace
}  // namespace pdnn::kernels::impl
