#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/data/tokens/token_dataset.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

namespace fs = std::filesystem;

void put(const TempDir& dir, const std::string& name, std::string_view text) {
  fs::create_directories(fs::path(dir.file(name)).parent_path());
  dir.write(name, text);
}

// Returns tokens as text, with '|' between files.
std::string text_of(const std::shared_ptr<const TokenStream>& stream) {
  if (stream == nullptr) return "(none)";
  std::vector<int32_t> tokens(static_cast<size_t>(stream->size()));
  stream->read(0, tokens);
  std::string text;
  for (const int32_t token : tokens) text += token == 0 ? '|' : static_cast<char>(token);
  return text;
}

DatasetSplits open_text(const std::string& path, double val_fraction = 0) {
  return open_dataset({.path = path, .format = DataFormat::kText, .val_fraction = val_fraction});
}

}  // namespace

TEST_CASE("a folder is joined by relative path with one NUL between files", "[data]") {
  const TempDir dir;
  put(dir, "b.txt", "bee");
  put(dir, "a/z.txt", "zed");
  put(dir, "a/a/deep.h", "deep");
  put(dir, "a.txt", "eh");
  for (const std::string& path : {dir.path().string(), dir.path().string() + "/"}) {
    const DatasetSplits splits = open_text(path);
    // In the order of names, '.' precedes '/'.
    CHECK(text_of(splits.train) == "eh|deep|zed|bee");
    CHECK(splits.val == nullptr);
    CHECK(splits.train->vocab_bound() == 256);
    CHECK(splits.is_text());
  }
}

TEST_CASE("any window of a folder reads the same as the whole", "[data]") {
  const TempDir dir;
  for (const char* name : {"1", "2", "3", "4", "5"}) {
    put(dir, name,
        std::string(static_cast<size_t>(name[0] - '0'), static_cast<char>(name[0] + 48)));
  }
  const auto stream = open_text(dir.path()).train;
  const int64_t size = stream->size();
  REQUIRE(size == 1 + 2 + 3 + 4 + 5 + 4);
  std::vector<int32_t> whole(static_cast<size_t>(size));
  stream->read(0, whole);
  for (int64_t begin = 0; begin <= size; ++begin) {
    for (int64_t end = begin; end <= size; ++end) {
      std::vector<int32_t> part(static_cast<size_t>(end - begin), -5);
      stream->read(begin, part);
      REQUIRE(part == std::vector<int32_t>(whole.begin() + begin, whole.begin() + end));
    }
  }
  std::vector<int32_t> one(1);
  CHECK_THROWS_AS(stream->read(-1, one), InternalError);
  CHECK_THROWS_AS(stream->read(size, one), InternalError);
  CHECK_THROWS_AS(stream->read(INT64_MAX, one), InternalError);
}

TEST_CASE("bytes above 127 are tokens above 127", "[data]") {
  const TempDir dir;
  const auto stream = open_text(dir.write("x", "\xff\x80\x01")).train;
  std::vector<int32_t> tokens(3);
  stream->read(0, tokens);
  CHECK(tokens == std::vector<int32_t>{255, 128, 1});
}

TEST_CASE("what is not text is skipped and counted", "[data]") {
  const TempDir dir;
  put(dir, "good.txt", "good");
  put(dir, "early.o", std::string("ELF\0x", 5));
  // The NUL is after the first 8 KiB, but the file counts as binary.
  put(dir, "late.o", std::string(100000, 'x') + '\0');
  put(dir, "empty.txt", "");
  put(dir, ".git/config", "hidden");
  put(dir, ".hidden", "hidden");
  fs::create_symlink("nowhere", dir.file("dangling"));
  REQUIRE(::mkfifo(dir.file("pipe").c_str(), 0600) == 0);  // opening a pipe would block
  const DatasetSplits splits = open_text(dir.path());
  CHECK(text_of(splits.train) == "good");
  CHECK(contains(splits.summary, "1 file"));
  CHECK(contains(splits.summary, "2 binary"));
  CHECK(contains(splits.summary, "1 unreadable"));
  CHECK(contains(splits.summary, "1 empty"));
}

