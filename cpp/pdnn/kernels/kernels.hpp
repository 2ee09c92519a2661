#pragma once
/// The arithmetic. Every function is called by every worker of a team with the same arguments and does its own part of
/// the output; none waits: the caller puts a barrier between a kernel and whoever reads its result. Each output element
/// is computed by one worker in a fixed order, so the size of the team never changes a bit. Nothing is allocated.
/// Instantiated for float and double. Unless it says so, an output overlaps no input.
#include "pdnn/core/random.hpp"
#include "pdnn/core/types.hpp"

namespace pdnn::kernels {

enum class Activation { identity, relu, sigmoid, tanh };

// ---- rules: what one step makes of parameters w and their gradients g

/// d = g + l2 w; v = momentum v + d; w −= lr (nesterov ? d + momentum v : v). Remembers v, where momentum is not 0.
struct Sgd {
  double lr, momentum, l2;
  bool nesterov;
};

/// d = g + l2 w; m += (1 − beta1) (d − m); v = beta2 v + (1 − beta2) d²; w = shrink w − rate m / (√v / root + eps).
/// Remembers m, v. At step t, rate = lr / (1 − beta1ᵗ) and root = √(1 − beta2ᵗ). Kingma and Ba, ICLR 2015, algorithm 1;
/// decoupled weight decay λ is shrink = 1 − lr λ: Loshchilov and Hutter, ICLR 2019, algorithm 2.
struct Adam {
  double rate, root, beta1, beta2, eps, l2, shrink;
};

/// d = g + l2 w; v = alpha v + (1 − alpha) d²; u = v, or if centered m += (1 − alpha) (d − m) and u = v − m²;
/// b = momentum b + d / (√u + eps); w −= lr b. Remembers v, b where momentum is not 0, m where centered. Tieleman and
/// Hinton, Coursera lecture 6.5 (2012); centered: Graves, arXiv:1308.0850, eq. 38 – 41.
struct RmsProp {
  double lr, alpha, eps, momentum, l2;
  bool centered;
};

/// One of them.
struct Rule {
  enum class Kind { sgd, adam, rmsprop } kind;
  union {
    Sgd sgd;
    Adam adam;
    RmsProp rmsprop;
  };
  Rule(const Sgd& numbers) : kind(Kind::sgd), sgd(numbers) {}
  Rule(const Adam& numbers) : kind(Kind::adam), adam(numbers) {}
  Rule(const RmsProp& numbers) : kind(Kind::rmsprop), rmsprop(numbers) {}
};

inline constexpr int kMostMemory = 3;

/// A rule, the parameters that belong to element 0 of a gradient, and what is remembered of them: in the rule's order,
/// null where nothing is.
template <class T>
struct Update {
  Rule rule;
  T* w;
  T* memory[kMostMemory];

  /// The same from parameter `index` on.
  Update at(Index index) const {
    Update later = *this;
    later.w += index;
    for (T*& array : later.memory)
      if (array) array += index;
    return later;
  }
};

/// A weight or its gradient: row-major, or cut into panels of `panel` columns (the last may be narrower) that lie one
/// after another, each row-major. Members of a team who own panels own whole pages of memory; of a row-major matrix the
/// prefetchers of a core would fetch, and so take away, what its neighbours are writing.
template <class T>
struct Weights {
  T* data;
  Index rows, cols, stride, panel;

  Weights(const Matrix<T>& m) : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride), panel(m.cols) {}  // NOLINT
  Weights(const Matrix<std::remove_const_t<T>>& m)  // NOLINT: a view of a view
    requires(std::is_const_v<T>)
      : Weights(Matrix<T>(m)) {}
  Weights(T* values, Index row_count, Index col_count) : Weights(Matrix<T>(values, row_count, col_count)) {}
  Weights(T* values, Index row_count, Index col_count, Index columns_of_a_panel)
      : data(values), rows(row_count), cols(col_count), stride(col_count), panel(columns_of_a_panel) {}
  Index panels() const { return (cols + panel - 1) / panel; }
  /// The columns of these panels.
  Range columns(Range of_panels) const { return {of_panels.begin * panel, std::min(of_panels.end * panel, cols)}; }
  /// These panels by themselves.
  Weights panels(Range of_panels) const {
    const Range own = columns(of_panels);
    return {data + own.begin * rows, rows, own.size(), panel};
  }
};
/// The columns of a panel.
template <class T>
inline constexpr Index kPanel = 256 / Index{sizeof(T)};

/// Row-major weights w [rows, cols] put in panels, or back; `room` holds as many elements.
template <class T>
void to_panels(Index rows, Index cols, T* w, T* room);
template <class T>
void from_panels(Index rows, Index cols, T* w, T* room);

// ---- products: x [batch, inputs], w [inputs, outputs], y [batch, outputs]; any extent may be 0

