// Which instruction set runs, and how fast its arithmetic is.
#include "pdnn/kernels/isa.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstdlib>
#include <tuple>

#include "pdnn/core/errors.hpp"
#include "support.hpp"

namespace pdnn::kernels::testing {
namespace {

bool is_intel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

/// Whether all of a table, or of a part of one, are functions: a compiler does not tell of one that was not entered.
template <class Kernels>
bool is_whole(const Kernels& kernels) {
  using Entries = std::array<std::uintptr_t, sizeof(Kernels) / sizeof(std::uintptr_t)>;
  return std::ranges::count(std::bit_cast<Entries>(kernels), std::uintptr_t{0}) == 0;
}

BOOST_AUTO_TEST_SUITE(instruction_sets)

BOOST_AUTO_TEST_CASE(every_kernel_is_entered_into_every_table) {
  for (const Isa isa : kIsas) {  // this processor need not have it
    const Tables& all = tables(isa);
    BOOST_TEST(is_whole(all.floats), name(isa));
    BOOST_TEST(is_whole(all.doubles), name(isa));
    BOOST_TEST(is_whole<ProductKernels<float>>(all.bfloat16), name(isa));
    BOOST_TEST(is_whole<ConvolutionKernels<float>>(all.bfloat16), name(isa));
    RoundingKernels<float> rounding = all.bfloat16;
    rounding.as_floats = true;  // no function
    BOOST_TEST(is_whole(rounding), name(isa));
  }
}

BOOST_AUTO_TEST_CASE(the_best_supported_one_runs_unless_another_is_forced) {
  const char* forced = std::getenv("PDNN_ISA");
  std::vector<Isa> isas = supported_isas();
  if (isas.back() == Isa::v4_amx) isas.pop_back();                 // which only a wish takes
  if (isas.back() == Isa::v4_bf16 && is_intel()) isas.pop_back();  // which is slow there
  BOOST_TEST(name(active_isa()) == (forced ? forced : name(isas.back())));
  BOOST_TEST(name(choose_isa("")) == name(isas.back()));
  BOOST_TEST(name(default_isa()) == name(isas.back()));
  for (const Isa isa : supported_isas()) BOOST_TEST(name(choose_isa(name(isa))) == name(isa));
}

BOOST_AUTO_TEST_CASE(the_generic_one_is_always_there) { BOOST_TEST(supported(Isa::v2)); }

BOOST_AUTO_TEST_CASE(an_unknown_name_is_refused_with_those_that_run) {
  BOOST_CHECK_EXCEPTION(choose_isa("avx9"), ValueError, [](const ValueError& error) {
    const std::string words = error.what();
    return words.find("avx9") != std::string::npos && words.find("v2") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(the_measured_peak_is_plausible_and_repeats) {
  double least = 0, most = 0;
  for (int attempt = 0; attempt < 10 && most >= 3 * least; ++attempt) {  // a busy machine disturbs some
    const double first = measure_peak<float>(0.02), second = measure_peak<float>(0.02);
    std::tie(least, most) = std::minmax(first, second);
  }
  BOOST_TEST(least > 1e8);
  BOOST_TEST(most < 3 * least);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn::kernels::testing
