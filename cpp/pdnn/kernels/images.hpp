#pragma once
/// Kernels on images: convolution, with rounded factors too, pooling, and the turn between channels first and last. A
/// sample is (height, width, channels) in memory.
#include "pdnn/kernels/leaves.hpp"

namespace pdnn::kernels {

/// How windows go along one axis of an image: each of the output's `places` sees `kernel` elements of the input's
/// `extent`, which are `dilation` apart; neighbors' are `stride` apart; `padding` zeros are at both ends.
struct Axis {
  Index extent, kernel, stride, padding, dilation, places;
};
/// With as many places as there is room for.
constexpr Axis axis_of(Index extent, Index kernel, Index stride = 1, Index padding = 0, Index dilation = 1) {
  return {extent, kernel, stride, padding, dilation, (extent + 2 * padding - (kernel - 1) * dilation - 1) / stride + 1};
}

/// How a window goes over an image: down, and along its rows.
struct Windows {
  Axis y, x;
};

/// x [batch, y.extent, x.extent, inputs], w [y.kernel, x.kernel, inputs / groups, outputs],
/// y [batch, y.places, x.places, outputs]; any batch, and no other extent is 0. Channels are in groups, one after the
/// other: an output sees the inputs of its group.
struct Convolution {
  Windows windows;
  Index inputs, outputs, groups = 1;
};

/// The products of a convolution.
template <class T>
struct ConvolutionKernels {
  /// y[n, p, q, :] = b + Σ_ij x[n, r, s, :] w[i, j, :, :], or relu of it, with r = p stride + i dilation − padding, and
  /// s of q and j along the other axis. A null bias is none.
  void (*convolution)(Part part, const Convolution& shape, Index batch, const T* x, const T* w, const T* b, bool relu,
                      T* y);

  /// dx[n, r, s, :] = Σ dy[n, p, q, :] w[i, j, :, :]ᵀ over all that see it.
  void (*convolution_dx)(Part part, const Convolution& shape, Index batch, const T* dy, const T* flipped_w, T* dx);

  /// dw[i, j, :, :] = Σ_npq x[n, r, s, :]ᵀ dy[n, p, q, :] and db = Σ_npq dy, or += them, which goes with one leaf only.
  /// A null db is not wanted; right behind dw it is cheapest. It is a sum of `exact_dy`, which is dy where factors are
  /// not rounded. A leaf's rows are samples; uses the leaves' room, for dw and db together.
  void (*convolution_dw)(Part part, const Convolution& shape, Index batch, const T* x, const T* dy, const T* exact_dy,
                         const LeafSums<T>& leaves, bool add, T* dw, T* db);
};

/// What rounds the factors of a convolution to bfloat16, in the orders in which its products read them. Every result
/// has at most as many elements as what it is made of.
template <class T>
struct RoundingKernels {
  /// Of x for convolution, of dy for convolution_dx: pairs of a place's channels, of each group by itself: `places`
  /// counts the groups of all, `channels` those of one.
  void (*round_channels)(Part part, Index places, Index channels, const T* x, T* rounded);
  /// Of w for convolution, of flipped_w [taps, outputs / groups, inputs] for convolution_dx: `rows` of `cols` weights
  /// under each tap.
  void (*round_taps)(Part part, Index taps, Index rows, Index cols, const T* w, T* rounded);
  /// Of x and of dy for convolution_dw: pairs of samples, of each leaf by itself.
  void (*round_samples)(Part part, Index batch, Index elements, const LeafSums<T>& leaves, const T* x, T* rounded);
  /// Whether rounded numbers are floats in the order of x, by channels and by samples, and are multiplied as others
  /// are.
  bool as_floats;
  /// With `as_floats`, what round_taps makes of flip_taps's result.
  void (*flip_rounded_taps)(Part part, const Convolution& shape, const T* w, T* flipped_w);
};

/// On batches of images.
template <class T>
struct ImageKernels {
  /// flipped_w: the weights as convolution_dx takes them, as many.
  void (*flip_taps)(Part part, const Convolution& shape, const T* w, T* flipped_w);

  /// y[n, p, q, :] = the largest x in the window at place (p, q), channel by channel, or relu of it; windows have no
  /// padding and at most 256 taps (255 with relu). winners, one a y: the number of the first tap that had it (of the
  /// last NaN), or 255 if relu made it 0.
  void (*max_pool)(Part part, const Windows& windows, Index channels, Index batch, bool relu, const T* x, T* y,
                   std::uint8_t* winners);
  /// dx = Σ dy over the windows that an element has won.
  void (*max_pool_backward)(Part part, const Windows& windows, Index channels, Index batch, const std::uint8_t* winners,
                            const T* dy, T* dx);

  /// y[n, p, q, :] = the mean of x over the window at place (p, q); windows have no padding.
  void (*mean_pool)(Part part, const Windows& windows, Index channels, Index batch, const T* x, T* y);
  void (*mean_pool_backward)(Part part, const Windows& windows, Index channels, Index batch, const T* dy, T* dx);

  /// y[n, j, i] = x[n, i, j] for matrices of rows x cols: turns (channels, height · width) into channels last, and
  /// back.
  void (*transpose_samples)(Part part, Index batch, Index rows, Index cols, const T* x, T* y);
};

}  // namespace pdnn::kernels
