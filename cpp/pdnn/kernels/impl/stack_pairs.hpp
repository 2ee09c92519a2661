#pragma once
/// The layers of a stack whose factors are pairs of bfloat16 numbers. w is put in pairs on its way to the sums of one
/// row, or once for those of several.
#include "pdnn/kernels/impl/stack.hpp"

namespace pdnn::kernels::impl {
namespace {

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
struct StackOfPairs {
  // Arguments as the functions of stack.hpp have them; x and dy are not rounded.

  static constexpr Index kMostPairs = kMostStackWidth / Pairs::kGroup;

  /// y = f(x w + b); b may be null.
  static __attribute__((noinline)) void forward(const StackLayer& layer, Index rows, const float* x, const float* w,
                                                const float* b, float* y) {
    alignas(64) float in[kMostStackRows * kMostPairs], pairs[kMostPairs * kMostStackWidth];
    const Index inputs = layer.inputs, outputs = layer.outputs, places = places_of<Pairs>(inputs);
    Pairs::copy_along(x, inputs, rows, inputs, in, places);
    if (rows > 1) Pairs::copy_rows(w, outputs, inputs, outputs, pairs, outputs);
    for_some_columns<float>(outputs, [&]<int n, bool partial>(const SomeColumns<float, n, partial>& some, Index j) {
      for_some_rows(rows, [&]<int m>(std::integral_constant<int, m>, Index r) {
        Vector<float> sum[m][n];
        PDNN_UNROLL for (int i = 0; i < m; ++i) PDNN_UNROLL for (int v = 0; v < n; ++v) sum[i][v] =
            b ? some.load(b + j, v) : Vector<float>{};
        for (Index k = 0; k < places; ++k) {
          Vector<float> row[n];
          PDNN_UNROLL for (int v = 0; v < n; ++v) row[v] =
              rows > 1 ? some.load(pairs + k * outputs + j, v)
                       : pairs_of(some, w + 2 * k * outputs + j, v, outputs, inputs - 2 * k);
          PDNN_UNROLL for (int i = 0; i < m; ++i) {
            const Vector<float> each = Pairs::spread(in + (r + i) * places + k);
            PDNN_UNROLL for (int v = 0; v < n; ++v) sum[i][v] = Pairs::multiply_add(each, row[v], sum[i][v]);
          }
        }
        PDNN_UNROLL for (int i = 0; i < m; ++i) PDNN_UNROLL for (int v = 0; v < n; ++v)
            some.store(y + (r + i) * outputs + j, v, activation<float>(layer.activation, sum[i][v]));
      });
    });
  }

  /// dw = xᵀ dy, in pairs of rows, and db = Σ dy.
  static __attribute__((noinline)) void gradients(const StackLayer& layer, Index rows, const float* x, const float* dy,
                                                  float* dw) {
    constexpr Index most = kMostStackRows / Pairs::kGroup * kMostStackWidth;
    alignas(64) float in[most], delta[most];
    const Index inputs = layer.inputs, outputs = layer.outputs, places = places_of<Pairs>(rows);
    Pairs::copy_rows(x, inputs, rows, inputs, in, inputs);
    Pairs::copy_rows(dy, outputs, rows, outputs, delta, outputs);
    for_some_columns<float>(outputs, [&]<int n, bool partial>(const SomeColumns<float, n, partial>& some, Index j) {
      for_some_rows(places, [&]<int m>(std::integral_constant<int, m>, Index r) {
        Vector<float> row[m][n];
        PDNN_UNROLL for (int p = 0; p < m; ++p) PDNN_UNROLL for (int v = 0; v < n; ++v) row[p][v] =
            some.load(delta + (r + p) * outputs + j, v);
        float* to = dw + j;
        for (Index i = 0; i < inputs; ++i, to += outputs) {
          Vector<float> sum[n];
          PDNN_UNROLL for (int v = 0; v < n; ++v) sum[v] = r > 0 ? some.load(to, v) : Vector<float>{};
          PDNN_UNROLL for (int p = 0; p < m; ++p) {
            const Vector<float> each = Pairs::spread(in + (r + p) * inputs + i);
            PDNN_UNROLL for (int v = 0; v < n; ++v) sum[v] = Pairs::multiply_add(each, row[p][v], sum[v]);
          }
          PDNN_UNROLL for (int v = 0; v < n; ++v) some.store(to, v, sum[v]);
        }
      });
      for (Index r = 0; layer.bias && r < rows; ++r) {
        float* const to = dw + inputs * outputs + j;
        PDNN_UNROLL for (int v = 0; v < n; ++v)
            some.store(to, v, (r > 0 ? some.load(to, v) : Vector<float>{}) + some.load(dy + r * outputs + j, v));
      }
    });
  }

  /// dx = (dy wᵀ) ∘ f'(x), x being the output of f.
  static __attribute__((noinline)) void dx(const StackLayer& layer, Activation f, Index rows, const float* x,
                                           const float* w, const float* dy, float* dx) {
    constexpr Index n = kLanes<float>;
    alignas(64) float delta[kMostStackRows * kMostPairs], turned[(kMostPairs + n) * n];  // wᵀ of some inputs
    const Index inputs = layer.inputs, outputs = layer.outputs, places = places_of<Pairs>(outputs);
    Pairs::copy_along(dy, outputs, rows, outputs, delta, places);
    for (Index k = 0; k < inputs; k += n) {
      const Index here = min(n, inputs - k);
      Pairs::copy_transposed<n>(w + k * outputs, outputs, outputs, here, turned);
      for_some_rows(rows, [&]<int m>(std::integral_constant<int, m>, Index r) {
        Vector<float> sum[m] = {};
        for (Index j = 0; j < places; ++j) {
          const Vector<float> row = load(turned + j * n);
          PDNN_UNROLL for (int i = 0; i < m; ++i) sum[i] =
              Pairs::multiply_add(Pairs::spread(delta + (r + i) * places + j), row, sum[i]);
        }
        PDNN_UNROLL for (int i = 0; i < m; ++i) {
          const Index at = (r + i) * inputs + k;
          store(dx + at, times_derivative<float>(f, sum[i], load(x + at, here)), here);
        }
      });
    }
  }

 private:
  /// Pairs of the columns of vector v of two rows, of which there may be one only.
  template <int n, bool partial>
  static PDNN_INLINE Vector<float> pairs_of(const SomeColumns<float, n, partial>& some, const float* from, int v,
                                            Index stride, Index rows) {
    const Vector<float> second = rows > 1 ? some.load(from + stride, v) : Vector<float>{};
    return Pairs::by_turns(Pairs::joined(some.load(from, v), second));
  }
};
#endif

}  // namespace
}  // namespace pdnn::kernels::impl
