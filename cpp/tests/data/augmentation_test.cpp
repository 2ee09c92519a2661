/// PadCropFlip: each image is the cut that its place says, whoever gathers it; nothing beyond an image is read.
#include "pdnn/data/augmentation.hpp"

#include <boost/test/unit_test.hpp>
#include <numeric>

#include "pdnn/data/source.hpp"

namespace pdnn::data {

BOOST_AUTO_TEST_SUITE(augmentation)

BOOST_AUTO_TEST_CASE(an_image_is_the_cut_that_its_place_says_for_any_team) {
  const Shape sample{2, 4, 5};
  const Index count = sample.count(), images = 30;
  std::vector<std::uint8_t> raw(static_cast<std::size_t>(images * count));  // its own size: beyond it a sanitizer waits
  for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<std::uint8_t>(1 + i % 251);
  std::vector<Index> rows(static_cast<std::size_t>(images));
  std::iota(rows.rbegin(), rows.rend(), Index{0});

  for (const Index padding : {0, 1, 3, 9}) {
    const PadCropFlip how{padding, padding != 1, Rng(7)};
    for (const int members : {1, 4}) {
      std::vector<double> out(raw.size());
      Source<double> source({raw.data(), Samples::Format::uint8, images, count, sample, 2, -1}, {});
      source.augment(how);
      for (int member = 0; member < members; ++member) source.gather_samples({member, members}, rows, out.data());
      bool equal = true;
      for (Index r = 0; r < images; ++r) {
        const Index image = rows[static_cast<std::size_t>(r)];
        const PadCropFlip::Place at = how.place(image);
        BOOST_TEST(std::max(std::abs(at.down), std::abs(at.right)) <= padding);
        for (Index c = 0; c < 2; ++c)
          for (Index y = 0; y < 4; ++y)
            for (Index x = 0; x < 5; ++x) {
              const Index from_y = y + at.down, from_x = (at.mirrored ? 4 - x : x) + at.right;
              const bool inside = from_y >= 0 && from_y < 4 && from_x >= 0 && from_x < 5;
              const Index from = image * count + (c * 4 + from_y) * 5 + from_x;
              const double expected = inside ? 2 * raw[static_cast<std::size_t>(from)] - 1 : -1;
              equal &= out[static_cast<std::size_t>(r * count + (c * 4 + y) * 5 + x)] == expected;
            }
      }
      BOOST_TEST(equal);
    }
  }
}

BOOST_AUTO_TEST_CASE(places_are_those_of_the_key) {
  const PadCropFlip one{4, true, Rng(1)}, same{4, true, Rng(1)}, other{4, true, Rng(2)};
  Index equal = 0, different = 0, mirrored = 0;
  for (Index image = 0; image < 1000; ++image) {
    const auto a = one.place(image), b = same.place(image), c = other.place(image);
    equal += a.down == b.down && a.right == b.right && a.mirrored == b.mirrored;
    different += a.down != c.down || a.right != c.right || a.mirrored != c.mirrored;
    mirrored += a.mirrored;
  }
  BOOST_TEST(equal == 1000);
  BOOST_TEST(different > 950);
  BOOST_TEST(std::abs(mirrored - 500) < 80);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace pdnn::data
