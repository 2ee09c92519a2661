#pragma once
/// The arithmetic. Every function is called by every worker of a team with the same arguments and does its own part of
/// the output; none waits: the caller puts a barrier between a kernel and whoever reads its result. Each output element
/// is computed by one worker in a fixed order, so the size of the team never changes a bit. Nothing is allocated.
/// Instantiated for float and double. Unless it says so, an output overlaps no input.
#include "pdnn/core/random.hpp"
#include "pdnn/core/types.hpp"

namespace pdnn::kernels {

enum class Activation { identity, relu, sigmoid, tanh };

/// One rule of stochastic gradient descent: d = g + l2 w; with a velocity, v = momentum v + d and d = v, or with
/// nesterov d = d + momentum v; w −= lr d. A null velocity is momentum 0.
struct Sgd {
  double lr, momentum, l2;
  bool nesterov;
};
/// A rule, and the parameters and memory that belong to element 0 of a gradient.
template <class T>
struct Update {
  Sgd rule;
  T* velocity;
  T* w;
};

// ---- products: x [batch, inputs], w [inputs, outputs], y [batch, outputs]; any extent may be 0

/// y = f(x w + b). A null bias is none.
template <class T>
void product_nn(Part part, Matrix<const T> x, Matrix<const T> w, const T* b, Activation f, Matrix<T> y);

/// dx = (dy wᵀ) ∘ f'(x), where x is the output of the activation f before this layer; identity: x is not read.
template <class T>
void product_nt(Part part, Matrix<const T> dy, Matrix<const T> w, Activation f, Matrix<const T> x, Matrix<T> dx);

/// dw = xᵀ dy, or dw += xᵀ dy.
template <class T>
void product_tn(Part part, Matrix<const T> x, Matrix<const T> dy, bool add, Matrix<T> dw);

/// The same dw, applied by the rule to the weights while it is in registers or near, and not kept: dw is room that may
/// be used for sums, its values are lost. Element (i, j) of dw updates parameter i · dw.stride + j.
template <class T>
void product_tn_update(Part part, Matrix<const T> x, Matrix<const T> dy, const Update<T>& update, Matrix<T> dw);

/// sums[j] = Σ_r x[r, j], or sums[j] += it.
template <class T>
void column_sums(Part part, Matrix<const T> x, bool add, T* sums);

// ---- activations, element by element; `n` elements

/// y = f(x); y may be x.
template <class T>
void activate(Part part, Activation f, Index n, const T* x, T* y);

/// dx = dy ∘ f'(x), from y = f(x); dx may be dy.
template <class T>
void activate_backward(Part part, Activation f, Index n, const T* y, const T* dy, T* dx);

/// y = exp x, to 3 units in the last place, and y = log x; y may be x.
template <class T>
void exp(Part part, Index n, const T* x, T* y);
template <class T>
void log(Part part, Index n, const T* x, T* y);

/// y = x / (1 - p) where the mask keeps an element, 0 elsewhere. Element (r, j) is kept if
/// key.bits32((first_row + r) * cols + j) >= p 2³². The same call turns dy into dx.
template <class T>
void dropout(Part part, Rng key, Index first_row, double p, Matrix<const T> x, Matrix<T> y);

// ---- rows

/// y[r, :] = exp(x[r, :]) / Σ exp(x[r, :]), shifted by the row's maximum.
template <class T>
void softmax(Part part, Matrix<const T> x, Matrix<T> y);
/// dx = y ∘ (dy − Σ_j dy_j y_j), from y = softmax(x).
template <class T>
void softmax_backward(Part part, Matrix<const T> y, Matrix<const T> dy, Matrix<T> dx);

/// y[r, :] = x[r, :] − log Σ exp(x[r, :]).
template <class T>
void log_softmax(Part part, Matrix<const T> x, Matrix<T> y);
/// dx = dy − exp(y) Σ_j dy_j, from y = log_softmax(x).
template <class T>
void log_softmax_backward(Part part, Matrix<const T> y, Matrix<const T> dy, Matrix<T> dx);

/// Softmax cross-entropy in one pass. rows[2 r] = −log softmax(y[r])[classes[r]], rows[2 r + 1] = 1 if the (first)
/// largest y is at classes[r], else 0. dy = scale (softmax(y) − onehot); a null dy.data is not wanted.
template <class T>
void cross_entropy(Part part, Matrix<const T> y, const std::int32_t* classes, double scale, Matrix<T> dy, double* rows);

/// The same for targets t of probabilities [batch, classes]: rows[2 r] = −Σ_j t_j log softmax(y[r])_j, and
/// dy = scale (softmax(y) Σ_j t_j − t).
template <class T>
void cross_entropy(Part part, Matrix<const T> y, Matrix<const T> targets, double scale, Matrix<T> dy, double* rows);

// ---- vectors of n elements

/// y += x.
template <class T>
void add(Part part, Index n, const T* x, T* y);

/// The rule applied to `n` parameters by their gradients g.
template <class T>
void update(Part part, const Update<T>& rule, Index n, const T* g);

/// out[r, :] = scale · x[rows[r], :] + shift for `count` rows of `width` elements; rows of x start `stride` elements
/// apart.
template <class T, class Source>
void gather_rows(Part part, const Source* x, Index stride, const Index* rows, Index count, Index width, double scale,
                 double shift, T* out);

// ---- measuring

/// The arithmetic peak of this core right now, in floating-point operations a second: fused multiply-adds (for v2: a
/// multiply and an add) on registers for about `seconds`.
template <class T>
double measure_peak(double seconds);

}  // namespace pdnn::kernels
