#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/data/tokens/data_mix.h"
#include "shale/runtime/data/tokens/samples.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<int32_t> tokens_of(const std::shared_ptr<const TokenStream>& stream) {
  std::vector<int32_t> tokens(static_cast<size_t>(stream->size()));
  stream->read(0, tokens);
  return tokens;
}

struct MegatronIndex {
  uint64_t version = 1;
  uint8_t dtype = 8;
  std::vector<int32_t> lengths = {3, 2};
  std::vector<int64_t> offsets = {0, 6};

  std::string bytes() const {
    std::vector<int64_t> documents(lengths.size() + 1);
    std::iota(documents.begin(), documents.end(), int64_t{0});
    return std::string("MMIDIDX\0\0", 9) + bytes_of<uint64_t>({version}) +
           bytes_of<uint8_t>({dtype}) + bytes_of<uint64_t>({lengths.size(), documents.size()}) +
           bytes_of(lengths) + bytes_of(offsets) + bytes_of(documents);
  }
};

std::string numpy_file(const std::string& dictionary, const std::string& data) {
  std::string header = dictionary;
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  return std::string("\x93NUMPY\x01\x00", 8) + bytes_of<uint16_t>({length}) + header + data;
}

// A folder in memory. On a disk, opening a file may have to wait for the journal while other
// programs write.
struct MemoryFolder {
  MemoryFolder() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~MemoryFolder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return path + "/" + name; }

  std::string path = "/dev/shm/shale_test_XXXXXX";
};

DataOptions all_of(const std::string& path) {
  return {.path = path, .val_fraction = 0};
}

}  // namespace

TEST_CASE("Megatron's files are read by either name, and by that of both", "[data]") {
  const TempDir dir;
  dir.write("d.bin", bytes_of<uint16_t>({1, 2, 3, 4, 5}));
  dir.write("d.idx", MegatronIndex().bytes());
  for (const char* name : {"d", "d.bin", "d.idx", "d.*", ""}) {
    const DatasetSplits data = open_dataset(all_of(dir.file(name)));
    CHECK(data.format == DataFormat::kMegatron);
    CHECK(tokens_of(data.train) == std::vector<int32_t>{1, 2, 3, 4, 5});
  }
  dir.write("wide.bin", bytes_of<int32_t>({70000, 1}));
  dir.write("wide.idx", MegatronIndex{.dtype = 4, .lengths = {2}, .offsets = {0}}.bytes());
  CHECK(tokens_of(open_dataset(all_of(dir.file("wide"))).train) == std::vector<int32_t>{70000, 1});
}

TEST_CASE("what is wrong with an index of Megatron-LM is said", "[data]") {
  const TempDir dir;
  dir.write("d.bin", bytes_of<uint16_t>({1, 2, 3, 4, 5}));
  const auto error = [&](const std::string& index, bool validate = true) {
    dir.write("d.idx", index);
    DataOptions options = all_of(dir.file("d.bin"));
    options.format = DataFormat::kMegatron;
    options.validate = validate;
    return message_of<DataError>([&] { open_dataset(options); });
  };
  CHECK(contains(error("x"), "not an index file of Megatron-LM"));
  CHECK(contains(error(MegatronIndex{.version = 2}.bytes()), "version 2"));
  CHECK(contains(error(MegatronIndex{.dtype = 7}.bytes()), "type 7"));
  CHECK(contains(error(MegatronIndex().bytes().substr(0, 50)), "do not fit"));
  CHECK(contains(error(MegatronIndex{.offsets = {0, 4}}.bytes(), false), "sequence 1 begins"));
  CHECK(contains(error(MegatronIndex{.offsets = {2, 6}}.bytes(), false), "sequence 0"));
  const MegatronIndex inner{.lengths = {1, 1, 3}, .offsets = {0, 4, 4}};
  CHECK(contains(error(inner.bytes()), "sequence 1 begins at byte 4"));
}

TEST_CASE("raw tokens have the width that is said, or numpy's", "[data]") {
  const TempDir dir;
  const std::string raw = dir.write("a.npy", bytes_of<uint32_t>({1, 70000, 3}));
  CHECK(contains(message_of<ConfigError>([&] { open_dataset(all_of(raw)); }), "--data-format u16"));
  DataOptions options = all_of(raw);
  options.width = TokenWidth::k32;
  CHECK(tokens_of(open_dataset(options).train) == std::vector<int32_t>{1, 70000, 3});
  const std::string array =
      dir.write("b.npy", numpy_file("{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }",
                                    bytes_of<uint16_t>({7, 8, 9})));
  CHECK(tokens_of(open_dataset(all_of(array)).train) == std::vector<int32_t>{7, 8, 9});
  options.path = array;
  CHECK(contains(message_of<DataError>([&] { open_dataset(options); }), "16 bits"));
  const auto error = [&](const std::string& dictionary) {
    const std::string path =
        dir.write("c.npy", numpy_file(dictionary, bytes_of<uint16_t>({7, 8, 9})));
    return message_of<DataError>([&] { open_dataset(all_of(path)); });
  };
  CHECK(contains(error("{'descr': '<f4', 'shape': (3,)}"), "'<f4'"));
  CHECK(contains(error("{'descr': '<u2', 'shape': (3, 1)}"), "(3, 1)"));
  CHECK(contains(error("{'descr': '<u2', 'shape': (4,)}"), "4 tokens"));
  CHECK(contains(error("{'shape': (4,)}"), "'descr'"));
  // A folder of .bin files whose token width is given as an option.
  std::filesystem::create_directory(dir.file("bins"));
  dir.write("bins/train_0.bin", bytes_of<uint16_t>({1, 2}));
  dir.write("bins/train_1.bin", bytes_of<uint16_t>({3}));
  dir.write("bins/val_0.bin", bytes_of<uint16_t>({9}));
  DataOptions bins{.path = dir.file("bins"), .width = TokenWidth::k16};
  const DatasetSplits data = open_dataset(bins);
  CHECK(data.format == DataFormat::kRaw);
  CHECK(tokens_of(data.train) == std::vector<int32_t>{1, 2, 3});
  CHECK(tokens_of(data.val) == std::vector<int32_t>{9});
}

