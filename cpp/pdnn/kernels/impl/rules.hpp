#pragma once
/// The optimizers' rules: each on one vector of parameters, which every kernel that has a gradient in hand may call,
/// and as a kernel over whole arrays.
#include "pdnn/kernels/impl/elementwise.hpp"
#include "pdnn/kernels/update.hpp"

namespace pdnn::kernels::impl {
namespace {

/// The state of a vector of parameters.
template <class T>
using State = Vector<T>[kMostStates];

// A rule on vectors has its step's numbers in T, and operator()(w, g, state) gives the new w and changes the state.

template <class T>
struct SgdRule {
  T lr, momentum, l2;
  bool nesterov;

  PDNN_INLINE explicit SgdRule(const Sgd::Step& step)
      : lr(static_cast<T>(step.lr)),
        momentum(static_cast<T>(step.momentum)),
        l2(static_cast<T>(step.l2)),
        nesterov(step.nesterov) {}
  PDNN_INLINE Vector<T> operator()(Vector<T> w, Vector<T> g, State<T>& state) const {
    Vector<T>& v = state[0];
    const Vector<T> d = fma<T>(l2, w, g);
    v = fma<T>(momentum, v, d);
    return fnma<T>(lr, nesterov ? fma<T>(momentum, v, d) : v, w);
  }
};

template <class T>
struct AdamRule {
  T rate, root, beta1, beta2, eps, l2, shrink;
  T gain1, gain2;  // 1 − beta1 and 1 − beta2, from numbers more exact than T