TEST_CASE("links make neither loops nor repetitions", "[data]") {
  const TempDir dir;
  put(dir, "folder/a.txt", "aaa");
  fs::create_directory_symlink(dir.path(), dir.file("folder/up"));
  fs::create_hard_link(dir.file("folder/a.txt"), dir.file("folder/second_name.txt"));
  fs::create_symlink("a.txt", dir.file("folder/third_name.txt"));
  const TempDir elsewhere;
  fs::create_symlink(elsewhere.write("e.txt", "else"), dir.file("linked.txt"));
  const DatasetSplits splits = open_text(dir.path());
  CHECK(text_of(splits.train) == "aaa|else");
  CHECK(contains(splits.summary, "2 repeated"));
  // The given folder itself may be a symbolic link.
  fs::create_directory_symlink(dir.path(), elsewhere.file("link"));
  CHECK(text_of(open_text(elsewhere.file("link")).train) == "aaa|else");
}

TEST_CASE("validation is whole files, near the wanted fraction, and stable", "[data]") {
  const TempDir dir;
  for (int i = 0; i < 400; ++i) put(dir, "f" + std::to_string(i), "text" + std::to_string(i));
  const auto names = [](const std::string& text) {
    std::set<std::string> parts;
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find('|', at), text.size());
      parts.insert(text.substr(at, end - at));
      at = end + 1;
    }
    return parts;
  };
  const DatasetSplits before = open_text(dir.path(), 0.25);
  const auto train = names(text_of(before.train));
  const auto val = names(text_of(before.val));
  CHECK(train.size() + val.size() == 400);
  for (const std::string& name : val) REQUIRE(train.count(name) == 0);
  // The binomial count has mean 100 and standard deviation 8.7; the limit is five deviations.
  CHECK((val.size() > 56 && val.size() < 144));
  put(dir, "another", "another");
  const auto later = names(text_of(open_text(dir.path(), 0.25).val));
  for (const std::string& name : val) CHECK(later.count(name) == 1);
  // A larger validation fraction includes the files of a smaller fraction.
  const auto more = names(text_of(open_text(dir.path(), 0.5).val));
  for (const std::string& name : val) CHECK(more.count(name) == 1);
}

TEST_CASE("two files give one for training and one for validation", "[data]") {
  const TempDir dir;
  put(dir, "a", "first");
  put(dir, "b", "second");
  for (const double fraction : {0.001, 0.5, 0.999}) {
    const DatasetSplits splits = open_text(dir.path(), fraction);
    CHECK(splits.train->size() + splits.val->size() == 11);
  }
}

TEST_CASE("one file keeps its end for validation, from the start of a line", "[data]") {
  const TempDir dir;
  const std::string path = dir.write("x.txt", "0123\n5678\nabcd\nfghi\n");
  const auto parts = [&](double fraction) {
    const DatasetSplits splits = open_text(path, fraction);
    return text_of(splits.train) + "^" + text_of(splits.val);
  };
  CHECK(parts(0) == "0123\n5678\nabcd\nfghi\n^(none)");
  // The split at byte 15 is at the start of a line.
  CHECK(parts(0.25) == "0123\n5678\nabcd\n^fghi\n");
  CHECK(parts(0.30) == "0123\n5678\nabcd\n^fghi\n");  // the split at byte 14 is within a line
  CHECK(parts(0.10) == "0123\n5678\nabcd\n^fghi\n");  // no line starts in the last two bytes
  CHECK(parts(0.999) == "0123\n^5678\nabcd\nfghi\n");
  // A folder with one file is split like a file.
  CHECK(text_of(open_text(dir.path(), 0.25).val) == "fghi\n");
  // A text without line ends is split at the exact fraction.
  const DatasetSplits one_line = open_text(dir.write("y.txt", "0123456789"), 0.2);
  CHECK(text_of(one_line.train) == "01234567");
  CHECK(text_of(one_line.val) == "89");
}

TEST_CASE("a named file that is not text is an error with the position", "[data]") {
  const TempDir dir;
  const std::string path = dir.write("x", std::string(9000, 'a') + '\0' + "b");
  const std::string message = message_of<DataError>([&] { open_text(path); });
  CHECK(contains(message, path));
  CHECK(contains(message, "position 9000"));
}