TEST_CASE("--data names one path, several, or a file that lists them", "[data]") {
  const TempDir dir;
  const std::string a = dir.write("a.txt", "some text"), b = dir.write("b,c:2", "more text");
  CHECK(parse_data(a).front().path == a);
  CHECK(parse_data(b).size() == 1);  // "b,c:2" is one path, because a file with this name exists
  CHECK(parse_data(dir.file("nothing")).size() == 1);
  const std::vector<DataPart> two = parse_data(a + ":0.25," + dir.file("a.txt") + ":3");
  REQUIRE(two.size() == 2);
  CHECK(two[0].weight == 0.25);
  CHECK(two[1].weight == 3);
  CHECK(parse_data(a + "," + a)[1].weight == 0);
  CHECK(contains(message_of<ConfigError>([&] { parse_data(a + ":x"); }), "'x'"));
  CHECK(contains(message_of<ConfigError>([&] { parse_data(a + ":1," + a); }), "1 of 2"));
  CHECK(contains(message_of<MissingInputError>([&] { parse_data(a + ":1,gone:2"); }), "gone"));
  const auto of_file = [&](const std::string& text) {
    return parse_data(dir.write("m.mix.json", text));
  };
  const auto parts = of_file(
      R"({"sources": [{"path": "a.txt", "epochs": 2}, {"path": "b,c:2", "format": "text"}]})");
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].path == a);
  CHECK(parts[0].epochs == 2);
  CHECK(parts[1].format == DataFormat::kText);
  const auto error = [&](const std::string& text) {
    return message_of<DataError>([&] { of_file(text); });
  };
  CHECK(contains(error("[]"), "sources"));
  CHECK(contains(error(R"({"sources": [{"path": "a.txt", "wait": 1}]})"), "'wait'"));
  CHECK(contains(error(R"({"sources": [{"path": "a.txt", "weight": 0}]})"), "above 0"));
  CHECK(contains(error(R"({"sources": [{"path": "a.txt", "dtype": "f32"}]})"), "u8, u16, u32"));
  CHECK(contains(error(R"({"sources": [{"path": "a.txt", "weight": 1}, {"path": "a.txt"}]})"),
                 "1 of 2"));
}

TEST_CASE("a thousand sources of 10^12 tokens are open within a second", "[data]") {
  const MemoryFolder dir;
  std::string list = "{\"sources\": [";
  constexpr int kSources = 1000;
  // Tokens per source; the file is sparse and takes no disk space.
  constexpr int64_t kTokens = 1'000'000'000;
  for (int i = 0; i < kSources; ++i) {
    const std::string name = cat("s", i, ".npy");
    std::ofstream(dir.file(name));
    std::filesystem::resize_file(dir.file(name), 2 * kTokens);
    list += cat(i == 0 ? "" : ",", "{\"path\": \"", name, "\", \"weight\": ", 1 + i % 7, "}");
  }
  const std::string file = dir.file("all.mix.json");
  std::ofstream(file) << list << "]}";
  const auto start = std::chrono::steady_clock::now();
  const MixedData data = open_parts(parse_data(file), {.path = file,
                                                       .val_fraction = 0.001,
                                                       .vocab_size = 50257,
                                                       .validate = false,
                                                       .width = TokenWidth::k16});
  std::vector<std::shared_ptr<const TrainSamples>> sources;
  std::vector<int64_t> samples;
  for (const DatasetSplits& source : data.sources) {
    const TrainSampler sampler(source.train->size(), 2048, 1);
    sources.push_back(window_samples(source.train, sampler));
    samples.push_back(sampler.samples_per_epoch());
  }
  const auto mixed = mixed_samples(std::move(sources), data.mixture(samples));
  const double opened =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CHECK(data.train_tokens() == 999'000'000'000);
  std::vector<int32_t> inputs(2048, 1), targets(2048, 1);
  for (int64_t i = 0; i < 64; ++i) mixed->read(i * 7'919'317, {inputs, targets});
  CHECK(inputs == std::vector<int32_t>(2048));
  INFO("opened in " << opened << " s");
  CHECK(opened < 1);
}

}  // namespace shale
