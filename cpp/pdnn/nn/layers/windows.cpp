#include "pdnn/nn/layers/windows.hpp"

namespace pdnn::nn {

void check_windows(std::string_view layer, Index kernel, Index stride, Index padding) {
  require(kernel >= 1 && stride >= 1 && padding >= 0, layer, ": kernel ", kernel, ", stride ", stride, ", padding ",
          padding, "; kernel and stride must be at least 1, padding at least 0");
}

kernels::Windows windows_on(std::string_view layer, const Shape& in, Index kernel, Index stride, Index padding) {
  require(in.rank() == 3, layer, ": input samples are ", in.text(),
          ", this layer takes images (channels, height, width); reshape x to (n, channels, height, width)");
  const Index height = in[1] + 2 * padding, width = in[2] + 2 * padding;
  require(kernel <= height && kernel <= width, layer, ": kernel ", kernel, " does not fit input ", in.text(),
          " with padding ", padding, "; add padding or use a larger input");
  return {.height = in[1],
          .width = in[2],
          .kernel_height = kernel,
          .kernel_width = kernel,
          .stride = stride,
          .padding = padding,
          .out_height = (height - kernel) / stride + 1,
          .out_width = (width - kernel) / stride + 1};
}

}  // namespace pdnn::nn
