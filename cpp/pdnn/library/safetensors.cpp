#include "pdnn/library/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "pdnn/library/json.hpp"

static_assert(std::endian::native == std::endian::little, "model files hold little-endian numbers");

namespace pdnn::library {

namespace {

constexpr std::uint64_t kMostHeader = 100'000'000;  // bytes, the format's own limit

std::string listed(const std::vector<Index>& numbers) {
  std::string all = "[";
  for (const Index number : numbers) all += (all.size() > 1 ? ", " : "") + std::to_string(number);
  return all + "]";
}

std::vector<Index> read_numbers(const std::string& name, const Json* json) {
  const auto* const array = json ? json->as<Json::Array>() : nullptr;
  std::vector<Index> all;
  for (const Json& number : existing(array, name, " lacks its shape or its place")) {
    all.push_back(as_index(name, number));
    require(all.back() >= 0, name, ": got ", all.back(), ", expected numbers from 0");
  }
  return all;
}

void read_header(StoredFile& file, const Json& header, std::span<const std::byte> data) {
  std::vector<std::pair<Index, Index>> places;
  for (const auto& [name, entry] : existing(header.as<Json::Object>(), "its header is no object")) {
    if (name == "__metadata__") {
      for (const auto& [key, text] : existing(entry.as<Json::Object>(), "its metadata are no object"))
        file.metadata.emplace_back(key, existing(text.as<std::string>(), "its metadata ", key, " are no string"));
      continue;
    }
    const std::string& dtype = existing(entry.find_as<std::string>("dtype"), name, " lacks its dtype");
    StoredArray array{name, dtype, read_numbers(name, entry.find("shape")), {}};
    require(array.dtype == "F32" || array.dtype == "F64", name, " has dtype ", array.dtype, ", expected F32 or F64");
    const std::vector<Index> at = read_numbers(name, entry.find("data_offsets"));
    const Index width = array.dtype == "F32" ? 4 : 8;
    require(at.size() == 2 && at[0] <= at[1] && at[1] <= std::ssize(data) &&
                element_count(array.shape) * width == at[1] - at[0],
            name, " does not lie where its shape says");
    array.data = slice(data, at[0], at[1] - at[0]);
    places.emplace_back(at[0], at[1]);
    file.arrays.push_back(std::move(array));
  }
  std::ranges::sort(places);
  Index end = 0;
  for (const auto& [begin, stop] : places) {
    require(begin == end, "an array starts at byte ", begin, " of the data, expected ", end);
    end = stop;
  }
  require(end == std::ssize(data), "it has ", data.size(), " bytes of data, expected ", end);
}

/// Whether all of it is in the file; otherwise errno says why.
bool write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

/// Writes a file beside it, which takes its place and its permissions once all is on the disk. A link stays, and what
/// it names is replaced; a device or a pipe is written to as it is. Returns 0, or the number of what went wrong.
int replace_file(const std::string& path, std::span<const std::span<const std::byte>> pieces) {
  std::error_code unknown;
  std::filesystem::path target = std::filesystem::weakly_canonical(path, unknown);
  if (unknown) target = path;
  struct stat former{};
  const bool there = stat(target.c_str(), &former) == 0, whole = !there || S_ISREG(former.st_mode);
  std::string part = target.string();
  if (whole) part += ".part" + std::to_string(std::random_device()());
  const int file = open(part.c_str(), O_WRONLY | O_CLOEXEC | (whole ? O_CREAT | O_EXCL : 0), 0666);
  if (file < 0) return errno;
  const auto written = [&](std::span<const std::byte> piece) { return write_all(file, piece); };
  bool done = std::ranges::all_of(pieces, written);
  if (whole) done = done && (!there || fchmod(file, former.st_mode & 07777) == 0) && fsync(file) == 0;
  int error = done ? 0 : errno;
  if (close(file) != 0 && error == 0) error = errno;
  if (whole && error == 0 && std::rename(part.c_str(), target.c_str()) != 0) error = errno;
  if (whole && error != 0) unlink(part.c_str());
  return error;
}

}  // namespace

const StoredArray* StoredFile::find(const std::string& name) const {
  const auto found = std::ranges::find(arrays, name, &StoredArray::name);
  return found == arrays.end() ? nullptr : &*found;
}

void write_safetensors(const std::string& path, const std::vector<StoredArray>& arrays,
                       const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::string header = "{\"__metadata__\": {";
  for (const auto& [key, text] : metadata)
    header += (header.back() == '{' ? "" : ", ") + json_string(key) + ": " + json_string(text);
  header += '}';
  std::size_t end = 0;
  for (const StoredArray& array : arrays) {
    const std::size_t begin = end;
    end += array.data.size();
    header += ", " + json_string(array.name) + ": {\"dtype\": \"" + array.dtype +
              "\", \"shape\": " + listed(array.shape) + ", \"data_offsets\": [" + std::to_string(begin) + ", " +
              std::to_string(end) + "]}";
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');  // data start aligned

  const std::uint64_t length = header.size();
  std::vector<std::span<const std::byte>> pieces{std::as_bytes(std::span(&length, 1)),
                                                 std::as_bytes(std::span(header))};
  for (const StoredArray& array : arrays) pieces.emplace_back(array.data);
  if (const int error = replace_file(path, pieces); error != 0)
    throw std::runtime_error(message(path, ": could not be written: ", std::generic_category().message(error)));
}

StoredFile read_safetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  std::error_code error;
  if (!file || size < 0 || std::filesystem::is_directory(path, error))
    throw std::runtime_error(message(path, ": there is no such file, or it cannot be read"));
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  file.seekg(0).read(reinterpret_cast<char*>(bytes.data()), size);
  if (!file) throw std::runtime_error(message(path, ": could not be read"));
  return parse_safetensors(path, std::move(bytes));
}

StoredFile parse_safetensors(const std::string& name, std::vector<std::byte> bytes) {
  try {
    StoredFile file{std::move(bytes), {}, {}};
    const std::span<const std::byte> all(file.bytes);
    std::uint64_t length = 0;
    require(all.size() >= sizeof length, all.size(), " bytes are too few");
    std::memcpy(&length, all.data(), sizeof length);
    require(length <= std::min<std::uint64_t>(kMostHeader, all.size() - sizeof length), all.size(),
            " bytes cannot hold a header of ", length);
    const std::span<const std::byte> header = all.subspan(sizeof length, length);
    const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
    read_header(file, Json::parse("its header", text), all.subspan(sizeof length + length));
    return file;
  } catch (const ValueError& error) {
    throw std::runtime_error(message(name, ": not a whole safetensors file: ", error.what()));
  }
}

}  // namespace pdnn::library
