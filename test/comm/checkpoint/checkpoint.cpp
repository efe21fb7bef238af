#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/comm/checkpoint/shard.h"
#include "shale/runtime/io/json_object.h"
#include "shale/runtime/io/safetensors.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/checkpoints.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::SampleOptions;
using test::save_sample;
using test::TempDir;

namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& path) {
  return Folder::open(path).names();
}

}  // namespace

TEST_CASE("what any number of ranks saves is read back in pieces of any size", "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.file("out/checkpoints"));
  const SampleOptions options{.ranks = GENERATE(1, 2, 3, 8, 41)};
  CAPTURE(options.ranks);
  save_sample(folder, 100, options);
  CheckpointReader reader(folder.path_of(100));
  CHECK(reader.manifest().files.size() == static_cast<size_t>(options.ranks));
  CHECK(reader.manifest().step == 100);
  CHECK_NOTHROW(reader.verify());
  for (const int64_t piece : {1'000'000, 1000, 17}) {
    CAPTURE(piece);
    CHECK(sample_difference(reader, options, piece).empty());
  }
}

TEST_CASE("chunks larger than the file and smaller than a tensor give the same", "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  for (const int64_t chunk_bytes : {4096, 5000, 1 << 20}) {
    const SampleOptions options{.ranks = 2, .chunk_bytes = chunk_bytes, .rows = 3000};
    save_sample(folder, chunk_bytes, options);
    CheckpointReader reader(folder.path_of(chunk_bytes));
    CHECK(reader.manifest().chunk_bytes == chunk_bytes);
    CHECK(sample_difference(reader, options).empty());
    CHECK(sample_difference(reader, options, 3000).empty());
  }
}

TEST_CASE("state and config come back as they were given", "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  save_sample(folder, 7, {});
  const CheckpointReader reader(folder.path_of(7));
  const JsonObject state(reader.manifest().state, "state");
  CHECK(state.integer("step") == 7);
  CHECK(state.real("scale") == 0.1);
  CHECK(JsonObject(reader.manifest().config, "config").text("model") == "nano");
  CHECK(reader.manifest().writer.starts_with("shale "));
}

TEST_CASE("a rank's file is a safetensors file that any reader reads", "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  const SampleOptions options{.ranks = 1};
  save_sample(folder, 1, options);
  const SafetensorsFile file(folder.path_of(1) + "/" + shard_file_name(0, 1));
  for (const TensorPart& part : test::sample_tensors(options)) {
    if (part.count == 0 || part.tensor == "h.0.grid") continue;
    CAPTURE(part.tensor);
    const SafetensorsEntry* entry = file.find(part.tensor);
    REQUIRE(entry != nullptr);
    CHECK(entry->shape == part.shape);
    const auto bytes = file.bytes(*entry);
    CHECK(std::vector<std::byte>(bytes.begin(), bytes.end()) == test::sample_bytes(part, 1));
  }
}

TEST_CASE("data that does not fit the declared parts is an error", "[io]") {
  const TempDir dir;
  const std::vector<TensorPart> parts = {
      {.tensor = "w", .dtype = DType::kF32, .shape = {2, 3}, .box = {}, .first = 1, .count = 4}};
  const std::vector<std::byte> bytes(17);
  const std::span<const std::byte> data = bytes;
  CheckpointShardWriter writer(dir.path(), "x", parts);
  CHECK_THROWS_AS(writer.finish(), InternalError);
  CHECK_THROWS_AS(writer.write(data), InternalError);
  writer.write(data.first(6));
  CHECK_FALSE(writer.is_complete());
  CHECK_THROWS_AS(writer.write(data.first(11)), InternalError);
  writer.write(data.first(10));
  CHECK(writer.is_complete());
  CHECK_THROWS_AS(writer.write(data.first(1)), InternalError);
  CHECK_NOTHROW(writer.finish());

  const auto declare = [&](TensorPart part) { CheckpointShardWriter(dir.path(), "y", {part}); };
  TensorPart part = parts[0];
  part.count = 6;
  CHECK_THROWS_AS(declare(part), InternalError);
  part = parts[0];
  part.box = {{0, 2}, {2, 2}};
  CHECK_THROWS_AS(declare(part), InternalError);
  part.box = {{0}, {2}};
  CHECK_THROWS_AS(declare(part), InternalError);
  CHECK_THROWS_AS(CheckpointShardWriter(dir.path(), "y", {parts[0], parts[0]}), InternalError);
  CHECK_THROWS_AS(CheckpointShardWriter(dir.path(), "y", parts, 4095), InternalError);
  CHECK_THROWS_AS(CheckpointShardWriter(dir.path(), "x", parts), DiskError);  // file exists
}