TEST_CASE("missing, empty and unusable paths are told apart", "[data]") {
  const TempDir dir;
  CHECK_THROWS_AS(open_text(dir.file("nothing")), MissingInputError);
  CHECK_THROWS_AS(open_text(dir.write("empty", "")), DataError);
  CHECK_THROWS_AS(open_text(dir.path()), DataError);  // the folder's only file is empty
  CHECK_THROWS_AS(open_text(dir.file("*.txt")), MissingInputError);
  REQUIRE(::mkfifo(dir.file("pipe").c_str(), 0600) == 0);
  CHECK(contains(message_of<DataError>([&] { open_text(dir.file("pipe")); }), "regular"));
}

TEST_CASE("options out of range are configuration errors", "[data]") {
  const TempDir dir;
  const std::string path = dir.write("x", "text");
  CHECK_THROWS_AS(open_text(path, -0.1), ConfigError);
  CHECK_THROWS_AS(open_text(path, 1), ConfigError);
  CHECK_THROWS_AS(open_text(path, std::nan("")), ConfigError);
  CHECK_THROWS_AS(open_dataset({.path = path, .vocab_size = 255}), ConfigError);
  CHECK_THROWS_AS(open_dataset({.path = path, .vocab_size = -1}), ConfigError);
  CHECK_NOTHROW(open_dataset({.path = path, .val_fraction = 0, .vocab_size = 256}));
}

TEST_CASE("a pattern names the files to join", "[data]") {
  const TempDir dir;
  put(dir, "b.txt", "bee");
  put(dir, "a.txt", "eh");
  put(dir, "c.md", "sea");
  fs::create_directory(dir.file("d.txt"));
  CHECK(text_of(open_text(dir.file("*.txt")).train) == "eh|bee");
}

TEST_CASE("the fingerprint follows names and sizes, not the folder's place", "[data]") {
  const TempDir one, two;
  put(one, "a", "text");
  put(one, "b", "text");
  put(two, "b", "text");
  put(two, "a", "text");
  const uint64_t fingerprint = open_text(one.path()).fingerprint;
  CHECK(open_text(two.path()).fingerprint == fingerprint);
  put(two, "b", "longer");
  CHECK(open_text(two.path()).fingerprint != fingerprint);
  put(two, "b", "text");
  put(two, "c", "text");
  CHECK(open_text(two.path()).fingerprint != fingerprint);
}

TEST_CASE("the checksum of text follows every byte of it, and nothing else", "[data]") {
  const TempDir one, two;
  std::string text(3'000'000, 'x');  // longer than the buffer of one read
  put(one, "a", text);
  put(two, "a", text);
  const uint64_t checksum = open_text(one.path()).checksum;
  CHECK(open_text(two.path()).checksum == checksum);
  CHECK(open_text(two.file("a"), 0.1).checksum == checksum);
  for (const size_t place : {size_t{0}, size_t{9000}, size_t{1} << 20, text.size() - 1}) {
    std::string other = text;
    other[place] = 'y';
    put(two, "a", other);
    CHECK(open_text(two.path()).checksum != checksum);
    CHECK(open_text(two.path()).fingerprint == open_text(one.path()).fingerprint);
  }
  put(two, "a", text.substr(0, 1'000'000));
  put(two, "b", text.substr(1'000'000));
  CHECK(open_text(two.path()).checksum != checksum);
}

TEST_CASE("whoever is told of the reading can end it", "[data]") {
  const TempDir dir;
  put(dir, "a.txt", std::string(3'000'000, 'x'));
  int calls = 0;
  const auto read = [&](int limit) {
    open_dataset({.path = dir.path(), .on_reading = [&, limit](const std::string& file) {
                    CHECK(file == dir.file("a.txt"));
                    if (++calls == limit) throw ErrorWithCode<ExitCode::kInterrupted>("enough");
                  }});
  };
  read(100);
  CHECK(calls == 3);
  calls = 0;
  CHECK_THROWS_AS(read(2), ErrorWithCode<ExitCode::kInterrupted>);
  CHECK(calls == 2);
}

}  // namespace shale
