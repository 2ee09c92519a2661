#pragma once
/// Spec: which codec is wanted: a string that spells one of the core's, or one from outside.
#include <memory>
#include <string>
#include <utility>

#include "pdnn/codec/codec.hpp"

namespace pdnn::codec {

/// A codec from outside: makes as many of it as are wanted.
class Outside {
 public:
  Outside() = default;
  virtual ~Outside() = default;
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

  virtual std::unique_ptr<Codec<float>> make(float width) const = 0;
  virtual std::unique_ptr<Codec<double>> make(double width) const = 0;
  virtual bool wants_feedback() const = 0;
};

struct Spec {
  std::string words;                         ///< what spells it, or the name of one from outside; empty: none
  std::shared_ptr<const Outside> outside{};  ///< null: one of the core's

  Spec() = default;
  Spec(std::string spelled) : words(std::move(spelled)) {}  // NOLINT: strings are specs
  Spec(const char* spelled) : words(spelled) {}             // NOLINT: strings are specs
  Spec(std::string name, std::shared_ptr<const Outside> one) : words(std::move(name)), outside(std::move(one)) {}
  bool empty() const { return words.empty(); }
};

}  // namespace pdnn::codec