TEST_CASE("reading what a tensor does not have is an error", "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  save_sample(folder, 1, {});
  CheckpointReader reader(folder.path_of(1));
  std::vector<std::byte> into(8);
  CHECK_NOTHROW(reader.read("h.0.bias", 5, into));
  CHECK_NOTHROW(reader.read("nothing", 0, {}));
  CHECK_THROWS_AS(reader.read("h.0.bias", 6, into), InternalError);
  CHECK_THROWS_AS(reader.read("h.0.bias", -1, into), InternalError);
  CHECK_THROWS_AS(reader.read("h.0.bias", 0, std::span(into).first(7)), InternalError);
  CHECK(contains(message_of<DataError>([&] { reader.read("absent", 0, into); }), "'absent'"));
}

TEST_CASE("many ranges that are read at once are what each is alone", "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  const SampleOptions options{.ranks = GENERATE(1, 3, 8), .chunk_bytes = 5000, .rows = 1000};
  save_sample(folder, 1, options);
  CheckpointReader reader(folder.path_of(1));
  // Writes ranges from the last tensor to the first, with a gap after every third range.
  const int64_t piece = GENERATE(7, 100, 1'000'000);
  CAPTURE(options.ranks, piece);
  std::vector<TensorPart> wanted;
  std::vector<TensorPart> tensors = sample_tensors(options);
  std::reverse(tensors.begin(), tensors.end());
  for (TensorPart part : tensors) {
    const int64_t numel = part.count;
    for (int64_t first = 0, i = 0; first < numel; first += part.count, ++i) {
      part.first = first;
      part.count = std::min(piece, numel - first);
      if (i % 3 != 2) wanted.push_back(part);
    }
  }
  std::vector<std::vector<std::byte>> found;
  std::vector<CheckpointRead> reads;
  for (const TensorPart& part : wanted) {
    std::vector<std::byte>& into = found.emplace_back(static_cast<size_t>(part.bytes()));
    reads.push_back({part.tensor, part.first, into});
  }
  const bool shared = GENERATE(false, true);
  reader.read_all(reads, shared);
  int64_t different = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    different += found[i] == test::sample_bytes(wanted[i], 1) ? 0 : 1;
  }
  CHECK(different == 0);
}

TEST_CASE("what is read at once is read from the disk once, in the order of the files", "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  const SampleOptions options{.ranks = 2, .chunk_bytes = 1 << 16, .rows = 10'000};
  save_sample(folder, 1, options);
  CheckpointReader reader(folder.path_of(1));
  int64_t bytes = 0;
  for (const CheckpointFile& file : reader.manifest().files) bytes += file.bytes;
  std::vector<std::vector<std::byte>> found;
  std::vector<CheckpointRead> reads;
  std::vector<CheckpointReader::Place> places;
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    reads.push_back({name, 0, found.emplace_back(static_cast<size_t>(tensor.bytes()))});
    // Opening each file reads its header.
    if (tensor.numel() > 0) places.push_back(reader.place_of(name, 0));
  }
  // Number of bytes that this process received from read calls.
  const auto bytes_read = [] {
    const std::string text = test::read_file("/proc/self/io");
    return std::stoll(text.substr(text.find("rchar: ") + 7));
  };
  const int64_t before = bytes_read();
  reader.read_all(reads);
  // read_all() reads each byte once; reading /proc itself adds a few bytes.
  CHECK(bytes_read() - before <= bytes + 4096);
  std::sort(places.begin(), places.end());
  CHECK(places.front().file == 0);
  CHECK(places.front().offset > 8);
  CHECK(places.back().offset < reader.manifest().files[places.back().file].bytes);
  CHECK(std::adjacent_find(places.begin(), places.end()) == places.end());
}

