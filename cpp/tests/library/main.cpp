/// The tests of libpdnn, which see nothing but its installed headers.
#define BOOST_TEST_MODULE pdnn_library
#include <boost/test/unit_test.hpp>
