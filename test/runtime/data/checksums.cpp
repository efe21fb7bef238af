// Tests that checksums, which ranks and resumed runs compare, depend on the content of the data.
#include <filesystem>
#include <functional>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/data/chat/chat_examples.h"
#include "shale/runtime/data/content_scan.h"
#include "shale/runtime/data/images/image_dataset.h"
#include "shale/runtime/data/images/latents.h"
#include "shale/runtime/data/text/tokenizer/bpe_trainer.h"
#include "shale/runtime/data/tokens/data_mix.h"
#include "shale/runtime/io/safetensors_writer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/tar_member.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

namespace fs = std::filesystem;

// Each kind of data contains kMark once, in a place that may change. The test changes one of its
// bytes.
const std::string kMark = "AAAA";

std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 255);
  return text;
}

std::string big_endian(uint32_t value) {
  std::string text = little_endian(value, 4);
  std::reverse(text.begin(), text.end());
  return text;
}

// Makes a tokenizer with the special tokens of conversations.
std::shared_ptr<const StoredTokenizer> small_tokenizer() {
  PieceCounts counts;
  count_pieces("words", tokenizer_internal::SplitPattern::kCl100k, counts);
  TokenizerSpec spec = train_bpe(counts, {.vocab_size = 257});
  spec.added.push_back({.id = 300, .text = "<|im_start|>"});
  spec.added.push_back({.id = 301, .text = "<|im_end|>"});
  return parse_tokenizer(to_tokenizer_json(spec), "small");
}

void write(const TempDir& dir, const std::string& name, const std::string& bytes) {
  fs::create_directories(fs::path(dir.file(name)).parent_path());
  dir.write(name, bytes);
}

void write_latents(const TempDir& dir) {
  std::vector<f16> values(3 * 4 * 8 * 8, f16(1.f));
  std::vector<int64_t> labels = {0, 1, 2};
  const std::string path = dir.file("a.safetensors");
  SafetensorsWriter file(path, {{.name = "latents", .dtype = DType::kF16, .shape = {3, 4, 8, 8}},
                                {.name = "labels", .dtype = DType::kI64, .shape = {3}}});
  file.write(make_view(values.data(), {3, 4, 8, 8}));
  file.write(make_view(labels.data(), {3}));
  file.commit();
  std::string bytes = read_file(path);
  write(dir, "a.safetensors", bytes.replace(bytes.size() / 2, kMark.size(), kMark));
}

struct Compared {
  uint64_t fingerprint = 0, checksum = 0;
  bool operator==(const Compared&) const = default;
};

Compared tokens(DataOptions options) {
  options.val_fraction = 0;
  options.validate = false;
  const DatasetSplits splits = open_dataset(options);
  return {splits.fingerprint, splits.checksum};
}

Compared examples(const std::string& path, ExampleKind kind) {
  const ExampleSplits splits = read_examples(
      {.paths = {path}, .kind = kind, .tokenizer = small_tokenizer(), .val_fraction = 0});
  return {splits.fingerprint, splits.checksum};
}

Compared images(const std::string& path) {
  const ImageSplits splits = open_images({.path = path, .val_fraction = 0});
  return {splits.fingerprint, splits.checksum};
}

struct Kind {
  const char* name;
  std::string changed;                        // name of the file that contains kMark
  std::function<void(const TempDir&)> write;  // writes all files of the data
  std::function<Compared(const TempDir&)> open;
};

// Makes a kind of data with one file.
Kind one_file(const char* name, const std::string& file, const std::string& bytes,
              std::function<Compared(const TempDir&)> open) {
  return {name, file, [=](const TempDir& dir) { write(dir, file, bytes); }, std::move(open)};
}

