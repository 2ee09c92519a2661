#include "pdnn/data/augmentation.hpp"

#include <cstring>

namespace pdnn::data {

PadCropFlip::Place PadCropFlip::place(Index image) const {
  const auto side = static_cast<std::uint64_t>(2 * padding + 1);
  const std::uint64_t first = 3 * static_cast<std::uint64_t>(image);
  return {static_cast<Index>(key.below(side, first)) - padding,
          static_cast<Index>(key.below(side, first + 1)) - padding, flip && (key.bits(first + 2) & 1) != 0};
}

template <class T>
void PadCropFlip::cut(Index image, const Shape& extents, T empty, T* pixels) const {
  const Index height = extents[1], width = extents[2];
  const auto [down, right, mirrored] = place(image);
  const Index begin = std::clamp<Index>(-right, 0, width), end = std::clamp<Index>(width - right, begin, width);
  for (T* const last = pixels + extents.count(); pixels < last; pixels += height * width)
    for (Index i = 0; i < height; ++i) {
      const Index y = down < 0 ? height - 1 - i : i;  // so that a line is read before it is written
      T* const line = pixels + y * width;
      if (y + down < 0 || y + down >= height) {
        std::fill_n(line, width, empty);
        continue;
      }
      if (begin < end)
        std::memmove(line + begin, line + down * width + begin + right,
                     static_cast<std::size_t>(end - begin) * sizeof(T));
      std::fill(line, line + begin, empty);
      std::fill(line + end, line + width, empty);
      if (mirrored) std::reverse(line, line + width);
    }
}

template void PadCropFlip::cut(Index, const Shape&, float, float*) const;
template void PadCropFlip::cut(Index, const Shape&, double, double*) const;

}  // namespace pdnn::data