TEST_CASE("reading many ranges refuses what reading one refuses, and what is wanted twice",
          "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  save_sample(folder, 1, {});
  CheckpointReader reader(folder.path_of(1));
  std::vector<std::byte> a(8), b(8);
  const auto read = [&](std::vector<CheckpointRead> reads) { reader.read_all(reads); };
  CHECK_NOTHROW(read({}));
  CHECK_NOTHROW(read({{"h.0.bias", 0, a}, {"h.0.bias", 2, b}}));
  CHECK_THROWS_AS(read({{"h.0.bias", 0, a}, {"h.0.bias", 1, b}}), InternalError);
  CHECK_THROWS_AS(read({{"h.0.bias", 0, a}, {"h.0.bias", 0, b}}), InternalError);
  CHECK_THROWS_AS(read({{"h.0.bias", 6, a}}), InternalError);
  CHECK_THROWS_AS(read({{"absent", 0, a}}), DataError);
  CHECK_THROWS_AS(reader.place_of("h.0.bias", 7), InternalError);
  CHECK_THROWS_AS(reader.place_of("absent", 0), DataError);
}

TEST_CASE("a checkpoint has its name only when it is committed", "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.file("checkpoints"));
  CHECK(folder.steps().empty());
  CHECK(folder.clean() == 0);
  folder.begin(5, "one");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"step_00000005.tmp-one"});
  CHECK(folder.steps().empty());
  CHECK_THROWS_AS(folder.begin(5, "one"), DiskError);
  // Manifests whose files do not hold every tensor completely are errors.
  CheckpointManifest manifest{.step = 5};
  const std::vector<TensorPart> parts = {
      {.tensor = "w", .dtype = DType::kU8, .shape = {4}, .box = {}, .first = 0, .count = 3}};
  CheckpointShardWriter writer(folder.temporary_path(5, "one"), "x", parts);
  writer.write(std::vector<std::byte>(3));
  add_shard(manifest, writer.finish());
  CHECK(contains(message_of<InternalError>([&] { folder.commit(manifest, "one"); }),
                 "elements 3 to 3 of a box are not in any file"));
  CHECK(folder.steps().empty());
  folder.discard(5, "one");
  folder.discard(5, "one");
  CHECK(names_in(folder.path()).empty());
  save_sample(folder, 5, {});
  CHECK(names_in(folder.path()) == std::vector<std::string>{"latest", "step_00000005"});
  CHECK(test::read_file(folder.path() + "/latest") == "step_00000005\n");
}

TEST_CASE("a step that is saved again replaces the old one", "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  save_sample(folder, 5, {.ranks = 3});
  save_sample(folder, 5, {.ranks = 1});
  CHECK(CheckpointReader(folder.path_of(5)).manifest().files.size() == 1);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"latest", "step_00000005"});
}

TEST_CASE("steps are listed newest first, by exact names only", "[io]") {
  const TempDir dir;
  for (const char* name : {"step_00000100", "step_00000020", "step_123456789", "step_100",
                           "step_0000010x", "step_-0000001", "step_00000100.tmp-1", "latest"}) {
    fs::create_directory(dir.file(name));
  }
  CHECK(CheckpointFolder(dir.path()).steps() == std::vector<int64_t>{123'456'789, 100, 20});
}

