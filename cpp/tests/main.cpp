// Runs the tests; ends with 77, which ctest takes for "skipped", if PDNN_ISA names a set that this machine lacks.
#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_ALTERNATIVE_INIT_API
#include <boost/test/unit_test.hpp>
#include <cstdio>

#include "pdnn/core/errors.hpp"
#include "pdnn/kernels/isa.hpp"

int main(int argc, char* argv[]) {
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
