#include "shale/runtime/io/file_maps.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

// Returns the number of this process's mappings of files in a folder.
int64_t mappings_below(const std::string& folder) {
  const std::string maps = test::read_file("/proc/self/maps");
  int64_t count = 0;
  for (size_t at = maps.find(folder); at != maps.npos; at = maps.find(folder, at + 1)) ++count;
  return count;
}

FileMaps::Entry entry_of(const std::string& path) {
  FileMaps files;
  files.add(MappedFile(path));
  return files.entries().front();
}

}  // namespace

TEST_CASE("files are mapped when they are used, and a limited number stays mapped", "[io]") {
  const TempDir dir;
  FileMaps files(3);
  for (char name = 'a'; name < 'k'; ++name) {
    files.add(entry_of(dir.write({name}, std::string(10, name))));
  }
  CHECK(mappings_below(dir.path()) == 0);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < 10; ++i) {
      CHECK(files.map(i)->text() == std::string(10, static_cast<char>('a' + i)));
      CHECK(mappings_below(dir.path()) <= 3);
    }
  }
  CHECK(mappings_below(dir.path()) == 3);
  // A file that is used again and again stays mapped, whatever else is used. This holds once files
  // used before it have been unmapped.
  auto often = files.map(0);
  int changes = 0;
  for (size_t i = 1; i < 10; ++i) {
    files.map(i);
    const auto again = files.map(0);
    changes += again != often ? 1 : 0;
    often = again;
  }
  CHECK(changes <= 1);
}

TEST_CASE("a mapping lasts as long as somebody has it", "[io]") {
  const TempDir dir;
  FileMaps files(1);
  files.add(MappedFile(dir.write("a", "aaaa")));
  files.add(MappedFile(dir.write("b", "bbbb")));
  const auto a = files.map(0), b = files.map(1);
  CHECK(a->text() == "aaaa");
  CHECK(b->text() == "bbbb");
}

TEST_CASE("a file that was changed or replaced is not used", "[io]") {
  const TempDir dir;
  const std::string path = dir.write("x", "1234");
  FileMaps files;
  files.add(entry_of(path));
  const auto error = [&] { return message_of<DataError>([&] { files.map(0); }); };
  dir.write("x", "12345");
  CHECK(contains(error(), path + ": has 5 bytes, expected the file with 4 bytes"));
  dir.write("x", "abcd");
  const auto later = std::filesystem::last_write_time(path) + std::chrono::seconds(1);
  std::filesystem::last_write_time(path, later);
  CHECK(contains(error(), "changed or replaced"));
  std::filesystem::remove(path);
  CHECK_THROWS_AS(files.map(0), MissingInputError);
}

TEST_CASE("threads use more files than stay mapped", "[io]") {
  const TempDir dir;
  FileMaps files(2);
  for (char name = 'a'; name < 'i'; ++name) {
    files.add(entry_of(dir.write({name}, std::string(5000, name))));
  }
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 500; ++i) {
        const size_t file = (i * (t + 1)) % 8;
        const auto map = files.map(file);
        if (map->text().find_first_not_of(static_cast<char>('a' + file)) != std::string::npos) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace shale
