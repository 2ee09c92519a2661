// AlignedArrays and shapes: sizes that no memory has are refused by name; what a library may yet write to stays.
#include "pdnn/core/memory.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <vector>

#include "pdnn/core/errors.hpp"

using namespace pdnn;

BOOST_AUTO_TEST_SUITE(memory)

BOOST_AUTO_TEST_CASE(buffers_start_on_a_cache_line_with_zeros) {
  for (int round = 0; round < 2; ++round)
    for (const Index size : {0, 1, 17, 1000, 1 << 20}) {  // the last one takes memory from the system itself
      AlignedArray<double> buffer(size);
      BOOST_TEST(buffer.size() == size);
      BOOST_TEST(reinterpret_cast<std::uintptr_t>(buffer.data()) % kCacheLine == 0);
      BOOST_TEST(std::ranges::all_of(buffer.span(), [](double value) { return value == 0; }));
      std::ranges::fill(buffer.span(), 1);
    }
}

BOOST_AUTO_TEST_CASE(buffers_larger_than_memory_are_refused_with_their_size) {
  const auto says_so = [](const std::bad_alloc& error) {
    return std::string(error.what()) == "no memory for 4611686018427387904 elements of 8 bytes";
  };
  BOOST_CHECK_EXCEPTION(AlignedArray<double>(Index{1} << 62), std::bad_alloc, says_so);
  BOOST_CHECK_THROW(AlignedArray<float>((Index{1} << 61) - 1), std::bad_alloc);  // with its last cache line
  BOOST_CHECK_THROW(AlignedArray<float>(-1), std::bad_alloc);
}

BOOST_AUTO_TEST_CASE(products_of_extents_do_not_wrap) {
  const auto count = [](std::vector<Index> extents) { return element_count(extents); };
  BOOST_TEST(count({}) == 1);
  BOOST_TEST(count({3, 4, 5, 6}) == 360);
  BOOST_TEST(count({Index{1} << 62, 0, Index{1} << 62}) == 0);
  BOOST_TEST(count({Index{1} << 28, Index{1} << 28}) == Index{1} << 56);
  const auto says_so = [](const ValueError& error) {
    return std::string(error.what()) == "an array of 4294967296x4294967296 elements is larger than any memory";
  };
  BOOST_CHECK_EXCEPTION(count({Index{1} << 32, Index{1} << 32}), ValueError, says_so);
  BOOST_CHECK_THROW(Shape({Index{1} << 31, Index{1} << 31, 2}), ValueError);
}

BOOST_AUTO_TEST_CASE(a_pinned_buffer_stays_allocated_and_others_do_not_take_its_place) {
  constexpr Index kSize = 1000;
  double* left = nullptr;
  {
    AlignedArray<double> buffer(kSize);
    left = buffer.data();
    pin(left + 10, 8);
  }
  std::vector<AlignedArray<double>> later;
  for (int i = 0; i < 100; ++i) {
    later.emplace_back(kSize);
    BOOST_TEST((later.back().data() + kSize <= left || left + kSize <= later.back().data()));
  }
  left[10] = 7;  // as the library does
  for (const AlignedArray<double>& buffer : later) BOOST_TEST(buffer[10] == 0);
}

BOOST_AUTO_TEST_CASE(bytes_are_pinned_where_they_overlap_with_pinned_ones) {
  AlignedArray<double> buffer(30);
  const double* const at = buffer.data();
  BOOST_TEST(!pinned(at, 240));
  pin(at + 10, 80);
  BOOST_TEST(pinned(at, 240));
  BOOST_TEST(pinned(at + 19, 8));
  BOOST_TEST(!pinned(at, 80));
  BOOST_TEST(!pinned(at + 20, 80));
  pin(at, 0);
  BOOST_TEST(!pinned(at, 80));
}

BOOST_AUTO_TEST_SUITE_END()