std::vector<Kind> token_kinds() {
  const auto folder = [](const TempDir& dir) { return tokens({.path = dir.path()}); };
  const std::string llmc = little_endian(20240520, 4) + little_endian(1, 4) + little_endian(4, 4) +
                           std::string(1012, '\0') + "xx" + kMark + "xx";
  std::string numpy = "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }";
  numpy.resize(117, ' ');
  return {
      one_file("text", "a.txt", "xx" + kMark,
               [](const TempDir& dir) { return tokens({.path = dir.file("a.txt")}); }),
      one_file("folder of text", "a/b.txt", "xx" + kMark, folder),
      one_file("jsonl", "a.jsonl", "{\"text\": \"" + kMark + "\"}\n",
               [](const TempDir& dir) {
                 return tokens({.path = dir.file("a.jsonl"),
                                .tokenizer = small_tokenizer(),
                                .cache = dir.file("cache")});
               }),
      one_file("llm.c's shards", "a.bin", llmc, folder),
      one_file("nanoGPT's tokens", "train.bin", "xx" + kMark, folder),
      one_file("numpy's vectors", "a.npy",
               std::string("\x93NUMPY\x01\x00", 8) + little_endian(118, 2) + numpy + "\nxx" + kMark,
               folder),
      one_file("tokens without a header", "a.bin", "xx" + kMark,
               [](const TempDir& dir) {
                 return tokens({.path = dir.file("a.bin"), .width = TokenWidth::k16});
               }),
      {"Megatron's files", "a.bin",
       [](const TempDir& dir) {
         write(dir, "a.bin", "xx" + kMark);
         write(dir, "a.idx",
               std::string("MMIDIDX\0\0", 9) + little_endian(1, 8) + little_endian(8, 1) +
                   little_endian(1, 8) + little_endian(2, 8) + little_endian(3, 4) +
                   little_endian(0, 8) + little_endian(0, 8) + little_endian(1, 8));
       },
       folder},
      {"a source of a mixture", "b.txt",
       [](const TempDir& dir) {
         write(dir, "a.txt", "text");
         write(dir, "b.txt", kMark);
       },
       [](const TempDir& dir) {
         const MixedData data =
             open_parts(parse_data(dir.file("a.txt") + "," + dir.file("b.txt")), DataOptions{});
         return Compared{data.fingerprint, data.checksum};
       }},
      one_file(
          "answers", "a.jsonl", R"({"prompt": ")" + kMark + R"(", "completion": "x"})",
          [](const TempDir& dir) { return examples(dir.file("a.jsonl"), ExampleKind::kAnswers); }),
      one_file("preferences", "a.jsonl",
               R"({"prompt": "x", "chosen": "y", "rejected": ")" + kMark + "\"}",
               [](const TempDir& dir) {
                 return examples(dir.file("a.jsonl"), ExampleKind::kPreferences);
               }),
  };
}

std::vector<Kind> image_kinds() {
  const auto folder = [](const TempDir& dir) { return images(dir.path()); };
  const std::string pixels = kMark + std::string(3072 - kMark.size(), 'x');
  const auto write_idx = [](const std::string& some_pixels, const std::string& labels) {
    return [=](const TempDir& dir) {
      const std::string counts = big_endian(2) + big_endian(2) + big_endian(3);
      write(dir, "train-images-idx3-ubyte", std::string("\0\0\x08\x03", 4) + counts + some_pixels);
      write(dir, "train-labels-idx1-ubyte",
            std::string("\0\0\x08\x01", 4) + big_endian(2) + labels);
    };
  };
  return {
      {"a folder of images", "a/2.png",
       [](const TempDir& dir) {
         write(dir, "a/1.png", "x");
         write(dir, "a/2.png", "x" + kMark);
         write(dir, "b/empty.png", "");
       },
       folder},
      {"a folder of images for validation", "val/a/1.jpg",
       [](const TempDir& dir) {
         write(dir, "train/a/1.jpg", "x");
         write(dir, "val/a/1.jpg", kMark);
       },
       folder},
      one_file("an image in a tar", "a.tar",
               tar_member("1.png", kMark) + tar_member("1.cls", "0") + std::string(1024, '\0'),
               folder),
      one_file("CIFAR", "data_batch_1.bin", '\1' + pixels, folder),
      {"CIFAR's names of classes", "batches.meta.txt",
       [=](const TempDir& dir) {
         write(dir, "data_batch_1.bin", '\1' + std::string(3072, 'x'));
         write(dir, "batches.meta.txt", "0\n1\n2\n3\n4\n5\n6\n7\n8\n" + kMark + "\n");
       },
       folder},
      {"IDX", "train-images-idx3-ubyte", write_idx("xxxx" + kMark + "xxxx", "xy"), folder},
      {"latents", "a.safetensors", write_latents,
       [](const TempDir& dir) {
         const LatentSplits splits = open_latents(dir.path(), 0);
         return Compared{splits.fingerprint, splits.checksum};
       }},
  };
}

// Makes a path function for sampled_checksum() that records the requested file numbers.
struct Asked {
  std::string path;
  std::vector<int64_t> numbers = {};
  std::string operator()(int64_t i) {
    numbers.push_back(i);
    return path;
  }
};

uint64_t checksum_of(const std::string& path) {
  return data_internal::sampled_checksum(1, [&](int64_t) { return path; }, {});
}

}  // namespace

