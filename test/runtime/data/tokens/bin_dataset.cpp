#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/data/tokens/piece_stream.h"
#include "shale/runtime/data/tokens/token_dataset.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

constexpr int32_t kGpt2 = 20240520, kLlama3 = 20240801, kEval = 20240522;

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> iota(size_t count, T first = 0) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

template <typename T>
std::string shard(const std::vector<T>& tokens) {
  std::vector<int32_t> header(256);
  header[0] = sizeof(T) == 2 ? kGpt2 : kLlama3;
  header[1] = sizeof(T) == 2 ? 1 : 7;
  header[2] = static_cast<int32_t>(tokens.size());
  return bytes_of(header) + bytes_of(tokens);
}

// Overwrites a token of a 16-bit shard in place.
void overwrite_token(const std::string& path, size_t position, uint16_t token) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(1024 + 2 * position));
  file.write(reinterpret_cast<const char*>(&token), sizeof token);
  REQUIRE(file.good());
}

std::vector<int32_t> tokens_of(const std::shared_ptr<const TokenStream>& stream) {
  if (stream == nullptr) return {};
  std::vector<int32_t> tokens(static_cast<size_t>(stream->size()));
  stream->read(0, tokens);
  return tokens;
}

}  // namespace

TEST_CASE("llm.c shards of 16 and 32 bits are read, and bounded by their largest token", "[data]") {
  const TempDir dir;
  const DatasetSplits small = open_dataset(
      {.path = dir.write("a.bin", shard<uint16_t>({50256, 1, 2, 65535})), .val_fraction = 0});
  CHECK(small.format == DataFormat::kLlmc);
  CHECK(tokens_of(small.train) == std::vector<int32_t>{50256, 1, 2, 65535});
  CHECK(small.train->vocab_bound() == 65536);
  const DatasetSplits wide = open_dataset(
      {.path = dir.write("b.bin", shard<uint32_t>({128000, 1, 2})), .val_fraction = 0});
  CHECK(tokens_of(wide.train) == std::vector<int32_t>{128000, 1, 2});
  CHECK(wide.train->vocab_bound() == 128001);
  CHECK_FALSE(wide.is_text());
}

TEST_CASE("shards of a folder are joined by name, and those named val are validation", "[data]") {
  const TempDir dir;
  dir.write("fineweb_train_000002.bin", shard(iota<uint16_t>(5, 20)));
  dir.write("fineweb_val_000000.bin", shard(iota<uint16_t>(4, 90)));
  dir.write("fineweb_train_000001.bin", shard(iota<uint16_t>(5, 10)));
  dir.write("notes.txt", "not a shard");
  std::vector<int32_t> eval_header(256);
  eval_header[0] = kEval;
  dir.write("hellaswag_val.bin", bytes_of(eval_header));
  const DatasetSplits splits = open_dataset({.path = dir.path(), .vocab_size = 100});
  CHECK(splits.format == DataFormat::kLlmc);
  CHECK(tokens_of(splits.train) == std::vector<int32_t>{10, 11, 12, 13, 14, 20, 21, 22, 23, 24});
  CHECK(tokens_of(splits.val) == std::vector<int32_t>{90, 91, 92, 93});
  CHECK(splits.train->vocab_bound() == 100);
  CHECK(contains(splits.summary, "skipped 1 evaluation"));
  const DatasetSplits some =
      open_dataset({.path = dir.file("fineweb_train_*.bin"), .val_fraction = 0.2});
  CHECK(tokens_of(some.val) == std::vector<int32_t>{23, 24});
}

TEST_CASE("without shards for validation the end of all tokens is held out", "[data]") {
  const TempDir dir;
  dir.write("s_0.bin", shard(iota<uint16_t>(10, 0)));
  dir.write("s_1.bin", shard(iota<uint16_t>(4, 10)));
  const DatasetSplits splits = open_dataset({.path = dir.path(), .val_fraction = 0.5});
  CHECK(tokens_of(splits.train) == iota<int32_t>(7, 0));
  CHECK(tokens_of(splits.val) == iota<int32_t>(7, 7));
  // The name of a single file does not choose the split.
  const DatasetSplits one = open_dataset(
      {.path = dir.write("only_val.bin", shard(iota<uint16_t>(10))), .val_fraction = 0.1});
  CHECK(one.train->size() == 9);
  CHECK(one.val->size() == 1);
}

