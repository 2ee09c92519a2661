#pragma once
/// PadCropFlip: images moved and mirrored as they are gathered, as random numbers of (epoch, image) say, whoever
/// gathers.
#include "pdnn/core/random.hpp"
#include "pdnn/core/types.hpp"

namespace pdnn::data {

/// Pads an image with zeros, cuts its size out again at a random place, and mirrors the cut left to right or not.
struct PadCropFlip {
  Index padding = 0;  ///< pixels on each side
  bool flip = false;  ///< whether half of the images are mirrored
  Rng key{};          ///< of the epoch

  /// Pixel (y, x) of the cut is pixel (y + down, x + right) of the image, or zero where there is none.
  struct Place {
    Index down, right;
    bool mirrored;
  };
  Place place(Index image) const;

  /// Makes the cut of an image in its place: pixels [channels, height, width], `empty` where there is no pixel.
  template <class T>
  void cut(Index image, const Shape& extents, T empty, T* pixels) const;
};

}  // namespace pdnn::data
