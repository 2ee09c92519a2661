#pragma once
/// Stacks of narrow linear layers. The sums are those of the products, element by element: in ascending order, from the
/// bias or from 0 on.
#include "pdnn/kernels/impl/operands.hpp"
#include "pdnn/kernels/impl/some_columns.hpp"
#include "pdnn/kernels/stack.hpp"

namespace pdnn::kernels::impl {
namespace {

/// Calls run(how_many, first) for a few rows at a time: their sums are independent, and share what is loaded.
template <class Run>
PDNN_INLINE void for_some_rows(Index rows, Run run) {
  constexpr int together = kManyRegisters ? 4 : 2;
  Index r = 0;
  for (; r + together <= rows; r += together) run(std::integral_constant<int, together>{}, r);
  for (; r < rows; ++r) run(std::integral_constant<int, 1>{}, r);
}

/// Elements from one layer's outputs to the next one's.
template <class T>
PDNN_INLINE Index apart(const StackLayer& layer, Index rows) {
  constexpr Index line = 64 / static_cast<Index>(sizeof(T));
  return (rows * layer.outputs + line - 1) & -line;
}
PDNN_INLINE Index count_of(const StackLayer& layer) { return (layer.inputs + (layer.bias ? 1 : 0)) * layer.outputs; }

/// Calls run(columns) if there is one row, whose outputs are those of a vector or two: the smallest steps, where all
/// that is decided takes longer than the arithmetic. Whether it has.
template <class T, class Run>
PDNN_INLINE bool for_one_row(const StackLayer& layer, Index rows, Run run) {
  constexpr Index n = kLanes<T>;
  if (rows != 1 || layer.outputs > 2 * n) return false;
  if (layer.outputs == n)
    run(SomeColumns<T, 1, false>{});
  else if (layer.outputs < n)
    run(SomeColumns<T, 1, true>{layer.outputs});
  else if (layer.outputs == 2 * n)
    run(SomeColumns<T, 2, false>{});
  else
    run(SomeColumns<T, 2, true>{layer.outputs - n});
  return true;
}

/// Room for the factors of a layer's products.
template <class T>
struct StackFactors {
  alignas(64) T x[kMostStackRows * kMostStackWidth], dy[kMostStackRows * kMostStackWidth];
  alignas(64) T w[kMostStackWidth * kMostStackWidth];
};

template <class T>
__attribute__((noinline)) const T* rounded_factor(const T* values, Index count, T* room) {
  if constexpr (std::is_same_v<T, float>) {
    Index i = 0;
    for (; i + kLanes<T> <= count; i += kLanes<T>) store(room + i, round_to_bfloat16(load(values + i)));
    if (i < count) store_few(room + i, round_to_bfloat16(load_few(values + i, count - i)), count - i);
  }
  return room;
}
/// A factor as the layer's products read it: in `room` if they round it.
template <class T>
PDNN_INLINE const T* factor(const StackLayer& layer, const T* values, Index count, T* room) {
  if constexpr (std::is_same_v<T, float>) {
    if (layer.factors != Factors::rounded) return values;
    if (count != kLanes<T>) return rounded_factor(values, count, room);
    store(room, round_to_bfloat16(load(values)));
    return room;
  }
  return values;
}
/// Calls run(std::true_type()) if the layer's products round their factors, else run(std::false_type()).
template <class T, class Run>
PDNN_INLINE void by_rounding(const StackLayer& layer, Run run) {
  if constexpr (std::is_same_v<T, float>) {
    if (layer.factors == Factors::rounded) return run(std::true_type());
  }
  run(std::false_type());
}
/// Calls run.operator()<OfPairs>() if the layer's factors are pairs. Whether it has.
template <class OfPairs, class Run>
PDNN_INLINE bool for_pairs(const StackLayer& layer, Run run) {
  if constexpr (!std::is_void_v<OfPairs>) {
    if (layer.factors != Factors::pairs) return false;
    run.template operator()<OfPairs>();
    return true;
  }
  return false;
}
template <class T, bool rounded>
PDNN_INLINE Vector<T> factor(std::bool_constant<rounded>, Vector<T> values) {
  if constexpr (rounded && std::is_same_v<T, float>) return round_to_bfloat16(values);
  return values;
}

/// y = f(x w + b); b may be null.
template <class T>
__attribute__((noinline)) void stack_layer(const StackLayer& layer, Index rows, const T* x, const T* w, const T* b,
                                           T* y) {
  for_some_columns<T>(layer.outputs, [&]<int n, bool partial>(const SomeColumns<T, n, partial>& some, Index j) {
    for_some_rows(rows, [&]<int m>(std::integral_constant<int, m>, Index r) {
      Vector<T> sum[m][n];
      PDNN_UNROLL for (int i = 0; i < m; ++i) PDNN_UNROLL for (int v = 0; v < n; ++v) sum[i][v] =
          b ? some.load(b + j, v) : Vector<T>{};
      const T *in = x + r * layer.inputs, *const end = in + layer.inputs, *from = w + j;
      for (; in < end; ++in, from += layer.outputs) {
        Vector<T> row[n];
        PDNN_UNROLL for (int v = 0; v < n; ++v) row[v] = some.load(from, v);
        PDNN_UNROLL for (int i = 0; i < m; ++i) {
          const Vector<T> each = broadcast(in[i * layer.inputs]);
          PDNN_UNROLL for (int v = 0; v < n; ++v) sum[i][v] = fma<T>(each, row[v], sum[i][v]);
        }
      }
      T* const out = y + r * layer.outputs + j;
      PDNN_UNROLL for (int i = 0; i < m; ++i) PDNN_UNROLL for (int v = 0; v < n; ++v)
          some.store(out + i * layer.outputs, v, activation<T>(layer.activation, sum[i][v]));
    });
  });
}

/// The same of one row, all its outputs at once; rounds w on its way.
template <class T, int n, bool partial, class Rounded>
PDNN_INLINE void stack_row(const SomeColumns<T, n, partial>& all, Rounded rounded, const StackLayer& layer, const T* x,
                           const T* w, const T* b, T* y) {
  const Index outputs = layer.outputs;
  Vector<T> sum[n];
  PDNN_UNROLL for (int v = 0; v < n; ++v) sum[v] = b ? all.load(b, v) : Vector<T>{};
  _Pragma("GCC unroll 4") for (Index i = layer.inputs; i > 0; --i, ++x, w += outputs) {
    const Vector<T> each = broadcast(*x);
    PDNN_UNROLL for (int v = 0; v < n; ++v) sum[v] = fma<T>(each, factor<T>(rounded, all.load(w, v)), sum[v]);
  }
  PDNN_UNROLL for (int v = 0; v < n; ++v) all.store(y, v, activation<T>(layer.activation, sum[v]));
}

/// The same of one row of any width, whose layer rounds the factors.
__attribute__((noinline)) void stack_rounded_row(const StackLayer& layer, const float* x, const float* w,
                                                 const float* b, float* y) {
  for_some_columns<float>(layer.outputs, [&](const auto& some, Index j) {
    stack_row<float>(some, std::true_type(), layer, x, w + j, b ? b + j : nullptr, y + j);
  });
}

/// `OfPairs` has the functions of layers whose factors are pairs; void: there are none.
template <class T, class OfPairs = void>
void stack_forward(const StackLayer* layers, Index count, Index rows, const T* x, const T* params, T* between, T* y) {
  StackFactors<T> room;
  for (const StackLayer *layer = layers, *const end = layers + count; layer < end; ++layer) {
    const Index weights = layer->inputs * layer->outputs;
    const T* const in = factor(*layer, x, rows * layer->inputs, room.x);
    const T* const b = layer->bias ? params + weights : nullptr;
    T* const out = layer + 1 < end ? between : y;
    bool made = for_pairs<OfPairs>(*layer, [&]<class Own>() { Own::forward(*layer, rows, x, params, b, out); }) ||
                for_one_row<T>(*layer, rows, [&](const auto& all) {
                  by_rounding<T>(*layer, [&](auto rounded) { stack_row<T>(all, rounded, *layer, in, params, b, out); });
                });
    if constexpr (std::is_same_v<T, float>) {
      if (!made && rows == 1 && layer->factors == Factors::rounded) {
        stack_rounded_row(*layer, in, params, b, out);
        made = true;
      }
    }
    if (!made) stack_layer<T>(*layer, rows, in, factor(*layer, params, weights, room.w), b, out);
    x = out;
    between += apart<T>(*layer, rows);
    params += count_of(*layer);
  }
}

/// dw = xᵀ dy and db = Σ exact_dy, a few rows at a time: the sums go on from those of the rows before.
template <class T>
__attribute__((noinline)) void stack_gradients(const StackLayer& layer, Index rows, const T* x, const T* dy,
                                               const T* exact_dy, T* dw) {
  for_some_columns<T>(layer.outputs, [&]<int n, bool partial>(const SomeColumns<T, n, partial>& some, Index j) {
    for_some_rows(rows, [&]<int m>(std::integral_constant<int, m>, Index r) {
      Vector<T> delta[m][n];
      PDNN_UNROLL for (int i = 0; i < m; ++i) PDNN_UNROLL for (int v = 0; v < n; ++v) delta[i][v] =
          some.load(dy + (r + i) * layer.outputs + j, v);
      T* to = dw + j;
      const T* in = x + r * layer.inputs;
      for (const T* const end = in + layer.inputs; in < end; ++in, to += layer.outputs) {
        Vector<T> sum[n];
        PDNN_UNROLL for (int v = 0; v < n; ++v) sum[v] = r > 0 ? some.load(to, v) : Vector<T>{};
        PDNN_UNROLL for (int i = 0; i < m; ++i) {
          const Vector<T> each = broadcast(in[i * layer.inputs]);
          PDNN_UNROLL for (int v = 0; v < n; ++v) sum[v] = fma<T>(each, delta[i][v], sum[v]);
        }
        PDNN_UNROLL for (int v = 0; v < n; ++v) some.store(to, v, sum[v]);
      }
      if (!layer.bias) return;
      if (layer.factors == Factors::rounded)
        PDNN_UNROLL for (int i = 0; i < m; ++i) PDNN_UNROLL for (int v = 0; v < n; ++v) delta[i][v] =
            some.load(exact_dy + (r + i) * layer.outputs + j, v);
      PDNN_UNROLL for (int v = 0; v < n; ++v) {
        Vector<T> sum = r > 0 ? some.load(to, v) : Vector<T>{};
        PDNN_UNROLL for (int i = 0; i < m; ++i) sum += delta[i][v];
        some.store(to, v, sum);
      }
    });
  });
}

/// The same of one row, all its outputs at once.
template <class T, int n, bool partial>
PDNN_INLINE void stack_row_gradients(const SomeColumns<T, n, partial>& all, const StackLayer& layer, const T* x,
                                     const T* dy, const T* exact_dy, T* dw) {
  const Index outputs = layer.outputs;
  Vector<T> delta[n];
  PDNN_UNROLL for (int v = 0; v < n; ++v) delta[v] = all.load(dy, v);
  _Pragma("GCC unroll 4") for (Index i = layer.inputs; i > 0; --i, ++x, dw += outputs) {
    const Vector<T> each = broadcast(*x);
    PDNN_UNROLL for (int v = 0; v < n; ++v) all.store(dw, v, fma<T>(each, delta[v], Vector<T>{}));
  }
  if (!layer.bias) return;
  PDNN_UNROLL for (int v = 0; v < n; ++v) all.store(dw, v, Vector<T>{} + all.load(exact_dy, v));
}

/// Rows of a square of w, columns j … of inputs k …, as columns; 0 where there are none.
template <class T>
PDNN_INLINE void turned_square(const StackLayer& layer, const T* w, Index k, Index j, Vector<T> (&square)[kLanes<T>]) {
  constexpr Index n = kLanes<T>;
  const Index outputs = layer.outputs, here = layer.inputs - k;
  const T* const from = w + k * outputs + j;
  if (here >= n && j + n <= outputs) {
    PDNN_UNROLL for (Index i = 0; i < n; ++i) square[i] = load(from + i * outputs);
  } else {
    PDNN_UNROLL for (Index i = 0; i < n; ++i) square[i] =
        i < here ? load(from + i * outputs, outputs - j) : Vector<T>{};
  }
  transpose<T>(square);
}

/// dx = (dy wᵀ) ∘ f'(x), x being the output of f; rounds w on its way.
template <class T, class Rounded>
__attribute__((noinline)) void stack_dx(Rounded rounded, const StackLayer& layer, Activation f, Index rows, const T* x,
                                        const T* w, const T* dy, T* dx) {
  constexpr Index n = kLanes<T>;
  alignas(64) T turned[kMostStackWidth * n];  // wᵀ of some inputs
  for (Index k = 0; k < layer.inputs; k += n) {
    const Index here = min(n, layer.inputs - k);
    for (Index j = 0; j < layer.outputs; j += n) {
      Vector<T> square[n];
      turned_square<T>(layer, w, k, j, square);
      PDNN_UNROLL for (Index i = 0; i < n; ++i) store(turned + (j + i) * n, factor<T>(rounded, square[i]));
    }
    for_some_rows(rows, [&]<int m>(std::integral_constant<int, m>, Index r) {
      Vector<T> sum[m] = {};
      for (Index j = 0; j < layer.outputs; ++j) {
        const Vector<T> row = load(turned + j * n);
        PDNN_UNROLL for (int i = 0; i < m; ++i) sum[i] = fma<T>(dy[(r + i) * layer.outputs + j], row, sum[i]);
      }
      PDNN_UNROLL for (int i = 0; i < m; ++i) {
        const Index at = (r + i) * layer.inputs + k;
        store(dx + at, times_derivative<T>(f, sum[i], load(x + at, here)), here);
      }
    });
  }
}

/// The same of one row, all its outputs at once; rounds w on its way.
template <class T, int n, bool partial, class Rounded>
PDNN_INLINE void stack_row_dx(const SomeColumns<T, n, partial>&, Rounded rounded, const StackLayer& layer, Activation f,
                              const T* x, const T* w, const T* dy, T* dx) {
  constexpr Index lanes = kLanes<T>;
  const Index inputs = layer.inputs, outputs = layer.outputs;
  for (Index k = 0; k < inputs; k += lanes) {
    Vector<T> square[lanes], sum{};
    PDNN_UNROLL for (Index j = 0; j < n * lanes; j += lanes) {
      turned_square<T>(layer, w, k, j, square);
      PDNN_UNROLL for (Index i = 0; i < lanes; ++i) {
        if (!partial || j + i < outputs) sum = fma<T>(dy[j + i], factor<T>(rounded, square[i]), sum);
      }
    }
    store(dx + k, times_derivative<T>(f, sum, load(x + k, inputs - k)), inputs - k);
  }
}

template <class T, class OfPairs = void>
void stack_backward(const StackLayer* layers, Index count, Index rows, const T* x, const T* params, const T* between,
                    const T* y, const T* dy, T* grads) {
  alignas(64) T deltas[2][kMostStackRows * kMostStackWidth];
  StackFactors<T> room;
  const StackLayer *layer = layers, *const last = layers + count - 1;
  for (; layer < last; ++layer) {
    params += count_of(*layer);
    grads += count_of(*layer);
    between += apart<T>(*layer, rows);
  }
  if (last->activation != Activation::identity) {
    times_derivative_rows<T>(last->activation, 1, rows * last->outputs, {y, 0}, {dy, 0}, {deltas[1], 0});
    dy = deltas[1];
  }
  for (T* dx = deltas[0];; dx = dx == deltas[0] ? deltas[1] : deltas[0]) {
    if (layer > layers) between -= apart<T>(layer[-1], rows);
    const T* const exact = layer > layers ? between : x;
    const T* const in = factor(*layer, exact, rows * layer->inputs, room.x);
    const T* const delta = factor(*layer, dy, rows * layer->outputs, room.dy);
    const bool pairs = for_pairs<OfPairs>(*layer, [&]<class Own>() { Own::gradients(*layer, rows, in, delta, grads); });
    if (!pairs && !for_one_row<T>(*layer, rows,
                                  [&](const auto& all) { stack_row_gradients<T>(all, *layer, in, delta, dy, grads); }))
      stack_gradients<T>(*layer, rows, in, delta, dy, grads);
    if (layer == layers) return;
    const Activation f = layer[-1].activation;
    if (!for_pairs<OfPairs>(*layer, [&]<class Own>() { Own::dx(*layer, f, rows, exact, params, delta, dx); }))
      by_rounding<T>(*layer, [&](auto rounded) {
        if (!for_one_row<T>(*layer, rows, [&](const auto& all) {
              stack_row_dx<T>(all, rounded, *layer, f, exact, params, delta, dx);
            }))
          stack_dx<T>(rounded, *layer, f, rows, exact, params, delta, dx);
      });
    dy = dx;
    --layer;
    params -= count_of(*layer);
    grads -= count_of(*layer);
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