TEST_CASE("a folder with nothing but validation shards is an error", "[data]") {
  const TempDir dir;
  dir.write("a_val.bin", shard(iota<uint16_t>(10)));
  dir.write("b_val.bin", shard(iota<uint16_t>(10)));
  CHECK(contains(message_of<DataError>([&] { open_dataset({.path = dir.path()}); }), "training"));
}

TEST_CASE("a token outside the vocabulary is named with file, position and bound", "[data]") {
  const TempDir dir;
  // Tests positions inside and after the vectorized blocks, and at both ends.
  const size_t position = GENERATE(0, 1, 1023, 1024, 5000, 5120, 5199);
  auto tokens = iota<uint16_t>(5200);
  for (auto& token : tokens) token = static_cast<uint16_t>(token % 256);
  tokens[position] = 256;
  const std::string path = dir.write("x.bin", shard(tokens));
  const std::string message =
      message_of<DataError>([&] { open_dataset({.path = path, .vocab_size = 256}); });
  CHECK(contains(message, path));
  CHECK(contains(message, "token 256 "));
  CHECK(contains(message, "position " + std::to_string(position) + ","));
  CHECK_NOTHROW(open_dataset({.path = path, .vocab_size = 257}));

  // A small file is checked as a whole when opened, and again when read.
  CHECK_THROWS_AS(open_dataset({.path = path, .vocab_size = 256, .validate = false}), DataError);
  tokens[position] = 0;
  dir.write("x.bin", shard(tokens));
  const auto stream =
      open_dataset({.path = path, .val_fraction = 0, .vocab_size = 256, .validate = false}).train;
  overwrite_token(path, position, 256);
  std::vector<int32_t> one(1);
  CHECK(contains(message_of<DataError>([&] { stream->read(static_cast<int64_t>(position), one); }),
                 "position " + std::to_string(position) + ","));
}

TEST_CASE("a position in the validation part counts from the start of the file", "[data]") {
  const TempDir dir;
  const std::string path = dir.write("x.bin", shard(iota<uint16_t>(100)));
  const auto val =
      open_dataset({.path = path, .val_fraction = 0.1, .vocab_size = 256, .validate = false}).val;
  overwrite_token(path, 95, 1000);
  std::vector<int32_t> all(10);
  CHECK(contains(message_of<DataError>([&] { val->read(0, all); }), "position 95,"));
}

TEST_CASE("32-bit tokens that no int32 holds are errors, not negative numbers", "[data]") {
  const TempDir dir;
  const std::string path = dir.write("x.bin", shard<uint32_t>({1, 0x80000000u}));
  CHECK_THROWS_AS(open_dataset({.path = path}), DataError);
  const auto stream = open_dataset({.path = path, .val_fraction = 0, .validate = false}).train;
  std::vector<int32_t> tokens(2);
  CHECK_THROWS_AS(stream->read(0, tokens), DataError);
  CHECK_THROWS_AS(open_dataset({.path = path, .vocab_size = int64_t{1} << 40}), DataError);
}

TEST_CASE("the largest token is found wherever it is", "[data]") {
  for (const int64_t count : {0, 1, 3, 1023, 1024, 1025, 3000}) {
    std::vector<uint16_t> narrow(static_cast<size_t>(count));
    std::vector<uint32_t> wide(static_cast<size_t>(count));
    const auto* narrow_bytes = reinterpret_cast<const std::byte*>(narrow.data());
    const auto* wide_bytes = reinterpret_cast<const std::byte*>(wide.data());
    CHECK(max_token(narrow_bytes, TokenWidth::k16, count) == 0);
    for (int64_t at = 0; at < count; at += 1 + at / 7) {
      narrow[static_cast<size_t>(at)] = 40000;
      wide[static_cast<size_t>(at)] = 4000000000u;
      REQUIRE(max_token(narrow_bytes, TokenWidth::k16, count) == 40000);
      REQUIRE(max_token(wide_bytes, TokenWidth::k32, count) == 4000000000u);
      narrow[static_cast<size_t>(at)] = 0;
      wide[static_cast<size_t>(at)] = 0;
    }
  }
}

