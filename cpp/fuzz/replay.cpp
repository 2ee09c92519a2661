// In place of libFuzzer's main, where the compiler has none: reads the files of some folders, as its -runs=0 does.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

// NOLINTBEGIN(readability-identifier-naming): libFuzzer's names
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// NOLINTEND(readability-identifier-naming)

int main(int count, char** arguments) {
  LLVMFuzzerInitialize(&count, &arguments);
  int inputs = 0;
  for (const std::filesystem::path folder : std::vector(arguments + 1, arguments + count)) {
    if (folder.string().starts_with('-')) continue;  // an option of libFuzzer
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      std::ifstream stream(file.path(), std::ios::binary);
      const std::vector<char> bytes((std::istreambuf_iterator<char>(stream)), {});
      std::puts(file.path().filename().c_str());  // which a sanitizer's report does not name
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++inputs;
    }
  }
  std::printf("%d inputs read\n", inputs);
  return inputs > 0 ? 0 : 1;
}
