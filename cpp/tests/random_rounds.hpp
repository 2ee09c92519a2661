#pragma once
/// Random tests: as many rounds as are asked for, each from a seed of its own, which a failure names.
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <iostream>
#include <random>

#include "pdnn/core/types.hpp"

namespace pdnn::tests {

/// What a round draws.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : bits_(seed) {}

  /// One of low … high.
  Index operator()(Index low, Index high) {
    return low + static_cast<Index>(bits_() % static_cast<std::uint64_t>(high - low + 1));
  }
  /// True once in `of` times.
  bool once_in(Index of) { return (*this)(1, of) == 1; }
  template <class Value>
  Value one_of(std::initializer_list<Value> values) {
    return values.begin()[(*this)(0, std::ssize(values) - 1)];
  }

 private:
  std::mt19937_64 bits_;
};

/// Calls round(draw) for `usual` rounds, or as many as PDNN_RANDOM_ROUNDS says. Their seeds are PDNN_RANDOM_SEED (or 0)
/// and the numbers after it; they are also printed as rounds begin if the number of rounds was asked for.
template <class Round>
void random_rounds(std::uint64_t usual, Round round) {
  const char *const rounds = std::getenv("PDNN_RANDOM_ROUNDS"), *const first = std::getenv("PDNN_RANDOM_SEED");
  const std::uint64_t begin = first ? std::stoull(first) : 0, end = begin + (rounds ? std::stoull(rounds) : usual);
  for (std::uint64_t seed = begin; seed < end; ++seed) {
    if (rounds) std::cerr << "PDNN_RANDOM_SEED=" << seed << '\n';
    BOOST_TEST_CONTEXT("repeat this round with PDNN_RANDOM_ROUNDS=1 PDNN_RANDOM_SEED=" << seed) {
      Draw draw(seed);
      round(draw);
    }
  }
}

}  // namespace pdnn::tests