TEST_CASE("the checksum of tokens is of pages spread over the file", "[data]") {
  const TempDir dir;
  const auto checksum = [&](const std::vector<uint16_t>& tokens) {
    return open_dataset({.path = dir.write("x.bin", shard(tokens)), .validate = false}).checksum;
  };
  // The checksum of a small file covers every page.
  std::vector<uint16_t> tokens(40'000, 5);
  const uint64_t before = checksum(tokens);
  CHECK(checksum(tokens) == before);
  for (const size_t place : {size_t{0}, size_t{20'000}, tokens.size() - 1}) {
    std::vector<uint16_t> other = tokens;
    other[place] = 6;
    CHECK(checksum(other) != before);
  }
  // The checksum of a large file covers its first and last page and samples other pages.
  tokens.resize(9'000'000, 5);
  const uint64_t large = checksum(tokens);
  for (const size_t place : {size_t{0}, tokens.size() - 1}) {
    std::vector<uint16_t> other = tokens;
    other[place] = 6;
    CHECK(checksum(other) != large);
  }
  CHECK(checksum(std::vector<uint16_t>(tokens.size(), 6)) != large);
  std::vector<uint16_t> other = tokens;
  // First token of pages that may lie between sampled pages: 4,096 of 4,395 are sampled.
  const size_t between = (4'000 * 4096 + 1024) / 2;
  int missed = 0;
  for (size_t page = 0; page < 64; ++page) {
    other[between + page * 2048] = 6;
    if (checksum(other) == large) ++missed;
    other[between + page * 2048] = 5;
  }
  CHECK(missed > 0);
  CHECK(missed < 16);
}

TEST_CASE("tokens of the sampled pages are checked when a large file is opened", "[data]") {
  const TempDir dir;
  std::vector<uint16_t> tokens(12'000'000, 5);  // 5,860 pages of 4 KiB, of which 4,096 are sampled
  const auto message = [&](size_t position) -> std::string {
    tokens[position] = 300;
    const std::string path = dir.write("x.bin", shard(tokens));
    tokens[position] = 5;
    try {
      open_dataset({.path = path, .vocab_size = 300, .validate = false});
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(contains(message(0), "position 0,"));
  CHECK(contains(message(1535), "position 1535,"));  // last token in the file's first page, 4 KiB
  CHECK(contains(message(tokens.size() - 1), "position 11999999,"));
  int found = 0;
  for (size_t page = 1000; page < 1040; ++page) {
    const size_t position = page * 2048;
    const std::string text = message(position);
    CHECK((text.empty() || contains(text, cat("position ", position, ","))));
    found += text.empty() ? 0 : 1;
  }
  CHECK(found > 20);
  CHECK(found < 40);
}

TEST_CASE("no shortened or lengthened shard is accepted", "[data]") {
  const TempDir dir;
  const std::string good = shard<uint16_t>({1, 2, 3});
  for (size_t size = 0; size < good.size(); ++size) {
    // The format is given as "llmc", because a file without llm.c's magic number could have any
    // format.
    const std::string path = dir.write("x.bin", good.substr(0, size));
    REQUIRE_THROWS_AS(open_dataset({.path = path, .format = DataFormat::kLlmc}), DataError);
  }
  const std::string longer = dir.write("x.bin", good + '\0');
  CHECK(contains(message_of<DataError>([&] { open_dataset({.path = longer}); }), "1031"));
}

TEST_CASE("every header bit that means something is checked", "[data]") {
  const TempDir dir;
  const std::string good = shard<uint16_t>({1, 2, 3});
  for (size_t bit = 0; bit < 12 * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    const std::string path = dir.write("x.bin", bad);
    REQUIRE_THROWS_AS(open_dataset({.path = path, .format = DataFormat::kLlmc}), DataError);
  }
}

TEST_CASE("a header that claims no or a negative number of tokens is rejected", "[data]") {
  const TempDir dir;
  std::string bad = shard<uint16_t>({});
  const auto complaint = [&] {
    return message_of<DataError>([&] { open_dataset({.path = dir.write("x.bin", bad)}); });
  };
  CHECK(contains(complaint(), "says 0 tokens"));
  bad = shard<uint16_t>({1});
  const int32_t negative = -1;
  std::memcpy(bad.data() + 8, &negative, 4);
  CHECK(contains(complaint(), "says -1 tokens"));
}

TEST_CASE("shards of different widths do not mix", "[data]") {
  const TempDir dir;
  dir.write("a.bin", shard<uint16_t>({1, 2, 3}));
  dir.write("b.bin", shard<uint32_t>({1, 2, 3}));
  CHECK_THROWS_AS(open_dataset({.path = dir.path()}), DataError);
}

TEST_CASE("an evaluation file is refused with its kind", "[data]") {
  const TempDir dir;
  std::vector<int32_t> header(256);
  header[0] = kEval;
  const std::string path = dir.write("hellaswag.bin", bytes_of(header));
  CHECK(contains(message_of<DataError>([&] { open_dataset({.path = path}); }), "evaluation"));
}

TEST_CASE("nanoGPT's train.bin and val.bin are read", "[data]") {
  const TempDir dir;
  dir.write("train.bin", bytes_of(iota<uint16_t>(20)));
  const DatasetSplits tail = open_dataset({.path = dir.path(), .val_fraction = 0.25});
  CHECK(tail.format == DataFormat::kNanogpt);
  CHECK(tokens_of(tail.train) == iota<int32_t>(15));
  CHECK(tokens_of(tail.val) == iota<int32_t>(5, 15));
  dir.write("val.bin", bytes_of(iota<uint16_t>(3, 50)));
  const DatasetSplits named = open_dataset({.path = dir.path()});
  CHECK(named.train->size() == 20);
  CHECK(tokens_of(named.val) == iota<int32_t>(3, 50));
  dir.write("val.bin", "odd");
  CHECK_THROWS_AS(open_dataset({.path = dir.path()}), DataError);
}

TEST_CASE("headerless tokens without their folder must be asked for", "[data]") {
  const TempDir dir;
  const std::string path = dir.write("x.bin", bytes_of(iota<uint16_t>(20)));
  const std::string message = message_of<ConfigError>([&] { open_dataset({.path = path}); });
  CHECK(contains(message, "--data-format"));
  CHECK_THROWS_AS(open_dataset({.path = dir.path()}), ConfigError);
  CHECK(open_dataset({.path = path, .format = DataFormat::kNanogpt}).train->size() == 18);
  // Files of two formats in one folder are ambiguous, too.
  dir.write("y.bin", shard<uint16_t>({1, 2, 3}));
  CHECK_THROWS_AS(open_dataset({.path = dir.path()}), ConfigError);
}

TEST_CASE("asking for the wrong format is an error", "[data]") {
  const TempDir dir;
  const std::string llmc = dir.write("x.bin", shard<uint16_t>({1, 2, 3}));
  CHECK_THROWS_AS(open_dataset({.path = llmc, .format = DataFormat::kNanogpt}), DataError);
  CHECK_THROWS_AS(open_dataset({.path = llmc, .format = DataFormat::kText}), DataError);
  const std::string text = dir.write("x.txt", "text");
  CHECK_THROWS_AS(open_dataset({.path = text, .format = DataFormat::kLlmc}), DataError);
  std::filesystem::remove(llmc);
  CHECK_THROWS_AS(open_dataset({.path = dir.path(), .format = DataFormat::kLlmc}),
                  MissingInputError);
  CHECK_THROWS_AS(open_dataset({.path = dir.path(), .format = DataFormat::kNanogpt}),
                  MissingInputError);
}

TEST_CASE("text is recognised without being asked for", "[data]") {
  const TempDir dir;
  const std::string path = dir.write("x.txt", "plain text\n");
  CHECK(open_dataset({.path = path}).format == DataFormat::kText);
  CHECK(open_dataset({.path = dir.path()}).format == DataFormat::kText);
  // A file of one byte.
  CHECK(open_dataset({.path = dir.write("1", "x"), .val_fraction = 0}).is_text());
}

}  // namespace shale
