// Runs a fuzz target without libFuzzer, on the given files or on all files of a folder. Each file
// is used whole, truncated at every byte, and with every bit flipped.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "shale/test/fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;

int64_t runs = 0;

void feed(const std::string& bytes) {
  // Copies the bytes to memory of exactly this size, so that sanitizers detect reads beyond the
  // end.
  const std::vector<uint8_t> input(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(input.data(), input.size());
  ++runs;
}

void feed_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  feed(bytes);
  for (size_t size = 0; size < bytes.size(); ++size) feed(bytes.substr(0, size));
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    feed(flipped);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<fs::path> files;
  for (int i = 1; i < argc; ++i) {
    if (fs::is_directory(argv[i])) {
      for (const auto& entry : fs::directory_iterator(argv[i])) files.push_back(entry.path());
    } else {
      files.emplace_back(argv[i]);
    }
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    try {
      feed_file(file);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: not an error of input: %s\n", file.c_str(), error.what());
      return 1;
    }
  }
  std::printf("%zu files, %lld inputs\n", files.size(), static_cast<long long>(runs));
  return files.empty() ? 1 : 0;
}
