#include "pdnn/data/augmentation.hpp"

namespace pdnn::data {

namespace {

/// One line of a cut: `width` pixels of `line` from `right` on, zeros beyond its ends, perhaps from last to first.
template <class T, class Raw>
void cut_line(const Raw* line, Index width, Index right, bool mirrored, T scale, T shift, T* out) {
  const Index begin = std::clamp<Index>(-right, 0, width), end = std::clamp<Index>(width - right, begin, width);
  T* const first = mirrored ? out + width - 1 : out;
  const Index step = mirrored ? -1 : 1;
  for (Index x = 0; x < begin; ++x) first[step * x] = shift;
  for (Index x = begin; x < end; ++x) first[step * x] = scale * static_cast<T>(line[x + right]) + shift;
  for (Index x = end; x < width; ++x) first[step * x] = shift;
}

}  // namespace

PadCropFlip::Place PadCropFlip::place(Index image) const {
  const auto side = static_cast<std::uint64_t>(2 * padding + 1);
  const std::uint64_t first = 3 * static_cast<std::uint64_t>(image);
  return {static_cast<Index>(key.below(side, first)) - padding,
          static_cast<Index>(key.below(side, first + 1)) - padding, flip && (key.bits(first + 2) & 1) != 0};
}

template <class T, class Raw>
void gather_augmented(Part part, const PadCropFlip& how, const Raw* images, Index stride, std::span<const Index> rows,
                      const Shape& sample, double scale, double shift, T* out) {
  const Index channels = sample[0], height = sample[1], width = sample[2];
  const Range mine = part.range(static_cast<Index>(rows.size()));
  for (Index r = mine.begin; r < mine.end; ++r) {
    const Index row = rows[static_cast<std::size_t>(r)];
    const auto [down, right, mirrored] = how.place(row);
    for (Index line = 0; line < channels * height; ++line) {
      const Index y = line % height + down;
      T* const to = out + (r * channels * height + line) * width;
      if (y < 0 || y >= height) {
        std::fill_n(to, width, static_cast<T>(shift));
      } else {
        cut_line(images + row * stride + (line + down) * width, width, right, mirrored, static_cast<T>(scale),
                 static_cast<T>(shift), to);
      }
    }
  }
}

#define PDNN_INSTANTIATE(T, Raw)                                                                                    \
  template void gather_augmented(Part, const PadCropFlip&, const Raw*, Index, std::span<const Index>, const Shape&, \
                                 double, double, T*);
PDNN_INSTANTIATE(float, std::uint8_t)
PDNN_INSTANTIATE(float, float)
PDNN_INSTANTIATE(float, double)
PDNN_INSTANTIATE(double, std::uint8_t)
PDNN_INSTANTIATE(double, float)
PDNN_INSTANTIATE(double, double)
#undef PDNN_INSTANTIATE

}  // namespace pdnn::data
