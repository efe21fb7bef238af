// Tests resharding and comparing checkpoints.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/diff.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/reshard.h"
#include "shale/comm/checkpoint/shard.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

namespace fs = std::filesystem;

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

struct Stored {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
using Content = std::map<std::string, Stored>;

Content content() {
  std::vector<float> w(7 * 5);
  std::iota(w.begin(), w.end(), 0.5f);
  return {{"b", {DType::kBF16, {3}, bytes_of(std::vector<bf16>{bf16(1), bf16(2), bf16(3)})}},
          {"e", {DType::kF32, {0, 4}, {}}},
          {"n", {DType::kI64, {}, bytes_of(std::vector<int64_t>{int64_t{1} << 60})}},
          {"u", {DType::kU8, {2}, bytes_of(std::vector<uint8_t>{0, 255})}},
          {"w", {DType::kF32, {7, 5}, bytes_of(w)}}};
}

// Writes a checkpoint with a single file.
std::string write(const TempDir& dir, const std::string& name, const Content& tensors) {
  const CheckpointFolder folder(dir.file(name));
  CheckpointManifest manifest;
  manifest.step = 12;
  manifest.state = R"({"samples":96})";
  manifest.config = R"({"lr":0.5})";
  std::vector<TensorPart> parts;
  for (const auto& [tensor, stored] : tensors) {
    const int64_t count = static_cast<int64_t>(stored.bytes.size()) / dtype_size(stored.dtype);
    parts.push_back(
        {.tensor = tensor, .dtype = stored.dtype, .shape = stored.shape, .count = count});
  }
  folder.begin(12, "x");
  CheckpointShardWriter writer(folder.temporary_path(12, "x"), shard_file_name(0, 1), parts, 4096);
  while (!writer.is_complete()) writer.write(tensors.at(parts[writer.next()].tensor).bytes);
  add_shard(manifest, writer.finish());
  folder.commit(manifest, "x");
  return folder.path_of(12);
}

std::vector<std::byte> read_all(CheckpointReader& reader, const std::string& tensor) {
  std::vector<std::byte> bytes(static_cast<size_t>(reader.find(tensor)->bytes()));
  reader.read(tensor, 0, bytes);
  return bytes;
}

template <typename T>
void set(Content& tensors, const std::string& name, size_t i, T value) {
  std::memcpy(tensors.at(name).bytes.data() + i * sizeof(T), &value, sizeof value);
}

TensorDifference only_difference(CheckpointReader& a, CheckpointReader& b) {
  const std::vector<TensorDifference> differences = diff_checkpoints(a, b);
  REQUIRE(differences.size() == 1);
  return differences[0];
}

}  // namespace

TEST_CASE("a checkpoint cut for any number of ranks has the same content", "[io][checkpoint]") {
  const TempDir dir;
  CheckpointReader from(write(dir, "from", content()));
  const int ranks = GENERATE(1, 2, 3, 7, 200);
  CAPTURE(ranks);
  const CheckpointFolder to(dir.file("to"));
  reshard_checkpoint(from, to, ranks);
  CheckpointReader cut(to.path_of(12));
  cut.verify();
  CHECK(cut.manifest().files.size() == static_cast<size_t>(ranks));
  CHECK(cut.manifest().state == from.manifest().state);
  CHECK(cut.manifest().config == from.manifest().config);
  REQUIRE(cut.manifest().tensors.size() == 5);
  for (const auto& [name, stored] : content()) {
    CAPTURE(name);
    CHECK(cut.find(name)->shape == stored.shape);
    CHECK(cut.find(name)->dtype == stored.dtype);
    CHECK(read_all(cut, name) == stored.bytes);
  }
  CHECK(diff_checkpoints(from, cut).empty());
  // Reshards to the original layout again.
  const CheckpointFolder back(dir.file("back"));
  reshard_checkpoint(cut, back, 2);
  CheckpointReader again(back.path_of(12));
  CHECK(diff_checkpoints(from, again).empty());
}

TEST_CASE("files have the same size to one element", "[io][checkpoint]") {
  const TempDir dir;
  const CheckpointReader from(write(dir, "from", content()));
  const int ranks = GENERATE(1, 2, 3, 5, 16);
  // The tensors have 6 + 8 + 2 + 140 bytes. The ranks' sizes may differ by one element, of at most
  // 8 bytes.
  for (const std::vector<TensorPart>& parts : even_parts(from.manifest(), ranks)) {
    int64_t bytes = 0;
    for (const TensorPart& part : parts) bytes += part.bytes();
    CHECK(std::abs(bytes - 156 / ranks) <= 8);
  }
}