  PDNN_INLINE explicit AdamRule(const Adam::Step& step)
      : rate(static_cast<T>(step.rate)),
        root(static_cast<T>(step.root)),
        beta1(static_cast<T>(step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        eps(static_cast<T>(step.eps)),
        l2(static_cast<T>(step.l2)),
        shrink(static_cast<T>(step.shrink)),
        gain1(static_cast<T>(1 - step.beta1)),
        gain2(static_cast<T>(1 - step.beta2)) {}
  PDNN_INLINE Vector<T> operator()(Vector<T> w, Vector<T> g, State<T>& state) const {
    Vector<T>&m = state[0], &v = state[1];
    const Vector<T> d = fma<T>(l2, w, g);
    m = fma<T>(gain1, d - m, m);
    v = fma<T>(beta2, v, gain2 * (d * d));
    return fms<T>(shrink, w, rate * m / (sqrt<T>(v) / root + eps));
  }
};

template <class T>
struct RmsPropRule {
  T lr, alpha, eps, momentum, l2;
  T gain;  // 1 − alpha
  bool centered;

  PDNN_INLINE explicit RmsPropRule(const RmsProp::Step& step)
      : lr(static_cast<T>(step.lr)),
        alpha(static_cast<T>(step.alpha)),
        eps(static_cast<T>(step.eps)),
        momentum(static_cast<T>(step.momentum)),
        l2(static_cast<T>(step.l2)),
        gain(static_cast<T>(1 - step.alpha)),
        centered(step.centered) {}
  PDNN_INLINE Vector<T> operator()(Vector<T> w, Vector<T> g, State<T>& state) const {
    Vector<T>&v = state[0], &b = state[1], &m = state[2];
    const Vector<T> d = fma<T>(l2, w, g);
    v = fma<T>(alpha, v, gain * (d * d));
    Vector<T> u = v;
    if (centered) {
      m = fma<T>(gain, d - m, m);
      const Vector<T> variance = fnma<T>(m, m, v);  // below 0 by rounding only
      u = variance < T(0) ? Vector<T>{} : variance;
    }
    b = fma<T>(momentum, b, d / (sqrt<T>(u) + eps));
    return fnma<T>(lr, b, w);
  }
};

template <class T>
struct LionRule {
  T lr, beta1, beta2, shrink;
  T gain1, gain2;  // 1 − beta1 and 1 − beta2

  PDNN_INLINE explicit LionRule(const Lion::Step& step)
      : lr(static_cast<T>(step.lr)),
        beta1(static_cast<T>(step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        shrink(static_cast<T>(step.shrink)),
        gain1(static_cast<T>(1 - step.beta1)),
        gain2(static_cast<T>(1 - step.beta2)) {}
  PDNN_INLINE Vector<T> operator()(Vector<T> w, Vector<T> g, State<T>& state) const {
    Vector<T>& m = state[0];
    const Vector<T> c = fma<T>(beta1, m, gain1 * g);
    const Vector<T> sign = c > T(0) ? broadcast(T(1)) : c < T(0) ? broadcast(T(-1)) : c;  // NaN stays NaN
    m = fma<T>(beta2, m, gain2 * g);
    return fms<T>(shrink, w, lr * sign);
  }
};

/// A rule applied to parameters [at, at + n) of an update by their gradients g.
template <class T, class R>
PDNN_INLINE void rule_run(const R& rule, const Update<T>& update, Index at, Index n, const T* g) {
  T* const w = update.w + at;
  T* state[kMostStates];
  PDNN_UNROLL for (int k = 0; k < kMostStates; ++k) state[k] = update.state[k] ? update.state[k] + at : nullptr;
  for (Index i = 0; i < n; i += kLanes<T>) {
    const Index left = n - i;
    State<T> held;
    PDNN_UNROLL for (int k = 0; k < kMostStates; ++k) held[k] = state[k] ? load(state[k] + i, left) : Vector<T>{};
    store(w + i, rule(load(w + i, left), load(g + i, left), held), left);
    PDNN_UNROLL for (int k = 0; k < kMostStates; ++k) if (state[k]) store(state[k] + i, held[k], left);
  }
}

/// w −= lr (g + l2 w), and no state.
template <class T>
PDNN_INLINE bool plain_descent(const Update<T>& update) {
  return update.step.kind == RuleStep::Kind::sgd && !update.state[0];
}
template <class T>
PDNN_INLINE void descend_run(const Sgd::Step& step, Index n, const T* g, T* w) {
  const T lr = static_cast<T>(step.lr), l2 = static_cast<T>(step.l2);
  const auto descend = [&](Vector<T> old, Vector<T> gradient) { return fnma<T>(lr, fma<T>(l2, old, gradient), old); };
  Index i = 0;
  _Pragma("GCC unroll 4") for (; i + kLanes<T> <= n; i += kLanes<T>) store(w + i, descend(load(w + i), load(g + i)));
  if (i < n) store(w + i, descend(load(w + i, n - i), load(g + i, n - i)), n - i);
}

/// The same of the update's own rule.
template <class T>
PDNN_INLINE void update_run(const Update<T>& update, Index at, Index n, const T* g) {
  if (plain_descent(update)) return descend_run<T>(update.step.sgd, n, g, update.w + at);
  switch (update.step.kind) {
    case RuleStep::Kind::sgd:
      return rule_run<T>(SgdRule<T>(update.step.sgd), update, at, n, g);
    case RuleStep::Kind::adam:
      return rule_run<T>(AdamRule<T>(update.step.adam), update, at, n, g);
    case RuleStep::Kind::rmsprop:
      return rule_run<T>(RmsPropRule<T>(update.step.rmsprop), update, at, n, g);
    case RuleStep::Kind::lion:
      return rule_run<T>(LionRule<T>(update.step.lion), update, at, n, g);
  }
}

template <class T>
void update(Part part, const Update<T>& update, Index n, const T* g) {
  const Range mine = deal_elements<T>(part, n);
  update_run<T>(update, mine.begin, mine.end - mine.begin, g + mine.begin);
}

// ---- clipping

template <class T>
void square_sums(Part part, Index n, const T* x, double* sums) {
  const Range mine = deal(part, ceil_div(n, kSquareSumChunk));
  for (Index chunk = mine.begin; chunk < mine.end; ++chunk) {
    const Index end = min((chunk + 1) * kSquareSumChunk, n);
    constexpr Index vectors = 4 * kVectorsOfLine;  // sums of four lines of lanes, for vectors of any width
    Vector<T> sum[vectors] = {}, line[kVectorsOfLine];
    for (Index i = chunk * kSquareSumChunk; i < end; i += vectors * kLanes<T>)
      PDNN_UNROLL for (Index k = 0; k < vectors; ++k) {
        const Vector<T> values = load(x + i + k * kLanes<T>, end - i - k * kLanes<T>);
        sum[k] = fma<T>(values, values, sum[k]);
      }
    constexpr int each = kVectorsOfLine;
    PDNN_UNROLL for (int v = 0; v < each; ++v) line[v] =
        (sum[v] + sum[each + v]) + (sum[2 * each + v] + sum[3 * each + v]);
    sums[chunk] = static_cast<double>(sum_of_line<T>(line)[0]);
  }
}

template <class T>
void scale(Part part, Index n, T factor, T* x) {
  const Range mine = deal_elements<T>(part, n);
  for (Index i = mine.begin; i < mine.end; i += kLanes<T>) {
    const Index left = mine.end - i;
    store(x + i, factor * load(x + i, left), left);
  }
}

template <class T>
void clamp(Part part, Index n, T bound, T* x) {
  const Range mine = deal_elements<T>(part, n);
  const Vector<T> most = broadcast(bound);
  for (Index i = mine.begin; i < mine.end; i += kLanes<T>) {
    const Index left = mine.end - i;
    store(x + i, at_least<T>(at_most<T>(load(x + i, left), most), -most), left);
  }
}

}  // namespace
}  // namespace pdnn::kernels::impl