TEST_CASE("a byte that changes in data of any kind changes what is compared", "[data]") {
  std::vector<Kind> kinds = token_kinds();
  for (Kind& kind : image_kinds()) kinds.push_back(std::move(kind));
  for (const Kind& kind : kinds) {
    CAPTURE(kind.name);
    const TempDir dir;
    kind.write(dir);
    const Compared before = kind.open(dir);
    CHECK(kind.open(dir) == before);
    std::string bytes = read_file(dir.file(kind.changed));
    const size_t at = bytes.find(kMark);
    REQUIRE(at != bytes.npos);
    bytes[at + 1] = 'B';
    const fs::file_time_type written = fs::last_write_time(dir.file(kind.changed));
    write(dir, kind.changed, bytes);
    // The cache of jsonl tokens depends on the modification time, whose clock may be too coarse.
    fs::last_write_time(dir.file(kind.changed), written + std::chrono::seconds(1));
    CHECK(kind.open(dir) != before);
  }
}

TEST_CASE("labels of latents, tars and IDX, and places of classes, are compared", "[data]") {
  const TempDir dir;
  const auto changes = [&](const std::string& file, const std::string& before,
                           const std::string& after) {
    write(dir, file, before);
    const Compared was = images(fs::path(dir.file(file)).parent_path());
    write(dir, file, after);
    return images(fs::path(dir.file(file)).parent_path()) != was;
  };
  const std::string end(1024, '\0');
  const auto tar = [&](const char* a, const char* b) {
    return tar_member("1.png", "x") + tar_member("1.cls", a) + tar_member("2.png", "x") +
           tar_member("2.cls", b) + end;
  };
  CHECK(changes("tar/a.tar", tar("0", "1"), tar("1", "0")));
  write(dir, "idx/train-images-idx3-ubyte",
        std::string("\0\0\x08\x03", 4) + big_endian(2) + big_endian(1) + big_endian(1) + "xx");
  const std::string head = std::string("\0\0\x08\x01", 4) + big_endian(2);
  CHECK(changes("idx/train-labels-idx1-ubyte", head + "\1\2", head + "\2\1"));
  // Renaming a class changes the labels of the classes that sort after it.
  for (const char* folder : {"a", "b", "c"}) write(dir, cat("f/", folder, "/1.png"), "x");
  const Compared was = images(dir.file("f"));
  fs::rename(dir.file("f/b"), dir.file("f/d"));
  CHECK(images(dir.file("f")) != was);
}

TEST_CASE("a sampled checksum covers small files wholly, and pages of large ones", "[data]") {
  const TempDir dir;
  const auto changes = [&](size_t bytes, size_t at) {
    std::string text(bytes, 'x');
    const uint64_t before = checksum_of(dir.write("a", text));
    CHECK(checksum_of(dir.file("a")) == before);
    text[at] = 'y';
    return checksum_of(dir.write("a", text)) != before;
  };
  for (const size_t at : {0, 4096, 70'000, 99'999}) CHECK(changes(100'000, at));
  constexpr size_t kLarge = size_t{40} << 20;
  CHECK(changes(kLarge, 0));
  CHECK(changes(kLarge, kLarge - 1));
  CHECK_FALSE(changes(kLarge, 4096));  // page 2 of 10,240 pages; only 4,096 of them are read
}

TEST_CASE("a sampled checksum of many files reads some of them, spread evenly", "[data]") {
  const TempDir dir;
  Asked few{dir.write("a", "x")}, many{dir.file("a")};
  data_internal::sampled_checksum(3, std::ref(few), {});
  CHECK(few.numbers == std::vector<int64_t>{0, 1, 2});
  data_internal::sampled_checksum(1'281'167, std::ref(many), {});
  REQUIRE(many.numbers.size() == 4096);
  CHECK((many.numbers.front() == 0 && many.numbers.back() == 1'281'166));
  for (size_t i = 1; i < many.numbers.size(); ++i) {
    const int64_t step = many.numbers[i] - many.numbers[i - 1];
    CHECK((step == 312 || step == 313));
  }
}

TEST_CASE("a sampled checksum skips what cannot be read only where it may", "[data]") {
  const TempDir dir;
  const auto path_of = [&](int64_t) { return std::string(dir.path()); };  // a path of a folder
  CHECK_THROWS_AS(data_internal::sampled_checksum(1, path_of, {}), DataError);
  const uint64_t skipped = data_internal::sampled_checksum(1, path_of, {}, true);
  CHECK(skipped == checksum_of(dir.write("empty", "")));
  const auto stops = [](const std::string&) {
    throw ErrorWithCode<ExitCode::kInterrupted>("stop");
  };
  const auto empty = [&](int64_t) { return dir.file("empty"); };
  CHECK_THROWS_AS(data_internal::sampled_checksum(1, empty, stops, true),
                  ErrorWithCode<ExitCode::kInterrupted>);
}

}  // namespace shale::test
