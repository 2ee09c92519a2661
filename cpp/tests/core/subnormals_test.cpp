// Numbers that are too small to be normal: 0 in a scope of SubnormalsAsZero, and nowhere else.
#include "pdnn/core/subnormals.hpp"

#include <boost/test/unit_test.hpp>
#include <limits>

namespace pdnn {
namespace {

/// Whether a subnormal factor is taken as one, and a subnormal product given.
template <class T>
bool kept() {
  const volatile T least = std::numeric_limits<T>::denorm_min(), normal = std::numeric_limits<T>::min();
  const volatile T scaled = least * (1 / std::numeric_limits<T>::epsilon()), half = normal * T(0.5);
  return scaled > 0 && half > 0;
}

BOOST_AUTO_TEST_SUITE(subnormals)

BOOST_AUTO_TEST_CASE(they_are_zero_in_a_scope_and_come_back_after_it) {
  BOOST_TEST((kept<float>() && kept<double>()));
  {
    const SubnormalsAsZero outer;
    BOOST_TEST((!kept<float>() && !kept<double>()));
    {
      const SubnormalsAsZero inner;
    }
    BOOST_TEST((!kept<float>() && !kept<double>()));
  }
  BOOST_TEST((kept<float>() && kept<double>()));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace pdnn
