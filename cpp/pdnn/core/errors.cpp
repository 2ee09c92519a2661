#include "pdnn/core/errors.hpp"

#include <array>
#include <charconv>
#include <limits>

namespace pdnn::words {

namespace {

/// As printf's %g where that tells the number from all others, else with as many more digits as do.
template <class Number>
void append_digits(std::string& text, Number number) {
  std::array<char, 32> digits;
  char* const begin = digits.data();
  char* end = begin;
  Number read{};
  for (int precision = 6; precision <= std::numeric_limits<Number>::max_digits10; ++precision) {
    end = std::to_chars(begin, begin + digits.size(), number, std::chars_format::general, precision).ptr;
    if (std::from_chars(begin, end, read); read == number) break;
  }
  text.append(begin, end);
}

}  // namespace

void append(std::string& text, std::int64_t number) { text += std::to_string(number); }
void append(std::string& text, std::uint64_t number) { text += std::to_string(number); }
void append(std::string& text, float number) { append_digits(text, number); }
void append(std::string& text, double number) { append_digits(text, number); }

}  // namespace pdnn::words
