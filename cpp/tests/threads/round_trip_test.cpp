// The round trip between two threads takes some time, and not forever.
#include "pdnn/threads/round_trip.hpp"

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(threads_round_trip)

BOOST_AUTO_TEST_CASE(a_round_trip_takes_some_time) {
  const double seconds = pdnn::threads::measure_round_trip();
  BOOST_TEST(seconds > 1e-9);
  BOOST_TEST(seconds < 1);
}

BOOST_AUTO_TEST_SUITE_END()
