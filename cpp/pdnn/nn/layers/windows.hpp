#pragma once
/// How convolutions and pools lie on images: their shapes, checked.
#include "pdnn/kernels/images.hpp"
#include "pdnn/nn/layer.hpp"

namespace pdnn::nn {

/// Square windows on samples of `in`, (channels, height, width). Throws ValueError, in the name of a layer, if they do
/// not fit.
kernels::Windows windows_on(std::string_view layer, const Shape& in, Index kernel, Index stride, Index padding);

/// Throws ValueError unless windows of this kind can exist at all.
void check_windows(std::string_view layer, Index kernel, Index stride, Index padding);

}  // namespace pdnn::nn
