#pragma once
/// The optimizers' rules: each as a step on one vector of parameters, which every kernel that has a gradient in hand
/// may call, and as a kernel over whole arrays.
#include "pdnn/kernels/impl/elementwise.hpp"

namespace pdnn::kernels::impl {
namespace {

/// What a rule remembers of a vector of parameters.
template <class T>
using Memory = Vector<T>[kMostMemory];

// A step has its rule's numbers in T, and operator()(w, g, memory) gives the new w and changes the memory.

template <class T>
struct SgdStep {
  T lr, momentum, l2;
  bool nesterov;

  PDNN_INLINE explicit SgdStep(const Sgd& rule)
      : lr(static_cast<T>(rule.lr)),
        momentum(static_cast<T>(rule.momentum)),
        l2(static_cast<T>(rule.l2)),
        nesterov(rule.nesterov) {}
  PDNN_INLINE Vector<T> operator()(Vector<T> w, Vector<T> g, Memory<T>& memory) const {
    Vector<T>& v = memory[0];
    const Vector<T> d = g + l2 * w;
    v = momentum * v + d;
    return w - lr * (nesterov ? d + momentum * v : v);
  }
};

template <class T>
struct AdamStep {
  T rate, root, beta1, beta2, eps, l2, shrink;
  T gain1, gain2;  // 1 − beta1 and 1 − beta2, from numbers more exact than T

  PDNN_INLINE explicit AdamStep(const Adam& rule)
      : rate(static_cast<T>(rule.rate)),
        root(static_cast<T>(rule.root)),
        beta1(static_cast<T>(rule.beta1)),
        beta2(static_cast<T>(rule.beta2)),
        eps(static_cast<T>(rule.eps)),
        l2(static_cast<T>(rule.l2)),
        shrink(static_cast<T>(rule.shrink)),
        gain1(static_cast<T>(1 - rule.beta1)),
        gain2(static_cast<T>(1 - rule.beta2)) {}
  PDNN_INLINE Vector<T> operator()(Vector<T> w, Vector<T> g, Memory<T>& memory) const {
    Vector<T>&m = memory[0], &v = memory[1];
    const Vector<T> d = g + l2 * w;
    m += gain1 * (d - m);
    v = beta2 * v + gain2 * (d * d);
    return shrink * w - rate * m / (sqrt<T>(v) / root + eps);
  }
};

template <class T>
struct RmsPropStep {
  T lr, alpha, eps, momentum, l2;
  T gain;  // 1 − alpha
  bool centered;

  PDNN_INLINE explicit RmsPropStep(const RmsProp& rule)
      : lr(static_cast<T>(rule.lr)),
        alpha(static_cast<T>(rule.alpha)),
        eps(static_cast<T>(rule.eps)),
        momentum(static_cast<T>(rule.momentum)),
        l2(static_cast<T>(rule.l2)),
        gain(static_cast<T>(1 - rule.alpha)),
        centered(rule.centered) {}
  PDNN_INLINE Vector<T> operator()(Vector<T> w, Vector<T> g, Memory<T>& memory) const {
    Vector<T>&v = memory[0], &b = memory[1], &m = memory[2];
    const Vector<T> d = g + l2 * w;
    v = alpha * v + gain * (d * d);
    Vector<T> u = v;
    if (centered) {
      m += gain * (d - m);
      u = v - m * m;
    }
    b = momentum * b + d / (sqrt<T>(u) + eps);
    return w - lr * b;
  }
};

/// A step applied to parameters [at, at + n) of an update by their gradients g.
template <class T, class Step>
PDNN_INLINE void step_run(const Step& step, const Update<T>& update, Index at, Index n, const T* g) {
  T* const w = update.w + at;
  T* memory[kMostMemory];
  PDNN_UNROLL for (int k = 0; k < kMostMemory; ++k) memory[k] = update.memory[k] ? update.memory[k] + at : nullptr;
  for (Index i = 0; i < n; i += kLanes<T>) {
    const Index left = n - i;
    Memory<T> held;
    PDNN_UNROLL for (int k = 0; k < kMostMemory; ++k) held[k] = memory[k] ? load(memory[k] + i, left) : Vector<T>{};
    store(w + i, step(load(w + i, left), load(g + i, left), held), left);
    PDNN_UNROLL for (int k = 0; k < kMostMemory; ++k) if (memory[k]) store(memory[k] + i, held[k], left);
  }
}

/// The rule applied to parameters [at, at + n) by their gradients g.
template <class T>
PDNN_INLINE void update_run(const Update<T>& update, Index at, Index n, const T* g) {
  switch (update.rule.kind) {
    case Rule::Kind::sgd:
      return step_run<T>(SgdStep<T>(update.rule.sgd), update, at, n, g);
    case Rule::Kind::adam:
      return step_run<T>(AdamStep<T>(update.rule.adam), update, at, n, g);
    case Rule::Kind::rmsprop:
      return step_run<T>(RmsPropStep<T>(update.rule.rmsprop), update, at, n, g);
  }
}

/// w −= lr (g + l2 w), and nothing to remember.
template <class T>
PDNN_INLINE bool plain_descent(const Update<T>& update) {
  return update.rule.kind == Rule::Kind::sgd && !update.memory[0];
}

template <class T>
void update(Part part, const Update<T>& rule, Index n, const T* g) {
  const Range mine = deal_elements<T>(part, n);
  update_run<T>(rule, mine.begin, mine.end - mine.begin, g + mine.begin);
}

// ---- clipping

template <class T>
void square_sums(Part part, Index n, const T* x, double* sums) {
  const Range mine = deal(part, ceil_div(n, kSquareSumChunk));
  for (Index chunk = mine.begin; chunk < mine.end; ++chunk) {
    const Index end = min((chunk + 1) * kSquareSumChunk, n);
    Vector<T> sum[4] = {};
    for (Index i = chunk * kSquareSumChunk; i < end; i += 4 * kLanes<T>) PDNN_UNROLL for (Index k = 0; k < 4; ++k) {
        const Vector<T> values = load(x + i + k * kLanes<T>, end - i - k * kLanes<T>);
        sum[k] += values * values;
      }
    sums[chunk] = static_cast<double>(sum_of_lanes<T>((sum[0] + sum[1]) + (sum[2] + sum[3]))[0]);
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