/// y = f(x w + b). A null bias is none.
template <class T>
void product_nn(Part part, Matrix<const T> x, Weights<const T> w, const T* b, Activation f, Matrix<T> y);

/// dx = (dy wᵀ) ∘ f'(x), where x is the output of the activation f before this layer; identity: x is not read.
template <class T>
void product_nt(Part part, Matrix<const T> dy, Weights<const T> w, Activation f, Matrix<const T> x, Matrix<T> dx);

/// Memory that will be read soon: `count` rows of `bytes` bytes, row i at data + rows[i] · stride. A product that is
/// given it fetches it towards this core while it computes.
struct Upcoming {
  const char* data;
  Index stride;
  const Index* rows;
  Index count, bytes;
};

/// dw = xᵀ dy, or dw += xᵀ dy. A null `upcoming` is none.
template <class T>
void product_tn(Part part, Matrix<const T> x, Matrix<const T> dy, bool add, Weights<T> dw, const Upcoming* upcoming);

/// The same dw, applied by the rule to the weights while it is in registers or near, and not kept: dw is room that may
/// be used for sums, its values are lost. The element of dw at dw.data + i updates parameter i. Its sums start from
/// what lies at `from`, in the order of dw; null: from 0.
template <class T>
void product_tn_update(Part part, Matrix<const T> x, Matrix<const T> dy, const Update<T>& update, const T* from,
                       Weights<T> dw, const Upcoming* upcoming);

/// sums[j] = Σ_r x[r, j], or sums[j] += it.
template <class T>
void column_sums(Part part, Matrix<const T> x, bool add, T* sums);

// ---- images: a sample is (height, width, channels) in memory

/// How a window goes over an image: places of the output, out_height × out_width, see kernel_height × kernel_width
/// elements of the input each, `stride` apart; the image is surrounded by `padding` zeros.
struct Windows {
  Index height, width, kernel_height, kernel_width, stride, padding, out_height, out_width;
};

/// x [batch, height, width, inputs], w [kernel_height, kernel_width, inputs, outputs],
/// y [batch, out_height, out_width, outputs]; any batch, and no other extent is 0.
struct Convolution {
  Windows windows;
  Index inputs, outputs;
};

/// y[n, p, q, :] = b + Σ_ij x[n, p stride + i − padding, q stride + j − padding, :] w[i, j, :, :], or relu of it. A
/// null bias is none.
template <class T>
void convolution(Part part, const Convolution& shape, Index batch, const T* x, const T* w, const T* b, bool relu, T* y);

/// flipped_w: the weights as convolution_dx takes them, as many.
template <class T>
void flip_taps(Part part, const Convolution& shape, const T* w, T* flipped_w);

/// dx[n, r, s, :] = Σ dy[n, p, q, :] w[i, j, :, :]ᵀ over all with r = p stride + i − padding, s = q stride + j −
/// padding.
template <class T>
void convolution_dx(Part part, const Convolution& shape, Index batch, const T* dy, const T* flipped_w, T* dx);

/// dw[i, j, :, :] = Σ_npq x[n, p stride + i − padding, q stride + j − padding, :]ᵀ dy[n, p, q, :] and db = Σ_npq dy, or
/// += them. A null db is not wanted; right behind dw it is cheapest.
template <class T>
void convolution_dw(Part part, const Convolution& shape, Index batch, const T* x, const T* dy, bool add, T* dw, T* db);

/// y[n, p, q, :] = the largest x in the window at place (p, q), channel by channel, or relu of it; windows have no
/// padding and at most 256 taps (255 with relu). winners, one a y: the number of the first tap that had it (of the last
/// NaN), or 255 if relu made it 0.
template <class T>
void max_pool(Part part, const Windows& windows, Index channels, Index batch, bool relu, const T* x, T* y,
              std::uint8_t* winners);
/// dx = Σ dy over the windows that an element has won.
template <class T>
void max_pool_backward(Part part, const Windows& windows, Index channels, Index batch, const std::uint8_t* winners,
                       const T* dy, T* dx);

/// y[n, p, q, :] = the mean of x over the window at place (p, q); windows have no padding.
template <class T>
void mean_pool(Part part, const Windows& windows, Index channels, Index batch, const T* x, T* y);
template <class T>
void mean_pool_backward(Part part, const Windows& windows, Index channels, Index batch, const T* dy, T* dx);

/// y[n, j, i] = x[n, i, j] for matrices of rows x cols: turns (channels, height · width) into channels last, and back.
template <class T>
void transpose_samples(Part part, Index batch, Index rows, Index cols, const T* x, T* y);

// ---- activations, element by element; `n` elements

/// y = f(x); y may be x.
template <class T>
void activate(Part part, Activation f, Index n, const T* x, T* y);

/// dx = dy ∘ f'(x), from y = f(x); dx may be dy.
template <class T>
void activate_backward(Part part, Activation f, Index n, const T* y, const T* dy, T* dx);

