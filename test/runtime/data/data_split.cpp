// Tests how validation files, documents and examples are chosen in every format.
#include "shale/runtime/data/split.h"

#include <filesystem>

#include "shale/base/error.h"
#include "shale/runtime/data/tokens/data_mix.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {
namespace {

using namespace data_internal;
using test::contains;
using test::message_of;
using test::TempDir;

std::string put(const TempDir& dir, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(dir.file(name)).parent_path());
  return dir.write(name, bytes);
}

std::string llmc_shard(const std::vector<uint16_t>& tokens) {
  std::vector<int32_t> header(256);
  header[0] = 20240520, header[1] = 1, header[2] = static_cast<int32_t>(tokens.size());
  return std::string(reinterpret_cast<const char*>(header.data()), 1024) +
         std::string(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size());
}

}  // namespace

TEST_CASE("whole words of a name say what a file is for", "[data]") {
  for (const char* name :
       {"val.txt", "valid/a.txt", "x_validation_0.bin", "dev.jsonl", "VAL.JSONL", "val2017/1.png",
        "a-Dev-b", "train/val", "data/validation-00000-of-00001.parquet", "test_val.bin"}) {
    CAPTURE(name);
    CHECK(use_of_name(name) == FileUse::kValidation);
  }
  for (const char* name :
       {"", "retrieval_0.bin", "carnival", "interval/1", "medieval.txt", "evaluation.txt", "device",
        "develop/a", "valley", "validate.cpp", "validity", "invalid", "tests/a", "latest",
        "contest", "testing", "naï\u0301val", "éval-x"}) {
    CAPTURE(name);
    CHECK(use_of_name(name) == FileUse::kTrain);
  }
  for (const char* name : {"test.txt", "a/test/b", "TEST-0.npy", "test2"}) {
    CAPTURE(name);
    CHECK(use_of_name(name) == FileUse::kNone);
  }
}

TEST_CASE("files of test are for validation only if no others are", "[data]") {
  using enum FileUse;
  CHECK(divide_files({"a", "val", "test"}, "d") == std::vector{kTrain, kValidation, kNone});
  CHECK(divide_files({"a", "test"}, "d") == std::vector{kTrain, kValidation});
  CHECK(divide_files({}, "d").empty());
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"val"}, {"test"}, {"dev", "test"}}) {
    CHECK(contains(message_of<DataError>([&] { divide_files(names, "d"); }),
                   "d: no files for training"));
  }
}

TEST_CASE("several paths are judged by what follows the folder of them all", "[data]") {
  using Names = std::vector<std::string>;
  CHECK(names_below_common_folder({"/home/dev/val/a.txt"}) == Names{""});
  CHECK(names_below_common_folder({"/home/dev/a.txt", "/home/dev/val.txt"}) ==
        Names{"a.txt", "val.txt"});
  CHECK(names_below_common_folder({"/dev/x/train/1", "/dev/x/val/1"}) == Names{"train/1", "val/1"});
  CHECK(names_below_common_folder({"a", "b/c"}) == Names{"a", "b/c"});
}

TEST_CASE("a hash of the content divides documents, near the fraction", "[data]") {
  std::vector<uint32_t> hashes;
  for (uint32_t i = 0; i < 4000; ++i) hashes.push_back(split_hash(i * 2654435761U, 100 + i % 7));
  const auto count = [&](double fraction) {
    const std::vector<bool> chosen = hold_out(hashes, fraction);
    return std::count(chosen.begin(), chosen.end(), true);
  };
  CHECK(count(0) == 0);
  CHECK(count(1e-9) == 1);
  // 1000 expected; the margin is five standard deviations.
  CHECK(std::abs(count(0.25) - 1000) < 140);
  CHECK(count(1 - 1e-12) == 3999);
  CHECK(hold_out({5}, 0.9) == std::vector<bool>{false});
  // A large hash; documents with equal hashes are in the same split.
  const uint32_t high = 4'000'000'000;
  CHECK(hold_out({high, 5, high + 1, 5, high + 1}, 1e-9) ==
        std::vector<bool>{false, true, false, true, false});
  CHECK(hold_out({high, high}, 0.5) == std::vector<bool>{false, false});
}

TEST_CASE("every format of tokens and text is divided by names", "[data]") {
  const TempDir dir;
  const std::string two = {1, 0, 2, 0}, three = {1, 0, 2, 0, 3, 0};
  const auto sizes = [&](const std::string& path, std::optional<TokenWidth> width = {}) {
    const DatasetSplits splits = open_dataset({.path = dir.file(path), .width = width});
    return std::pair(splits.train->size(), splits.val == nullptr ? 0 : splits.val->size());
  };
  using Sizes = std::pair<int64_t, int64_t>;
  put(dir, "text/a/train.txt", "text");
  put(dir, "text/validation/b.txt", "validation");
  put(dir, "text/test.txt", "of no use");
  CHECK(sizes("text") == Sizes{4, 10});
  CHECK(sizes("text/*/*") == Sizes{4, 10});
  CHECK(contains(open_dataset({.path = dir.file("text")}).summary,
                 "chosen by file name; skipped 1 of the test split"));
  put(dir, "llmc/retrieval_0.bin", llmc_shard({1, 2, 3}));
  put(dir, "llmc/x_dev_0.bin", llmc_shard({1, 2}));
  put(dir, "llmc/x_test_0.bin", llmc_shard({1}));
  CHECK(sizes("llmc") == Sizes{3, 2});
  CHECK(sizes("llmc/*_0.bin") == Sizes{3, 2});
  put(dir, "raw/interval.npy", three);
  put(dir, "raw/test.npy", two);
  CHECK(sizes("raw", TokenWidth::k16) == Sizes{3, 2});
  put(dir, "nano/train.bin", three);
  put(dir, "nano/valid.bin", two);
  put(dir, "nano/other.bin", "odd");
  CHECK(sizes("nano") == Sizes{3, 2});
  // Shards may be in folders named after their split; token files elsewhere are then ignored.
  put(dir, "parts/train/0.bin", llmc_shard({1, 2, 3}));
  put(dir, "parts/validation/0.bin", llmc_shard({1, 2}));
  put(dir, "parts/test/fixture.bin", "other");
  put(dir, "parts/old/0.bin", llmc_shard({1}));
  CHECK(sizes("parts") == Sizes{3, 2});
  put(dir, "vectors/0.npy", three);
  put(dir, "vectors/dev/0.npy", two);
  CHECK(sizes("vectors", TokenWidth::k16) == Sizes{3, 2});
  // The name of the given folder, or of a given file, does not choose the split.
  put(dir, "val/a.txt", "four");
  put(dir, "val/b.txt", "five!");
  const Sizes both = sizes("val");
  CHECK(both.first + both.second == 9);
  CHECK(sizes("val/a.txt") == Sizes{4, 0});
}

TEST_CASE("sources of a mixture are not divided by their names", "[data]") {
  const TempDir dir;
  put(dir, "train.txt", "text");
  put(dir, "val.txt", "text");
  const std::string data = dir.file("train.txt") + "," + dir.file("val.txt");
  CHECK(contains(message_of<ConfigError>([&] { open_parts(parse_data(data), {.path = data}); }),
                 "val.txt: its name says that it is for validation"));
}

}  // namespace shale
