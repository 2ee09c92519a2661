#pragma once
/// How convolutions and pools lie on images and on lines: their shapes, checked.
#include "pdnn/kernels/images.hpp"
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

/// A number for each axis of an image, or one for both.
struct Pair {
  Index y, x;
  Pair(Index both) : y(both), x(both) {}
  Pair(Index down, Index along) : y(down), x(along) {}
  /// "3", or "3x5".
  std::string text() const;
};

struct WindowOptions {
  Pair kernel, stride = 1, padding = 0, dilation = 1;
  bool line = false;  ///< samples are (channels, length), images of one row: the numbers of y are 1, 1, 0 and 1
};

/// Windows on samples of `in`, (channels, height, width) or (channels, length). Throws ValueError, in the name of a
/// layer, if they do not fit.
kernels::Windows windows_on(std::string_view layer, const Shape& in, const WindowOptions& options);

/// The shape of what has one place for each of them.
Shape places_of(const WindowOptions& options, Index channels, const kernels::Windows& windows);

/// Throws ValueError unless windows of this kind can exist at all.
void check_windows(std::string_view layer, const WindowOptions& options);

}  // namespace pdnn::nn