TEST_CASE("cutting again leaves alone what is there, and leaves nothing when it fails",
          "[io][checkpoint]") {
  const TempDir dir;
  const std::string path = write(dir, "from", content());
  CheckpointReader from(path);
  const CheckpointFolder own(dir.file("from"));
  CHECK(contains(message_of<ConfigError>([&] { reshard_checkpoint(from, own, 2); }), path));
  CHECK_THROWS_AS(reshard_checkpoint(from, CheckpointFolder(dir.file("to")), 0), ConfigError);
  CHECK_THROWS_AS(reshard_checkpoint(from, CheckpointFolder(dir.file("to")), 100'000), ConfigError);

  const std::string file = path + "/" + shard_file_name(0, 1);
  std::string bytes = test::read_file(file);
  bytes[bytes.size() - 1] ^= 1;
  dir.write("from/step_00000012/" + shard_file_name(0, 1), bytes);
  CheckpointReader damaged(path);
  const CheckpointFolder to(dir.file("to"));
  CHECK(contains(message_of<DataError>([&] { reshard_checkpoint(damaged, to, 2); }), "chunk 0"));
  CHECK(to.steps().empty());
  CHECK(fs::is_empty(dir.file("to")));
}

TEST_CASE("a difference is found in every type, with its size", "[io][checkpoint]") {
  const TempDir dir;
  CheckpointReader from(write(dir, "from", content()));
  const auto changed = [&](const std::string& name, auto change) {
    Content tensors = content();
    change(tensors);
    CheckpointReader other(write(dir, name, tensors));
    return only_difference(from, other);
  };
  const auto w = changed("w", [](Content& t) {
    set(t, "w", 3, 3.75f);   // the other checkpoint has 3.5
    set(t, "w", 34, 34.0f);  // the other checkpoint has 34.5
  });
  CHECK(w.name == "w");
  CHECK(w.elements == 2);
  CHECK(w.max_abs == 0.5);
  CHECK(changed("b", [](Content& t) { set(t, "b", 2, bf16(1)); }).max_abs == 2);
  // The old and the new value are adjacent integers that round to the same double.
  CHECK(changed("n", [](Content& t) { set(t, "n", 0, (int64_t{1} << 60) + 1); }).max_abs == 1);
  CHECK(changed("u", [](Content& t) { set(t, "u", 0, uint8_t{255}); }).max_abs == 255);
  const auto nan =
      changed("nan", [](Content& t) { set(t, "w", 0, std::numeric_limits<float>::quiet_NaN()); });
  CHECK(std::isnan(nan.max_abs));
  CHECK(nan.elements == 1);
  const auto infinite =
      changed("inf", [](Content& t) { set(t, "w", 0, std::numeric_limits<float>::infinity()); });
  CHECK(std::isinf(infinite.max_abs));
}

TEST_CASE("bits that stand for the same number differ by 0", "[io][checkpoint]") {
  const TempDir dir;
  Content tensors = content();
  set(tensors, "w", 0, 0.f);
  CheckpointReader from(write(dir, "from", tensors));
  set(tensors, "w", 0, -0.f);
  CheckpointReader other(write(dir, "other", tensors));
  const TensorDifference zero = only_difference(from, other);
  CHECK(zero.elements == 1);
  CHECK(zero.max_abs == 0);
}

TEST_CASE("tensors that only one has, or in another form, are differences", "[io][checkpoint]") {
  using Kind = TensorDifference::Kind;
  const TempDir dir;
  CheckpointReader from(write(dir, "from", content()));
  Content tensors = content();
  tensors["a"] = tensors.at("b");
  tensors.erase("u");
  tensors.at("w").shape = {5, 7};
  tensors.at("n").dtype = DType::kF64;
  CheckpointReader other(write(dir, "other", tensors));
  const std::vector<TensorDifference> found = diff_checkpoints(from, other);
  REQUIRE(found.size() == 4);
  CHECK((found[0].name == "a" && found[0].kind == Kind::kOnlyInSecond));
  CHECK((found[1].name == "n" && found[1].kind == Kind::kForm));
  CHECK((found[2].name == "u" && found[2].kind == Kind::kOnlyInFirst));
  CHECK((found[3].name == "w" && found[3].kind == Kind::kForm));
}

}  // namespace shale
