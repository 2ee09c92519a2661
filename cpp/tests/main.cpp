// Runs the tests; ends with 77, which ctest takes for "skipped", if PDNN_ISA names a set that this machine lacks.
#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_ALTERNATIVE_INIT_API
#include <array>
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "pdnn/core/errors.hpp"
#include "pdnn/kernels/isa.hpp"

namespace {

/// Boost's stacks for signals have no room for the registers of AMX: the system refuses these beside such a stack, and
/// then such a stack. So there is one with room while Boost begins, and none in the tests.
void keep_boost_from_small_stacks() {
  static std::array<char, 1U << 16U> room;
  stack_t stack{};
  stack.ss_sp = room.data();
  stack.ss_size = room.size();
  if (sigaltstack(&stack, nullptr) != 0 || setenv("BOOST_TEST_USE_ALT_STACK", "no", 1) != 0) std::abort();
}

}  // namespace

int main(int argc, char* argv[]) {
  keep_boost_from_small_stacks();
  try {
    pdnn::kernels::active_isa();
  } catch (const pdnn::ValueError& unsupported) {
    std::puts(unsupported.what());
    return 77;
  }
  const auto begin = [] {
    boost::unit_test::framework::master_test_suite().p_name.value = "pdnn";
    return true;
  };
  return boost::unit_test::unit_test_main(begin, argc, argv);
}
