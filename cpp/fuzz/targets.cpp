// What is fuzzed in C++: readers of bytes from outside, each a function of any bytes. It takes them, or refuses them by
// a ValueError; anything else is a defect, for which the sanitizers look.
//   pdnn_fuzz TARGET -runs=0 FOLDER...      reads the files of these folders
//   pdnn_fuzz TARGET FOLDER...              under libFuzzer (preset "libfuzzer"): goes on from them, without an end
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>

#include "pdnn/codec/make_codec.hpp"
#include "pdnn/comm/missing.hpp"
#include "pdnn/core/errors.hpp"
#include "pdnn/engine/custom_schedule.hpp"
#include "pdnn/pdnn.hpp"

using namespace pdnn;

namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr Index kLength = 37;
const std::vector<std::vector<Index>> kShapes{{5, 7}, {2}};  // of which "powersgd" sees one matrix

// ---- codes of another rank: the first byte says by which codec, into what and how

template <class T>
void decode_values(const char* spec, Bytes code, codec::Into into, bool matrix) {
  const auto made = codec::make_codec<T>(spec, kLength, codec::matrices_in(matrix ? kShapes : decltype(kShapes){}));
  std::vector<T> values(kLength);
  made->decode(code, values, into);
}

void decode(Bytes input) {
  constexpr std::array kCodecs{"fp16", "bf16", "int8", "int4", "1bit", "topk:0.3", "powersgd:1"};
  constexpr std::array kInto{codec::Into::store, codec::Into::add, codec::Into::subtract};
  if (input.empty()) return;
  std::size_t choice = input[0];
  const auto one_of = [&](std::size_t count) { return std::exchange(choice, choice / count) % count; };
  const char* const spec = kCodecs[one_of(kCodecs.size())];
  const codec::Into into = kInto[one_of(kInto.size())];
  const bool wide = one_of(2) == 1, matrix = one_of(2) == 1;
  const std::vector<std::uint8_t> code(input.begin() + 1, input.end());  // whose end the sanitizer knows
  wide ? decode_values<double>(spec, code, into, matrix) : decode_values<float>(spec, code, into, matrix);
}

// ---- spellings of codecs

void words(Bytes input) {
  const codec::Spec spec(std::string(input.begin(), input.end()));
  const auto made = codec::make_codec<float>(spec, kLength, codec::matrices_in(kShapes));
  std::vector<float> values(kLength);
  std::iota(values.begin(), values.end(), -5.0F);
  std::vector<std::uint8_t> code(static_cast<std::size_t>(made->bytes(kLength)));
  made->encode(values, code);
  made->decode(code, values);
}

// ---- schedules of a user's own: three bytes a pass, of which the highest stand for numbers that lie

void schedule(Bytes input) {
  using engine::Do;
  constexpr std::size_t kRanks = 3;
  constexpr std::uint8_t kLie = 250, kLast = 255;
  const auto number = [](std::uint8_t byte, Index most) { return byte < kLie ? Index{byte} : most - (kLast - byte); };
  std::vector<engine::Program> passes(kRanks);
  int chunks = 1;
  for (; input.size() >= 3; input = input.subspan(3)) {
    const int chunk = static_cast<int>(number(input[2], std::numeric_limits<int>::max()));
    chunks = std::max(chunks, chunk < kLie ? chunk + 1 : chunk);
    passes[input[0] / 2 % kRanks].push_back({.what = input[0] % 2 == 0 ? Do::forward : Do::backward,
                                             .micro = number(input[1], std::numeric_limits<Index>::max()),
                                             .chunk = chunk});
  }
  std::erase_if(passes, [](const engine::Program& program) { return program.empty(); });
  const std::vector<engine::Program> programs = engine::with_messages(passes);
  const std::vector<double> second(programs.size() * static_cast<std::size_t>(chunks), 1.0);
  try {
    engine::simulate(programs, {.forward = second, .backward = second});
  } catch (const ValueError& error) {
    throw std::logic_error(message("a schedule that was taken does not work out: ", error.what()));
  }
}

