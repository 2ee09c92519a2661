#pragma once
/// The three matrix products of a layer, cut into tiles.
///
/// c [rows, cols] = start + a [rows, depth] b [depth, cols]. A strip of b, one tile wide, is read for every tile of
/// rows, where it lies or from a compact copy: transposed for dx, padded at the right edge, and for strides that would
/// waste the caches' sets and a page on every row. For few rows of c a copy is not worth it: b is read in place, strip
/// after strip of a piece of the depth, so that its pages stay near. Of a large a, 256 rows at a time are
/// multiplied by all of b. For dw, a is xᵀ, with strides like those read from a copy of a few columns of x. The depth
/// is cut into pieces so that copies fit and a strip stays near; sums go on in c from piece to piece, in ascending
/// order, so neither the cuts nor the number of workers changes a bit. The leaves of a batch are cut into pieces of
/// whole nodes of their tree, if these fit: a tile has the sum of its node in registers in the end, and only sums of
/// pieces wait in memory. Factors that are rounded are rounded in their copies, and both are copied, but for a few
/// rows.
#include "pdnn/kernels/impl/columns.hpp"
#include "pdnn/kernels/impl/fetch.hpp"
#include "pdnn/kernels/impl/few_rows.hpp"
#include "pdnn/kernels/impl/parts.hpp"
#include "pdnn/kernels/impl/pieces.hpp"
#include "pdnn/kernels/impl/rules.hpp"
#include "pdnn/kernels/impl/tile.hpp"
#include "pdnn/kernels/products.hpp"

namespace pdnn::kernels::impl {
namespace {

inline constexpr Index kMostLeafDepth = 256;  // of one piece with leaves, in places: a multiple of any kLanes
inline constexpr Index kMostDepth = kVectorBytes == 64 ? 144 : 256;  // of any other: a strip stays nearest
/// Of one whose rows of b lie as near as in a panel. AVX2's strips of them leave the nearest cache in any case, and
/// sums that wait in memory cost more.
inline constexpr Index kMostDenseDepth = kVectorBytes == 32 ? 1024 : kMostDepth, kDenseBytes = 256;
inline constexpr Index kMostCopiedDepth = 128;  // of a piece that is copied anyway: it stays nearest
inline constexpr Index kNearBytes = 1 << 20;    // a larger a is multiplied by some rows, which stay near, at a time
inline constexpr Index kNearRows = 256;
inline constexpr Index kStripBytes = 2048;    // a row of all copied strips that are held at once
inline constexpr Index kColumnBytes = 192;    // a row of the copied columns of x
inline constexpr Index kMostCopiedRows = 96;  // of a, where it is copied by rows
inline constexpr Index kFarBytes = 4096;      // rows of b, or of x for dw, so far apart are copied
inline constexpr Index kFewRows = 24;         // of c: b's rows, however far apart, are read where they lie
inline constexpr Index kFarOften = 2048;      // rows of x so far apart too, if kOften strips or more read them
inline constexpr Index kOften = 8;
inline constexpr Index kSetBytes = 512;  // rows of x a multiple of it apart too: they share a few sets of caches
inline constexpr Index kAhead = 6;       // rows of b that are fetched before their use, if these are near

template <class T, int vectors>
inline constexpr Index kTileCols = vectors * kLanes<T>;

/// One product; its sums start from 0, from a bias, from c, or from elsewhere. With an update, c is room for sums that
/// go on from piece to piece, and what is in it afterwards is lost.
template <class T>
struct Product {
  Index depth;
  const T* a;
  Index row_step, depth_step;
  PanelMatrix<const T> b;
  bool b_transposed;  // b is [cols, depth]
  const T* bias;
  bool add;
  PanelMatrix<T> c;
  const LeafSums<T>* leaves = nullptr;
  const Update<T>* update = nullptr;
  const T* from = nullptr;  // lies as c does, as does what is added to complete sums
  const T* added = nullptr;
};

/// finish(row, rows, col, cols, sums, stride): called for each piece of c once its sum is complete and still near; null
/// sums have been applied already. It refers to a function object, so that products which end in different ways are
/// compiled once.
template <class T>
class Finish {
 public:
  template <class Function>
  Finish(const Function& function)  // NOLINT(google-explicit-constructor): it stands for one
      : function_(&function),
        call_([](const void* own, Index row, Index rows, Index col, Index cols, T* sums, Index stride) {
          (*static_cast<const Function*>(own))(row, rows, col, cols, sums, stride);
        }) {}
  void operator()(Index row, Index rows, Index col, Index cols, T* sums, Index stride) const {
    call_(function_, row, rows, col, cols, sums, stride);
  }

