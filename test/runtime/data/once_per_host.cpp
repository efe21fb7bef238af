#include "shale/runtime/data/once_per_host.h"

#include <filesystem>
#include <queue>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/data/chat/chat_examples.h"
#include "shale/runtime/data/images/image_dataset.h"
#include "shale/runtime/data/text/tokenizer/bpe_trainer.h"
#include "shale/runtime/data/tokens/token_dataset.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/tar_member.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

// Two processes on a host. The first one reads the data. The second one gets the same information
// from it, in the same order.
struct Host {
  OncePerHost reads = [this](const std::function<std::string()>& read) {
    told.push(read());
    return told.back();
  };
  OncePerHost is_told = [this](const std::function<std::string()>&) {
    const std::string next = told.front();
    told.pop();
    return next;
  };
  std::queue<std::string> told;
};

std::vector<int32_t> tokens_of(const std::shared_ptr<const TokenStream>& stream) {
  if (stream == nullptr) return {};
  std::vector<int32_t> tokens(static_cast<size_t>(stream->size()));
  stream->read(0, tokens);
  return tokens;
}

std::shared_ptr<const StoredTokenizer> small_tokenizer() {
  PieceCounts counts;
  count_pieces("question text of", tokenizer_internal::SplitPattern::kCl100k, counts);
  const TokenizerSpec spec = train_bpe(counts, {.vocab_size = 260, .special = {"<|endoftext|>"}});
  return parse_tokenizer(to_tokenizer_json(spec), "small");
}

bool maps(const std::string& name) {
  return contains(test::read_file("/proc/self/maps"), name);
}

std::string shard(const std::string& tokens) {
  std::vector<int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = static_cast<int32_t>(tokens.size() / 2);
  return std::string(reinterpret_cast<const char*>(header.data()), 1024) + tokens;
}

// Opens data in a process that reads it and in one that is told, and checks that both have the
// same.
void check_told(DataOptions options) {
  Host host;
  const DatasetSplits alone = open_dataset(options);
  options.once = host.reads;
  const DataFormat format = find_format(options);
  options.once = host.is_told;
  CHECK(find_format(options) == format);
  options.once = host.reads;
  const DatasetSplits first = open_dataset(options);
  options.once = host.is_told;
  const DatasetSplits second = open_dataset(options);
  for (const DatasetSplits* splits : {&first, &second}) {
    CHECK(tokens_of(splits->train) == tokens_of(alone.train));
    CHECK(tokens_of(splits->val) == tokens_of(alone.val));
    CHECK(splits->train->vocab_bound() == alone.train->vocab_bound());
    CHECK(splits->format == alone.format);
    CHECK(splits->summary == alone.summary);
    CHECK(splits->fingerprint == alone.fingerprint);
    CHECK(splits->checksum == alone.checksum);
  }
}

}  // namespace

TEST_CASE("one process reads token data, others are told", "[data]") {
  const TempDir dir;
  for (const char* folder : {"llmc", "raw", "text"}) {
    std::filesystem::create_directory(dir.file(folder));
  }
  dir.write("llmc/a.bin", shard("abcdefgh"));
  dir.write("llmc/b.bin", shard("ijklmnop"));
  // Training and validation have parts of the same file.
  check_told({.path = dir.file("llmc"), .val_fraction = 0.4});
  check_told({.path = dir.file("llmc/a.bin"), .val_fraction = 0});
  dir.write("raw/train.bin", "abcd");
  dir.write("raw/val.bin", "ef");
  check_told({.path = dir.file("raw")});
  check_told({.path = dir.file("raw"), .format = DataFormat::kRaw, .width = TokenWidth::k16});
  for (const char* name : {"a", "b", "c", "d"})
    dir.write(cat("text/", name), cat("text of ", name));
  check_told({.path = dir.file("text"), .val_fraction = 0.5});
  check_told({.path = dir.file("text/a"), .val_fraction = 0.5});
  check_told({.path = dir.file("text"), .val_fraction = 0.5, .tokenizer = small_tokenizer()});
}