TEST_CASE("cleaning removes what killed runs left, and nothing else", "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  save_sample(folder, 1, {});
  folder.begin(2, "a");
  dir.write("step_00000002.tmp-a/shard", "x");
  fs::create_directories(dir.file(".trash-1-step_00000000/inside"));
  dir.write(".latest.tmp-1-0", "x");
  dir.write("notes.tmp-1", "mine");
  CHECK(folder.clean() == 3);
  CHECK(names_in(dir.path()) == std::vector<std::string>{"latest", "notes.tmp-1", "step_00000001"});
  CHECK(folder.clean() == 0);
}

TEST_CASE("retiring keeps the newest sound checkpoints and the one saved just now", "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  for (const int64_t step : {1, 2, 3, 4, 5}) save_sample(folder, step, {});
  const auto check = [&](int64_t keep, int64_t committed, std::vector<int64_t> want) {
    folder.retire(keep, committed);
    CHECK(folder.steps() == want);
  };
  CHECK_THROWS_AS(folder.retire(0, 5), InternalError);
  check(9, 5, {5, 4, 3, 2, 1});
  check(4, 5, {5, 4, 3, 2});
  fs::resize_file(folder.path_of(4) + "/" + shard_file_name(0, 2), 100);
  check(2, 5, {5, 4, 3});  // step 4 is damaged, so it does not count as one of the two kept
  fs::remove(folder.path_of(5) + "/" + kManifestName);
  check(1, 3, {5, 4, 3});  // step 3 is the newest undamaged checkpoint
  // Keeps the checkpoint saved just now (step 6), although an earlier run left newer steps.
  for (const int64_t step : {6, 7, 8}) save_sample(folder, step, {});
  check(1, 6, {8, 6});
  CHECK(names_in(dir.path()).size() == 3);
}

TEST_CASE("retiring spares chosen steps, and trusts what this process wrote", "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  for (const int64_t step : {1, 2, 3, 4, 5, 6}) save_sample(folder, step, {});
  std::set<int64_t> known = {6};
  // Step 6 is in `known`, so its files are not checked again.
  fs::remove(folder.path_of(6) + "/" + shard_file_name(0, 2));
  fs::remove(folder.path_of(5) + "/" + shard_file_name(0, 2));
  folder.retire(
      2, 6, [](int64_t step) { return step % 3 == 0 || step == 1; }, &known);
  CHECK(folder.steps() == std::vector<int64_t>{6, 5, 4, 3, 1});
  CHECK(known == std::set<int64_t>{4, 6});
}

TEST_CASE("a damaged checkpoint says what is wrong, and is not counted as kept", "[io]") {
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  for (const int64_t step : {1, 2, 3, 4}) save_sample(folder, step, {});
  const auto problem = [&](int64_t step) {
    return message_of<DataError>([&] { CheckpointReader(folder.path_of(step)).verify(); });
  };
  const std::string shard = shard_file_name(1, 2);
  std::string text = test::read_file(folder.path_of(4) + "/" + shard);
  text.back() = static_cast<char>(text.back() ^ 1);
  dir.write("step_00000004/" + shard, text);
  CHECK(contains(problem(4), shard));
  fs::remove(folder.path_of(3) + "/" + kManifestName);
  CHECK(contains(message_of<MissingInputError>([&] { CheckpointReader(folder.path_of(3)); }),
                 "step_00000003/manifest.json"));
  fs::rename(folder.path_of(2), folder.path_of(9));
  CHECK(contains(problem(9), "step_00000009: manifest.json has step 2"));
  save_sample(folder, 5, {});
  folder.retire(2, 5);
  // Step 4 is damaged, but none of its files is missing.
  CHECK(folder.steps() == std::vector<int64_t>{9, 5, 4});
  fs::rename(folder.path_of(9), dir.file("best"));
  CHECK(CheckpointReader(dir.file("best")).manifest().step == 2);
}

}  // namespace shale