 private:
  const void* function_;
  void (*call_)(const void*, Index, Index, Index, Index, T*, Index);
};

/// Runs one tile of which only `cols` columns exist, through a whole one beside it.
template <class Operands, int vectors, bool adjacent_rows, bool leaves, class T>
void multiply_edge(const TileOf<T, leaves>& tile, Index rows, Index cols) {
  constexpr Index width = kTileCols<T, vectors>;
  alignas(64) T sums[kMostRows<Operands, vectors> * width];
  TileOf<T, leaves> whole = tile;
  whole.c = sums, whole.c_stride = width;
  if (tile.start) {
    copy_block<width>(tile.start, tile.start_stride, rows, cols, sums);
    whole.start = sums, whole.start_stride = width;
  }
  multiply_rows<Operands, vectors, adjacent_rows>(whole, rows);
  for (Index r = 0; r < rows; ++r)
    for (Index j = 0; j < cols; j += kLanes<T>)
      store(tile.c + r * tile.c_stride + j, load(sums + r * width + j), cols - j);
}

/// All rows of one strip, in tiles of nearly equal height, into tile.c or, `aside`, into a small buffer used again for
/// each tile. after_tile(row, rows, sums, stride) is called after each.
template <class Operands, int vectors, bool adjacent_rows, bool leaves, class T, class AfterTile>
PDNN_INLINE void multiply_strip(TileOf<T, leaves> tile, Index rows, Index cols, bool aside, AfterTile after_tile) {
  constexpr Index width = kTileCols<T, vectors>, unit = Operands::kRows;
  alignas(64) T sums[kMostRows<Operands, vectors> * width];
  if (aside) tile.c = sums, tile.c_stride = width;
  const Index tiles = ceil_div(rows, most_rows<Operands, vectors>(tile)), units = ceil_div(rows, unit);
  for (Index t = 0, row = 0; t < tiles; ++t) {
    const Index height = min((units / tiles + (t < units % tiles ? 1 : 0)) * unit, rows - row);
    if (cols == width || (aside && !tile.start))
      multiply_rows<Operands, vectors, adjacent_rows>(tile, height);
    else
      multiply_edge<Operands, vectors, adjacent_rows, leaves, T>(tile, height, cols);
    after_tile(row, height, tile.c, tile.c_stride);
    tile.far += tile.depth * tile.far_step;
    row += height;
    tile.a += height * tile.row_step;
    if (tile.start) tile.start += height * tile.start_stride;
    if (!aside) tile.c += height * tile.c_stride;
  }
}

/// to[k, j] = b[col + j, depth.begin + k] for j < cols, 0 behind them.
template <class Operands, Index width, class T>
PDNN_INLINE void transpose_strip(const PanelMatrix<const T>& b, Index col, Range depth, Index cols, T* to) {
  for (Index k = depth.begin; k < depth.end;) {
    const Index end = min((k / b.panel + 1) * b.panel, depth.end);
    const Element<const T> from = spot(b, col, k);
    T* const there = to + (k - depth.begin) / Operands::kGroup * width;
    Operands::template copy_transposed<width>(from.data, from.stride, end - k, cols, there);
    k = end;
  }
}

template <class Operands, int vectors, bool adjacent_rows, bool leaves, class T>
void multiply_block(const Product<T>& p, const Block& block, const Finish<T>& finish) {
  constexpr bool both = adjacent_rows || Operands::kCopied;             // are copied
  constexpr bool columns_of_a = adjacent_rows && Operands::kRows == 1;  // one after another in its copy, else its rows
  constexpr Index width = kTileCols<T, vectors>, step = Operands::kGroup * Operands::kStep;
  // With leaves pieces are deeper, and copies narrower: fewer sums wait in memory.
  constexpr Index strip_bytes = leaves ? kStripBytes / 2 : kStripBytes;
  constexpr Index strips = both ? strip_bytes / (width * static_cast<Index>(sizeof(T))) : 1;
  constexpr Index columns = columns_of_a ? kColumnBytes / static_cast<Index>(sizeof(T)) : both ? kMostCopiedRows : 1;
  constexpr Index most_depth = leaves ? kMostLeafDepth : both ? kMostCopiedDepth : kMostDepth;
  constexpr Index dense_depth = leaves || both ? most_depth : kMostDenseDepth;
  alignas(64) T b_copy[(strips * dense_depth + kLanes<T>)*width];  // a transposed strip may end behind its room
  alignas(64) T a_copy[most_depth * columns];

  const Index rows = block.rows.end - block.rows.begin;
  if (rows <= 0) return;
  const Index apart = p.depth_step * static_cast<Index>(sizeof(T));
  const Index too_far = block.cols.end - block.cols.begin >= kOften * width ? kFarOften : kFarBytes;
  const bool copy_a = Operands::kCopied || (adjacent_rows && (apart >= too_far || apart % kSetBytes == 0));
  const Index row_block = copy_a ? columns : rows;
  const Index b_stride = spot(p.b, 0, 0).stride, b_apart = b_stride * static_cast<Index>(sizeof(T));
  const Index most_places = p.b_transposed ? kMostCopiedDepth : b_apart <= kDenseBytes ? dense_depth : most_depth;
  const Index most = most_places * Operands::kGroup;
  const Index most_piece =
      p.depth > 0 && !leaves ? ceil_div(ceil_div(p.depth, ceil_div(p.depth, most)), step) * step : most;
  Index together = 0;
  if constexpr (leaves) together = leaves_together<Operands>(*p.leaves, most_places);
  const bool far_apart = b_apart >= kFarBytes;
  const bool along = far_apart && !both && !p.b_transposed && rows <= kFewRows;  // a piece of all of b's rows, in place
  const bool copy_all = both || p.b_transposed || (far_apart && !along);
  const Index beside = along ? block.cols.end - block.cols.begin : strips * width;  // columns for each piece of depth
  for (Index col = block.cols.begin; col < block.cols.end; col += beside) {
    const Index col_end = min(col + beside, block.cols.end);
    Index waits = 0;  // sums of pieces, in the leaves' room
    Piece piece{0, 0, true, true, false};
    do {
      if constexpr (leaves) {
        piece = next_piece(*p.leaves, together, most_piece, piece);
      } else {
        const Index at = piece.k + piece.depth, rest = min(most_piece, p.depth - at);
        piece = {at, rest, at == 0, false, at + rest == p.depth};
      }
      const Index k = piece.k, depth = piece.depth;
      PlaceEnds places;
      if constexpr (leaves) places = place_ends<Operands>(*p.leaves, piece);
      // c need not hold sums between pieces
      const bool single = depth == p.depth && (!leaves || (piece.last && piece.leaf == 0));
      const bool waiting = leaves && !single;
      for (Index row = 0; row < rows; row += row_block) {
        const Index height = min(row_block, rows - row), first = block.rows.begin + row;
        const T* const a = p.a + first * p.row_step + k * p.depth_step;
        if constexpr (adjacent_rows) {
          if (copy_a)
            copy_depth<Operands, leaves>(a, p.depth_step, depth, p.leaves, piece, a_copy,
                                         columns_of_a ? columns : Operands::kBeside,
                                         [&](const T* from, Index own, T* to) {
                                           if constexpr (columns_of_a)
                                             Operands::template copy<columns>(from, p.depth_step, own, height, to);
                                           else
                                             Operands::copy_across(from, p.depth_step, own, height, to, most_depth);
                                         });
        } else if constexpr (both) {
          Operands::copy_along(a, p.row_step, height, depth, a_copy, most_depth);
        }
        for (Index j = col; j < col_end; j += width) {
          const Index cols = min(width, col_end - j);
          const Element<T> c = spot(p.c, first, j);
          const Element<const T> b = p.b_transposed ? Element<const T>{} : spot(p.b, k, j);
          TileOf<T, leaves> tile{Tile<T>{places_of<Operands>(depth), a, p.row_step, p.depth_step, b.data, b.stride,
                                         along ? width : kAhead * b.stride, c.data, c.stride, c.data, c.stride}};
          if (copy_a) tile.a = a_copy, tile.row_step = most_depth, tile.depth_step = 1;
          if (copy_a && columns_of_a) tile.row_step = 1, tile.depth_step = columns;
          tile.half = Operands::kHalves && width - cols >= kLanes<T> / 2;
          if (copy_all || cols < width) {
            T* const strip = b_copy + (along ? 0 : j - col) * most_depth;
            if (row == 0 && p.b_transposed) transpose_strip<Operands, width>(p.b, j, {k, k + depth}, cols, strip);
            if (row == 0 && !p.b_transposed)
              copy_depth<Operands, leaves>(b.data, b.stride, depth, p.leaves, piece, strip, width,
                                           [&](const T* from, Index own, T* to) {
                                             Operands::template copy<width>(from, b.stride, own, cols, to);
                                           });
            tile.b = strip, tile.b_stride = width, tile.ahead = 0;
          }
          const T* next = tile.b;
          if (!adjacent_rows && b.stride == width) {  // the piece of a panel that is read next
            if (!both)
              next = b.data + depth * width;
            else if (j + width < col_end)
              next = spot(p.b, k, j + width).data;
            else if (!piece.last)
              next = spot(p.b, k + depth, col).data;
            constexpr Index bytes = Operands::kGroup * width * static_cast<Index>(sizeof(T));
            tile.far_step = ceil_div(bytes, ceil_div(height, kMostRows<Operands, vectors>));
          }
          tile.far = reinterpret_cast<const char*>(next);
          if constexpr (leaves) tile.ends = places.ends, tile.leaves = piece.leaves;
          if (k == 0 && p.from) {
            tile.start = p.from + (c.data - p.c.data);
          } else if (piece.begins && !p.add) {
            tile.start = p.bias ? p.bias + j : nullptr;
            tile.start_stride = 0;
          }
          const bool descend = p.update && !p.added && single && cols == width && plain_descent(*p.update);
          if (descend) {
            tile.c = p.update->w + (c.data - p.c.data);
            tile.descend = true;
            tile.lr = static_cast<T>(p.update->step.sgd.lr), tile.l2 = static_cast<T>(p.update->step.sgd.l2);
          }
          const bool aside = waiting || (p.update && single && !descend);
          multiply_strip<typename Operands::InTile, vectors, adjacent_rows, leaves, T>(
              tile, height, cols, aside, [&](Index r, Index n, T* sums, Index stride) {
                if (waiting) {
                  const Index size = p.c.rows * (p.c.panel < p.c.cols ? p.c.cols : p.c.stride);
                  const Index at = c.data - p.c.data + r * c.stride;
                  T *const room = p.leaves->room + at, *to = p.c.data + at;
                  const bool stay = piece.last && p.update;
                  if (stay) to = sums;
                  if (piece.ends && !piece.last) to = room + (waits - piece.joins) * size;
                  const Index to_stride = stay ? stride : c.stride;
                  join_waiting(sums, stride, n, cols, room + (waits - 1) * size, size, piece.joins, c.stride, to,
                               to_stride);
                  sums = to, stride = to_stride;
                }
                if (piece.last) finish(first + r, n, j, cols, descend ? nullptr : sums, stride);
              });
        }
      }
      if (piece.ends) waits += 1 - piece.joins;
    } while (!piece.last);
  }
}

template <class Operands, bool adjacent_rows, bool leaves, class T>
void multiply(Part part, Index rows, Index cols, Product<T> p, const Finish<std::type_identity_t<T>>& finish) {
  if (p.depth == 0) p.a = p.b.data = p.c.data;  // they may be null, where arithmetic is undefined; nothing is read
  [[maybe_unused]] const typename Operands::InUse in_use;
  const bool large = !adjacent_rows && !Operands::kCopied && rows * p.depth * Index{sizeof(T)} > kNearBytes;
  const Index together = large ? kNearRows : rows;
  auto run = [&]<int vectors>(std::integral_constant<int, vectors>) {
    Index unit = kTileCols<T, vectors>;
    if (p.c.panel < cols) unit = p.c.panel;
    if (!p.b_transposed && p.b.panel < cols) unit = p.b.panel;
    const auto [own, all] = own_block(part, rows, cols, unit, kLanes<T>);
    // Columns that are left may go into a narrower tile.
    const Index left = all.size() % kTileCols<T, vectors>, needs = ceil_div(left, kLanes<T>);
    const Range rest{all.end - (needs < vectors ? left : 0), all.end};
    for (Range some = own; some.begin < own.end; some.begin = some.end) {
      some.end = min(some.begin + together, own.end);
      [&]<int... fewer>(std::integer_sequence<int, fewer...>) {
        ((needs == fewer + 1 ? multiply_block<Operands, fewer + 1, adjacent_rows, leaves>(p, {some, rest}, finish)
                             : void()),
         ...);
      }(std::make_integer_sequence<int, vectors - 1>{});
      multiply_block<Operands, vectors, adjacent_rows, leaves>(p, {some, {all.begin, rest.begin}}, finish);
    }
  };
  // Half a tile, of two leaves, has all its rows: the strip of b beside them is half as wide, and stays nearest.
  constexpr int widest = leaves && kLeafPairs && !kNeon ? 2 : Operands::kWidest;
  // Two rows leave registers for a wider tile: more sums that do not wait for each other.
  constexpr int of_few = adjacent_rows || Operands::kCopied ? widest : 4;
  const bool few = rows <= 2 && !p.b_transposed;
  if (cols <= kLanes<T>)
    run(std::integral_constant<int, 1>{});
  else if (cols <= 2 * kLanes<T> || (few ? of_few : widest) == 2)
    run(std::integral_constant<int, 2>{});
  else if constexpr (of_few > 2)
    run(std::integral_constant<int, of_few>{});
}

template <class Operands, class T = typename Operands::Value>
void product_nn(Part part, Matrix<const T> x, PanelMatrix<const T> w, const T* b, Activation f, Matrix<T> y) {
  if constexpr (Operands::kGroup == 1) {
    const bool far = spot(w, 0, 0).stride * static_cast<Index>(sizeof(T)) >= kFarBytes;
    const bool pays = Operands::kCopied || x.rows == 1 || far;
    if (pays && are_few_rows<T>(x.rows, y.cols, x.cols)) return product_of_few_rows<Operands>(part, x, w, b, f, y);
  }
  const Product<T> p{x.cols, x.data, x.stride, 1, w, false, b, false, y};
  multiply<Operands, false, false>(part, y.rows, y.cols, p,
                                   [&](Index, Index rows, Index, Index cols, T* sums, Index stride) {
                                     if (f == Activation::identity) return;
                                     activate_rows<T>(f, rows, cols, {sums, stride}, {sums, stride});
                                   });
}

template <class Operands, class T = typename Operands::Value>
void product_nt(Part part, Matrix<const T> dy, PanelMatrix<const T> w, Activation f, Matrix<const T> x, Matrix<T> dx) {
  const Product<T> p{dy.cols, dy.data, dy.stride, 1, w, true, nullptr, false, dx};
  multiply<Operands, false, false>(
      part, dx.rows, dx.cols, p, [&](Index row, Index rows, Index col, Index cols, T* sums, Index stride) {
        if (f == Activation::identity) return;
        const T* const y = x.data + row * x.stride + col;
        times_derivative_rows<T>(f, rows, cols, {y, x.stride}, {sums, stride}, {sums, stride});
      });
}

/// How many tiles of dw a worker makes, about.
template <class Operands, class T>
PDNN_INLINE Index tiles_of(Part part, const PanelMatrix<T>& dw) {
  constexpr Index rows = kMostRows<Operands, Operands::kWidest>, cols = kTileCols<T, Operands::kWidest>;
  return ceil_div(dw.rows, rows) * ceil_div(dw.cols, cols) / part.size;
}

template <class Operands, class T = typename Operands::Value>
void product_tn(Part part, Matrix<const T> x, Matrix<const T> dy, const LeafSums<T>& leaves, bool add,
                PanelMatrix<T> dw, const Upcoming* upcoming) {
  const Product<T> p{x.rows, x.data, 1, x.stride, dy, false, nullptr, add, dw, &leaves};
  Fetcher fetcher(upcoming, tiles_of<Operands>(part, dw));
  const auto finish = [&](Index, Index, Index, Index, T*, Index) { fetcher.after_tile(); };
  if (leaves.several()) return multiply<Operands, true, true>(part, dw.rows, dw.cols, p, finish);
  multiply<Operands, true, false>(part, dw.rows, dw.cols, p, finish);
}

template <class Operands, class T = typename Operands::Value>
void product_tn_update(Part part, Matrix<const T> x, Matrix<const T> dy, const LeafSums<T>& leaves,
                       const Update<T>& update, const T* from, PanelMatrix<T> dw, const Upcoming* upcoming) {
  constexpr Index bytes = sizeof(T), next = kColumnBytes / bytes;  // rows that come after those of a block
  const T *const start = leaves.count > 0 ? nullptr : from, *const added = leaves.count > 0 ? from : nullptr;
  const Product<T> p{x.rows, x.data, 1, x.stride, dy, false, nullptr, false, dw, &leaves, &update, start, added};
  Fetcher fetcher(upcoming, tiles_of<Operands>(part, dw));
  const auto finish = [&](Index row, Index rows, Index col, Index cols, T* sums, Index stride) {
    fetcher.after_tile();
    if (!sums && !from) return;
    const Element<T> first = spot(dw, row, col);
    Index at = first.data - dw.data;
    if (from)
      fetch_rows(reinterpret_cast<const char*>(from + at + next * first.stride), first.stride * bytes, rows,
                 cols * bytes);
    if (!sums) return;
    if (added) join_waiting(sums, stride, rows, cols, added + at, 0, 1, first.stride, sums, stride);
    if (cols == first.stride && cols < stride) {  // rows of w touch each other: one run
      for (Index r = 1; r < rows; ++r)
        for (Index j = 0; j < stride; j += kLanes<T>) store(sums + r * cols + j, load(sums + r * stride + j));
      return update_run<T>(update, at, rows * cols, sums);
    }
    for (; rows > 0; --rows, at += first.stride, sums += stride) update_run<T>(update, at, cols, sums);
  };
  if (leaves.several()) return multiply<Operands, true, true>(part, dw.rows, dw.cols, p, finish);
  multiply<Operands, true, false>(part, dw.rows, dw.cols, p, finish);
}

/// The products of such factors.
template <class Operands, class T = typename Operands::Value>
constexpr ProductKernels<T> product_kernels() {
  return {.product_nn = product_nn<Operands>,
          .product_nt = product_nt<Operands>,
          .product_tn = product_tn<Operands>,
          .product_tn_update = product_tn_update<Operands>,
          .column_sums = column_sums<T>};
}

}  // namespace
}  // namespace pdnn::kernels::impl
