#pragma once
/// A small task of classes: rows drawn at random, and the class that a fixed rule gives them; what errors say.
#include <random>

#include "pdnn/eigen.hpp"

namespace pdnn::tests {

struct Task {
  RowMatrix<float> x;
  Eigen::Matrix<std::int32_t, Eigen::Dynamic, 1> classes;

  explicit Task(Index rows = 64, Index features = 8, unsigned seed = 5) : x(rows, features), classes(rows) {
    std::mt19937 draw(seed);
    for (Index row = 0; row < rows; ++row) {
      for (Index column = 0; column < features; ++column)
        x(row, column) = static_cast<float>(draw() % 2001) / 1000.0F - 1;
      classes(row) = x.row(row).sum() > 0 ? 1 : 0;
    }
  }
  Dataset data() const { return {.x = samples(x), .y = targets(classes)}; }
};

inline Sequential<float> small_network() {
  return Sequential<float>({Linear(8, 12), Tanh(), Linear(12, 2)}, {.seed = 3});
}

/// What f's error says.
template <class Error, class F>
std::string refusal(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace pdnn::tests
