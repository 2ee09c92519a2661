#include "pdnn/codec/make_codec.hpp"

#include <charconv>

#include "pdnn/codec/half.hpp"
#include "pdnn/codec/integers.hpp"
#include "pdnn/codec/one_bit.hpp"
#include "pdnn/codec/top_k.hpp"
#include "pdnn/core/errors.hpp"

namespace pdnn::codec {

const char* const kSpecs =
    R"("fp16", "bf16", "int8", "int8:256", "int4", "int4:256", "1bit", "1bit:1024", "topk:0.01", "powersgd:2")";

namespace {

/// "topk:0.01" as its name and its number; the number may be missing.
struct Words {
  std::string name;
  bool numbered;
  std::string number;

  explicit Words(const std::string& spec)
      : name(spec.substr(0, spec.find(':'))),
        numbered(name.size() < spec.size()),
        number(numbered ? spec.substr(name.size() + 1) : "") {}

  /// The number, if there is one and nothing behind it; otherwise false.
  template <class Number>
  bool read(Number& to) const {
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), to);
    return numbered && error == std::errc() && end == number.data() + number.size();
  }
};

}  // namespace

template <class T>
std::unique_ptr<Codec<T>> make_codec(const Spec& wanted, Index count, const std::vector<MatrixAt>& matrices) {
  if (wanted.outside) return wanted.outside->make(T{});
  const std::string& spec = wanted.words;
  using Half = kernels::Half;
  const Words words(spec);
  Index block = 0;
  int rank = 0;
  double fraction = 0;
  if (spec == "fp16") return std::make_unique<HalfPrecision<T>>(Half::float16);
  if (spec == "bf16") return std::make_unique<HalfPrecision<T>>(Half::bfloat16);
  if (spec == "int8") return std::make_unique<Integers<T>>(8);
  if (spec == "int4") return std::make_unique<Integers<T>>(4);
  if (spec == "1bit") return std::make_unique<OneBit<T>>();
  if (words.name == "int8" && words.read(block)) return std::make_unique<Integers<T>>(8, block);
  if (words.name == "int4" && words.read(block)) return std::make_unique<Integers<T>>(4, block);
  if (words.name == "1bit" && words.read(block)) return std::make_unique<OneBit<T>>(block);
  if (words.name == "topk" && words.read(fraction)) return std::make_unique<TopK<T>>(fraction);
  if (words.name == "powersgd" && words.read(rank)) return std::make_unique<PowerSgd<T>>(rank, count, matrices);
  throw ValueError(message("codec \"", spec, "\"; expected one of ", kSpecs));
}

std::vector<MatrixAt> matrices_in(const std::vector<std::vector<Index>>& shapes) {
  std::vector<MatrixAt> matrices;
  Index offset = 0;
  for (const std::vector<Index>& shape : shapes) {
    const Index count = element_count(shape);
    if (shape.size() >= 2 && count > 0) matrices.push_back({offset, count / shape.back(), shape.back()});
    offset += count;
  }
  return matrices;
}

bool wants_feedback(const Spec& spec) {
  if (spec.outside) return spec.outside->wants_feedback();
  const std::string name = Words(spec.words).name;
  return name == "int4" || name == "1bit" || name == "topk" || name == "powersgd";
}

bool wants_matrices(const Spec& spec) { return !spec.outside && Words(spec.words).name == "powersgd"; }

template std::unique_ptr<Codec<float>> make_codec(const Spec&, Index, const std::vector<MatrixAt>&);
template std::unique_ptr<Codec<double>> make_codec(const Spec&, Index, const std::vector<MatrixAt>&);

}  // namespace pdnn::codec