TEST_CASE("a process that is told opens a file when it first reads from it", "[data]") {
  const TempDir dir;
  dir.write("a.bin", shard("abcdefgh"));
  dir.write("b.bin", shard("ijklmnop"));
  Host host;
  DataOptions options{.path = dir.path(), .val_fraction = 0, .validate = false, .once = host.reads};
  open_dataset(options);
  options.once = host.is_told;
  const DatasetSplits told = open_dataset(options);
  CHECK_FALSE(maps(dir.path()));
  std::vector<int32_t> tokens(2);
  told.train->read(5, tokens);
  CHECK(maps(dir.file("b.bin")));
  CHECK_FALSE(maps(dir.file("a.bin")));
}

TEST_CASE("one process reads examples, others are told", "[data]") {
  const TempDir dir;
  std::string lines;
  for (int i = 0; i < 20; ++i) {
    lines += cat(R"({"prompt": "question )", i, R"(", "completion": "answer )", i, "\"}\n");
  }
  Host host;
  ExampleOptions options{.paths = {dir.write("a.jsonl", lines)},
                         .tokenizer = small_tokenizer(),
                         .val_fraction = 0.3,
                         .once = host.reads};
  const ExampleSplits first = read_examples(options);
  options.once = host.is_told;
  const ExampleSplits second = read_examples(options);
  REQUIRE(first.val != nullptr);
  REQUIRE(second.val != nullptr);
  CHECK(second.examples == 20);
  CHECK(second.note == first.note);
  CHECK(second.fingerprint == first.fingerprint);
  CHECK(second.checksum == first.checksum);
  for (const auto& [a, b] : {std::pair(first.train, second.train), {first.val, second.val}}) {
    REQUIRE(a->size() == b->size());
    for (int64_t i = 0; i < a->size(); ++i) {
      REQUIRE(a->length(i) == b->length(i));
      std::vector<int32_t> of_a(static_cast<size_t>(a->length(i))), of_b = of_a, to_a = of_a,
                                                                    to_b = of_a;
      a->read(i, 0, of_a, to_a);
      b->read(i, 0, of_b, to_b);
      CHECK(of_a == of_b);
      CHECK(to_a == to_b);
    }
  }
}

TEST_CASE("one process looks at images, others are told", "[data]") {
  const TempDir dir;
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directories(dir.file(cat("folder/", name)));
    for (int i = 0; i < 4; ++i) dir.write(cat("folder/", name, "/", i, ".png"), cat(name, i));
  }
  std::filesystem::create_directory(dir.file("tars"));
  for (int archive = 0; archive < 2; ++archive) {
    std::string tar;
    for (int i = 0; i < 3; ++i) {
      tar += test::tar_member(cat(i, ".png"), cat("image ", archive, i));
      tar += test::tar_member(cat(i, ".cls"), std::to_string(i));
    }
    dir.write(cat("tars/", archive, ".tar"), tar + std::string(1024, '\0'));
  }
  for (const char* name : {"folder", "tars"}) {
    Host host;
    ImageDataOptions options{.path = dir.file(name), .val_fraction = 0.4, .once = host.reads};
    const ImageSplits first = open_images(options);
    options.once = host.is_told;
    // The second process must not list the folder or open a file.
    std::filesystem::rename(dir.file(name), dir.file("away"));
    const ImageSplits second = open_images(options);
    std::filesystem::rename(dir.file("away"), dir.file(name));
    CHECK(second.format == first.format);
    CHECK(second.classes == first.classes);
    CHECK(second.summary == first.summary);
    CHECK(second.fingerprint == first.fingerprint);
    CHECK(second.checksum == first.checksum);
    for (const auto& [a, b] : {std::pair(first.train, second.train), {first.val, second.val}}) {
      REQUIRE(a->size() == b->size());
      for (int64_t i = 0; i < a->size(); ++i) {
        CHECK(a->label(i) == b->label(i));
        // For a file that is no image, both give the same error, with the file's name and the place
        // in it.
        Image image;
        CHECK(message_of<DataError>([&] { a->read(i, image); }) ==
              message_of<DataError>([&] { b->read(i, image); }));
      }
    }
  }
}

}  // namespace shale
