// Runs the tests.
#define BOOST_TEST_MODULE pdnn
#include <boost/test/unit_test.hpp>
