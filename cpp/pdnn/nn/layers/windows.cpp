#include "pdnn/nn/layers/windows.hpp"

#include <algorithm>

namespace pdnn::nn {

std::string Pair::text() const { return y == x ? std::to_string(x) : std::to_string(y) + "x" + std::to_string(x); }

namespace {

/// Of windows on lines only what is said of lines.
std::string said(const Pair& pair, const WindowOptions& options) {
  return options.line ? std::to_string(pair.x) : pair.text();
}
/// So that places, which add two of their products at most, fit.
bool within(const Pair& pair, Index least) {
  return std::min(pair.y, pair.x) >= least && std::max(pair.y, pair.x) < Index{1} << 31;
}

}  // namespace

void check_windows(std::string_view layer, const WindowOptions& options) {
  const auto& [kernel, stride, padding, dilation, line] = options;
  require(within(kernel, 1) && within(stride, 1) && within(padding, 0) && within(dilation, 1), layer, ": kernel ",
          said(kernel, options), ", stride ", said(stride, options), ", padding ", said(padding, options),
          ", dilation ", said(dilation, options),
          "; kernel, stride and dilation must be at least 1, padding at least 0, and all below 2^31");
}

kernels::Windows windows_on(std::string_view layer, const Shape& in, const WindowOptions& options) {
  const auto& [kernel, stride, padding, dilation, line] = options;
  require(in.rank() == (line ? 2 : 3), layer, ": input samples are ", in.text(),
          line ? ", this layer takes lines (channels, length); reshape x to (n, channels, length)"
               : ", this layer takes images (channels, height, width); reshape x to (n, channels, height, width)");
  const Pair size = line ? Pair(1, in[1]) : Pair(in[1], in[2]);
  const auto fits = [](Index extent, Index taps, Index apart, Index zeros) {
    return (taps - 1) * apart < extent + 2 * zeros;
  };
  if (!fits(size.y, kernel.y, dilation.y, padding.y) || !fits(size.x, kernel.x, dilation.x, padding.x))
    throw ValueError(message(layer, ": kernel ", said(kernel, options), " does not fit input ", in.text(),
                             " with padding ", said(padding, options),
                             dilation.y * dilation.x == 1 ? "" : " and dilation " + said(dilation, options),
                             "; add padding or use a larger input"));
  return {kernels::axis_of(size.y, kernel.y, stride.y, padding.y, dilation.y),
          kernels::axis_of(size.x, kernel.x, stride.x, padding.x, dilation.x)};
}

Shape places_of(const WindowOptions& options, Index channels, const kernels::Windows& windows) {
  if (options.line) return {channels, windows.x.places};
  return {channels, windows.y.places, windows.x.places};
}

}  // namespace pdnn::nn