/// to = from where x > 0, else slope · from: LeakyReLU forward (from = x) and backward (from = dy).
template <class T>
void leaky_relu(Part part, T slope, Index n, const T* x, const T* from, T* to);
/// y = x Φ(x), Φ the normal distribution function: to 3 units in the last place from x = −0.6 up, to 5 in the lower
/// tail; floats to 1.
template <class T>
void gelu(Part part, Index n, const T* x, T* y);
/// dx = dy (Φ(x) + x Φ'(x)).
template <class T>
void gelu_backward(Part part, Index n, const T* x, const T* dy, T* dx);

/// y = exp x, to 3 units in the last place, and y = log x; y may be x.
template <class T>
void exp(Part part, Index n, const T* x, T* y);
template <class T>
void log(Part part, Index n, const T* x, T* y);

/// y = x / (1 - p) where the mask keeps an element, 0 elsewhere. Element (r, j) is kept if
/// key.bits32(first + r * stride + j) >= p 2³². The same call turns dy into dx.
template <class T>
void dropout(Part part, Rng key, Index first, Index stride, double p, Matrix<const T> x, Matrix<T> y);

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

// ---- normalisation. Of columns: x is [rows, channels], and sums over rows are left as the sums of kChunks chunks of
// them,
// ---- share(rows, chunk, kChunks), for the caller to join in that order.

inline constexpr Index kChunks = 8;

/// What each column is normalised by: mean and variance, and then gamma and beta; [channels] each.
template <class T>
struct Normal {
  const T *mean, *var, *gamma, *beta;
  double eps;
};

/// moments: [kChunks, 2, channels]. The mean over the chunk's rows, and Σ (x − that mean)²; 0 and 0 for no rows.
template <class T>
void column_moments(Part part, Matrix<const T> x, T* moments);
/// y = f((x − mean) gamma / √(var + eps) + beta), f being ReLU or the identity.
template <class T>
void normalize(Part part, Matrix<const T> x, const Normal<T>& normal, bool relu, Matrix<T> y);
/// sums: [kChunks, 2, channels]. Σ dz and Σ dz (x − mean) over the chunk's rows, with dz = dy f'(y).
template <class T>
void normalize_sums(Part part, Matrix<const T> x, Matrix<const T> y, Matrix<const T> dy, const T* mean, bool relu,
                    T* sums);
/// dx = (dz − shift − (x − mean) slope) gamma / √(var + eps); shift, slope: [channels].
template <class T>
void normalize_backward(Part part, Matrix<const T> x, Matrix<const T> y, Matrix<const T> dy, const Normal<T>& normal,
                        const T* shift, const T* slope, bool relu, Matrix<T> dx);

/// Of rows: y[r] = (x[r] − mean) / √(var + eps) gamma + beta. moments: [rows, 2], each row's mean and 1 / √(var + eps).
template <class T>
void layer_norm(Part part, Matrix<const T> x, const T* gamma, const T* beta, double eps, Matrix<T> y, T* moments);
/// dx, from those moments.
template <class T>
void layer_norm_backward(Part part, Matrix<const T> x, Matrix<const T> dy, const T* gamma, const T* moments,
                         Matrix<T> dx);
/// dgamma = Σ_r dy (x − mean) / √(var + eps) and dbeta = Σ_r dy, or += them.
template <class T>
void layer_norm_sums(Part part, Matrix<const T> x, Matrix<const T> dy, const T* moments, bool add, T* dgamma, T* dbeta);

// ---- vectors of n elements

/// y = a + b; y may be either.
template <class T>
void add(Part part, Index n, const T* a, const T* b, T* y);

/// out[r, :] = scale · x[rows[r], :] + shift for `count` rows of `width` elements; rows of x start `stride` elements
/// apart.
template <class T, class Source>
void gather_rows(Part part, const Source* x, Index stride, const Index* rows, Index count, Index width, double scale,
                 double shift, T* out);

// ---- optimizers

/// The rule applied to n parameters by their gradients g.
template <class T>
void update(Part part, const Update<T>& rule, Index n, const T* g);

inline constexpr Index kSquareSumChunk = 1024;
inline Index square_chunks(Index n) { return (n + kSquareSumChunk - 1) / kSquareSumChunk; }
/// sums[c] = Σ x² over the c-th kSquareSumChunk elements; the last chunk may be shorter.
template <class T>
void square_sums(Part part, Index n, const T* x, double* sums);
/// x *= factor.
template <class T>
void scale(Part part, Index n, T factor, T* x);
/// x = bound where it is larger, −bound where it is smaller.
template <class T>
void clamp(Part part, Index n, T bound, T* x);

// ---- measuring

/// The arithmetic peak of this core right now, in floating-point operations a second: fused multiply-adds (for v2: a
/// multiply and an add) on registers for about `seconds`.
template <class T>
double measure_peak(double seconds);

}  // namespace pdnn::kernels