// ---- records of a job of two ranks, each half of the bytes behind the first words of its file

class Records {
 public:
  Records() : folder_(std::filesystem::temp_directory_path() / message("pdnn-fuzz-", ::getpid())) {
    std::filesystem::create_directory(folder_);
    for (int rank = 0; rank < 2; ++rank) comm::LogMemory::make(rank, 2, path(rank));
  }
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;
  ~Records() { std::filesystem::remove_all(folder_); }

  void read(Bytes input) {
    comm::Logs logs;
    for (const int rank : {0, 1}) {
      const Bytes half = rank == 0 ? input.first(input.size() / 2) : input.subspan(input.size() / 2);
      write(rank, half.first(std::min(half.size(), sizeof(comm::Log) - kBehind)));
      if (auto log = comm::LogMemory::open(path(rank))) logs.push_back(std::move(log));
    }
    comm::ranks_of_job(logs);
    comm::waits_of_job(logs);
    for (const auto& log : logs) {
      comm::who_is_missing(logs, (*log)->rank, (*log)->waits, true);
      comm::calls_side_by_side(logs, (*log)->rank, (*log)->waits);
    }
  }

 private:
  static constexpr std::size_t kBehind = sizeof(comm::Log::layout);

  std::string path(int rank) const { return folder_ / std::to_string(rank); }
  void write(int rank, Bytes words) const {
    const int file = ::open(path(rank).c_str(), O_RDWR | O_CLOEXEC);  // NOLINT: as open() is declared
    const bool done = ::ftruncate(file, kBehind) == 0 && ::pwrite(file, words.data(), words.size(), kBehind) >= 0 &&
                      ::ftruncate(file, sizeof(comm::Log)) == 0;
    ::close(file);
    if (!done) std::abort();
  }

  std::filesystem::path folder_;
};

void record(Bytes input) {
  static Records records;
  records.read(input);
}

// ---- model files, as Sequential::load finds them on disk

class ModelFile {
 public:
  ModelFile() : path_(std::filesystem::temp_directory_path() / message("pdnn-fuzz-model-", ::getpid())) {}
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;
  ~ModelFile() { std::filesystem::remove(path_); }

  template <class T>
  void load(Bytes input) const {
    const std::string bytes(input.begin(), input.end());
    if (!(std::ofstream(path_, std::ios::binary) << bytes << std::flush)) std::abort();
    std::optional<Sequential<T>> model;
    try {
      model = Sequential<T>::load(path_);
    } catch (const std::runtime_error&) {
      return;  // refused, as documented
    }
    if (Sequential<T>::from_json(model->json()).parameters().size() != model->parameters().size())
      throw std::logic_error("a model that was taken is not what its description says");
  }

 private:
  std::filesystem::path path_;
};

void model(Bytes input) {
  static const ModelFile file;
  file.load<float>(input);
  file.load<double>(input);
}

// ---- which of them

constexpr std::pair<std::string_view, void (*)(Bytes)> kTargets[] = {
    {"decode", decode}, {"words", words}, {"schedule", schedule}, {"record", record}, {"model", model}};
void (*chosen)(Bytes) = nullptr;

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): libFuzzer's names
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// NOLINTEND(readability-identifier-naming)

/// Takes the first argument, a target, away from libFuzzer.
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  const std::string_view wanted = *count > 1 ? (*arguments)[1] : "";
  for (const auto& [name, read] : kTargets)
    if (name == wanted) chosen = read;
  if (!chosen) {
    std::fputs("pdnn_fuzz: the first argument must be one of decode, words, schedule, record, model\n", stderr);
    std::exit(2);
  }
  (*arguments)[1] = (*arguments)[0];
  ++*arguments;
  --*count;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    chosen({data, size});
  } catch (const ValueError&) {  // NOLINT(bugprone-empty-catch): refused, as documented
  }
  return 0;
}
