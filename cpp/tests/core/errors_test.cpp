// Words of messages: numbers are written in no locale, with the digits that tell them apart.
#include "pdnn/core/errors.hpp"

#include <boost/test/unit_test.hpp>
#include <limits>
#include <locale>

using pdnn::message;

BOOST_AUTO_TEST_SUITE(errors)

BOOST_AUTO_TEST_CASE(numbers_have_the_digits_that_tell_them_apart) {
  BOOST_TEST(message("a", ' ', 1, " ", -2L, " ", std::size_t{3}, " ", true, std::string(" b")) == "a 1 -2 3 1 b");
  BOOST_TEST(message(0.5, " ", 0.1, " ", 1.0 / 255, " ", 100000.0, " ", 1e-4) ==
             "0.5 0.1 0.00392156862745098 100000 0.0001");
  BOOST_TEST(message(0.1F, " ", 2.9999998F, " ", 1.0F / 255) == "0.1 2.9999998 0.003921569");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  BOOST_TEST(message(-kInfinity, " ", std::numeric_limits<float>::quiet_NaN()) == "-inf nan");
}

BOOST_AUTO_TEST_CASE(a_locale_of_the_program_changes_no_word) {
  struct Grouped : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouped));
  const std::string words = message("/proc/", 1234567, "/stat ", 1234.5);
  std::locale::global(before);
  BOOST_TEST(words == "/proc/1234567/stat 1234.5");
}

BOOST_AUTO_TEST_SUITE_END()
