#pragma once
/// SHA-256 (FIPS 180-4), for fingerprints of models.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pdnn::library {

class Sha256 {
 public:
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  /// 64 hexadecimal digits; nothing may be added any more.
  std::string hex();

 private:
  void take_block(std::span<const std::byte> block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> rest_{};
  std::uint64_t bytes_ = 0;
};

}  // namespace pdnn::library
