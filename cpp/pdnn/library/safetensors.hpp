#pragma once
/// The safetensors layout: a length, a JSON header, raw little-endian data
/// (https://github.com/huggingface/safetensors).
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pdnn/core/types.hpp"

namespace pdnn::library {

struct StoredArray {
  std::string name, dtype;  ///< "F32", "F64"
  std::vector<Index> shape;
  std::span<const std::byte> data;
};

struct StoredFile {
  std::vector<std::byte> bytes;  ///< which the arrays are views of
  std::vector<StoredArray> arrays;
  std::vector<std::pair<std::string, std::string>> metadata;

  /// Null if there is none.
  const StoredArray* find(const std::string& name) const;
};

/// Writes a file, all or nothing. std::runtime_error if that fails.
void write_safetensors(const std::string& path, const std::vector<StoredArray>& arrays,
                       const std::vector<std::pair<std::string, std::string>>& metadata);

/// std::runtime_error if there is no such file, or it is not of the layout: a lying length, a broken header, data that
/// overlap, leave gaps, or do not fill the file.
StoredFile read_safetensors(const std::string& path);

/// The same of what a file holds; `name` begins the messages.
StoredFile parse_safetensors(const std::string& name, std::vector<std::byte> bytes);

}  // namespace pdnn::library
