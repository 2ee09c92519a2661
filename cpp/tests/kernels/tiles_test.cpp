// The products of tiles: their sums in the order of the instruction, what they load, and that they leave nothing
// behind.
#include <bit>
#include <boost/test/unit_test.hpp>

#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

/// Numbers that bfloat16 has.
std::vector<float> few_digits(Index count, std::uint64_t seed) {
  std::vector<float> values = numbers<float>(count, seed);
  for (float& value : values) value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffff0000U);
  return values;
}

/// What TDPBF16PS adds to `sum` for each 32 numbers, as Intel's manual has it.
float sum_by_steps(Index depth, const float* a, const float* b, Index b_stride) {
  float sum = 0;
  for (Index begin = 0; begin < depth; begin += 32) {
    float both[2] = {0, 0};
    for (Index k = begin; k < std::min(begin + 32, depth); ++k)
      both[k % 2] = std::fma(a[k], b[k * b_stride], both[k % 2]);
    sum += both[0] + both[1];
  }
  return sum;
}

/// Calls action(products) with those of the true unit, if there is one, and of the emulated one.
template <class Action>
void for_each_unit(Action action) {
  if (supported(Isa::v4_amx)) action(tables(Isa::v4_amx).bfloat16);
  if (supported(Isa::v4_bf16)) action(emulated_tiles().products);
}

BOOST_AUTO_TEST_SUITE(tiles)

BOOST_AUTO_TEST_CASE(sums_have_the_order_of_the_instruction) {
  for (const Index depth : {1, 2, 31, 32, 33, 200, 300, 700}) {
    const Index rows = 37, cols = 45;
    const std::vector<float> x = few_digits(rows * depth, 1), w = few_digits(depth * cols, 2);
    std::vector<float> want(rows * cols), got(want.size());
    for (Index r = 0; r < rows; ++r)
      for (Index j = 0; j < cols; ++j)
        want[static_cast<std::size_t>(r * cols + j)] = sum_by_steps(depth, x.data() + r * depth, w.data() + j, cols);
    for_each_unit([&](const ProductKernels<float>& products) {
      products.product_nn({}, {x.data(), rows, depth}, {w.data(), depth, cols}, nullptr, Activation::identity,
                          {got.data(), rows, cols});
      BOOST_TEST(same_bits(want.data(), got.data(), rows * cols), "a depth of " << depth);
    });
  }
}

BOOST_AUTO_TEST_CASE(subnormal_numbers_are_zero) {
  const std::vector<float> x = {0x1p-127F, 1, 0x1p-70F, 0x1p-126F}, w = {1, 0x1p-127F, 0x1p-70F, 1};
  for_each_unit([&](const ProductKernels<float>& products) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      float y = 7;
      products.product_nn({}, {&x[i], 1, 1}, {&w[i], 1, 1}, nullptr, Activation::identity, {&y, 1, 1});
      BOOST_TEST(y == (i == 3 ? 0x1p-126F : 0));
    }
  });
}

// Four registers of sums share two of each factor.
BOOST_AUTO_TEST_CASE(a_multiplication_takes_one_load_and_the_unit_is_released) {
  if (!supported(Isa::v4_bf16)) return;
  const EmulatedTiles unit = emulated_tiles();
  const Index rows = 96, depth = 256, cols = 128;
  const std::vector<float> x = numbers<float>(rows * depth, 1), w = numbers<float>(depth * cols, 2);
  const Matrix<const float> in(x.data(), rows, depth), weight(w.data(), depth, cols);
  std::vector<float> y(rows * cols), dx(rows * depth), dw(depth * cols);
  const Matrix<const float> dy(y.data(), rows, cols);
  const auto check = [&](Index stores) {
    const TileCounts counts = unit.counts();
    BOOST_TEST(!counts.in_use);
    BOOST_TEST(counts.products == rows * depth * cols / (16 * 16 * 32));
    BOOST_TEST(counts.loads == counts.products);
    BOOST_TEST(counts.stores == stores / (16 * 16));
  };
  unit.counts();
  unit.products.product_nn({}, in, weight, nullptr, Activation::relu, {y.data(), rows, cols});
  check(rows * cols);
  unit.products.product_nt({}, dy, weight, Activation::identity, in, {dx.data(), rows, depth});
  check(rows * depth);
  unit.products.product_tn({}, in, dy, {}, false, {dw.data(), depth, cols}, nullptr);
  check(depth * cols);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
