#pragma once
/// Codec: values as fewer bytes. How many is known before anything is encoded; most of what is lost is not.
#include <bit>
#include <string>

#include "pdnn/kernels/coding.hpp"

namespace pdnn::codec {

static_assert(std::endian::native == std::endian::little,
              "encoded numbers are little-endian, and are copied as they are");

using kernels::Into;

/// One way to write values of T as bytes. What it writes depends on the values alone, and on what an object with memory
/// (ErrorFeedback, PowerSgd) was given before. Nothing allocates after construction. Used by one thread at a time.
template <class T>
class Codec {
 public:
  virtual ~Codec() = default;

  /// Bytes that n values become, whatever they are; 0 for none.
  virtual Index bytes(Index n) const = 0;

  /// Writes bytes(values.size()) bytes, or throws ValueError if `out` has another size.
  void encode(std::span<const T> values, std::span<std::uint8_t> out);

  /// Stores as many values as were encoded, or adds or subtracts them. ValueError: `data` has another size than as many
  /// values become, or holds what cannot have been encoded.
  void decode(std::span<const std::uint8_t> data, std::span<T> values, Into into = Into::store);

  /// The string that spells it: "int8".
  virtual std::string spec() const = 0;

 protected:
  Codec() = default;
  Codec(const Codec&) = default;
  Codec& operator=(const Codec&) = default;

 private:
  void check(const char* call, std::size_t got, std::size_t values) const;

  virtual void write(std::span<const T> values, std::uint8_t* out) = 0;
  virtual void read(const std::uint8_t* data, std::span<T> values, Into into) = 0;
};

/// ValueError, with the name of the codec, unless values can be coded in blocks of so many.
void check_block(const std::string& codec, Index block);

}  // namespace pdnn::codec
