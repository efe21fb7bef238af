// Tests that damage of every kind to a committed checkpoint's files is detected, and that the error
// names the damaged file.

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/comm/checkpoint/shard.h"
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

constexpr int kRanks = 3;

// A saved checkpoint and its files.
struct Saved {
  TempDir dir;
  SampleOptions options{.ranks = kRanks, .chunk_bytes = 4096, .rows = 1000};
  std::string folder;

  Saved() {
    const CheckpointFolder checkpoints(dir.path());
    save_sample(checkpoints, 10, options);
    folder = checkpoints.path_of(10);
  }
  std::string path(int rank) const { return folder + "/" + shard_file_name(rank, kRanks); }
};

// True if verifying the folder fails with an error that names `path`.
bool is_noticed(const Saved& saved, const std::string& path) {
  try {
    CheckpointReader(saved.folder).verify();
  } catch (const Error& error) {
    return contains(error.what(), path) &&
           (error.code() == ExitCode::kData || error.code() == ExitCode::kMissingInput);
  }
  return false;
}

// Flips single bits of a file in place.
class Flipper {
 public:
  explicit Flipper(const std::string& path) : fd_(::open(path.c_str(), O_RDWR)) {
    REQUIRE(fd_ >= 0);
  }
  ~Flipper() { ::close(fd_); }
  void flip(int64_t bit) const {
    char byte = 0;
    REQUIRE(::pread(fd_, &byte, 1, bit / 8) == 1);
    byte = static_cast<char>(byte ^ (1 << bit % 8));
    REQUIRE(::pwrite(fd_, &byte, 1, bit / 8) == 1);
  }

 private:
  int fd_;
};

int64_t header_bytes(const std::string& path) {
  const std::string text = test::read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  return static_cast<int64_t>(8 + length);
}

}  // namespace

TEST_CASE("every flipped bit of a file's header is noticed, by reading too", "[io]") {
  const Saved saved;
  const std::string path = saved.path(1);
  const Flipper file(path);
  const int64_t bits = 8 * header_bytes(path);
  CHECK(bits > 4000);
  int64_t unnoticed = 0;
  std::vector<std::byte> into(4);
  for (int64_t bit = 0; bit < bits; ++bit) {
    file.flip(bit);
    try {
      CheckpointReader(saved.folder).verify_file(1);
      ++unnoticed;
    } catch (const DataError& error) {
      unnoticed += contains(error.what(), path) ? 0 : 1;
    }
    try {  // reads elements that three files contain
      CheckpointReader(saved.folder).read("wte.weight", 8000, into);
      ++unnoticed;
    } catch (const DataError&) {
    }
    file.flip(bit);
  }
  CHECK(unnoticed == 0);
  CHECK_NOTHROW(CheckpointReader(saved.folder).verify());
}

TEST_CASE("thousands of flipped bits of data are noticed, by file and chunk", "[io]") {
  const Saved saved;
  int64_t unnoticed = 0;
  int64_t flips = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string path = saved.path(rank);
    const Flipper file(path);
    const auto bits = static_cast<int64_t>(8 * fs::file_size(path));
    // 311 is a prime, so the flipped bits cover all positions within a byte.
    for (int64_t bit = rank; bit < bits; bit += 311) {
      file.flip(bit);
      ++flips;
      try {
        CheckpointReader(saved.folder).verify_file(static_cast<size_t>(rank));
        ++unnoticed;
      } catch (const DataError& error) {
        const std::string chunk = cat("chunk ", bit / 8 / 4096, " (");
        unnoticed += contains(error.what(), path) && contains(error.what(), chunk) ? 0 : 1;
      }
      file.flip(bit);
    }
  }
  CHECK(flips > 3000);
  CHECK(unnoticed == 0);
}

TEST_CASE("a flipped bit under what is read is noticed, one elsewhere does no harm", "[io]") {
  const Saved saved;
  const std::string path = saved.path(2);
  const Flipper file(path);
  const auto bits = static_cast<int64_t>(8 * fs::file_size(path));
  file.flip(bits - 1);
  CheckpointReader reader(saved.folder);
  CHECK(contains(message_of<DataError>([&] { sample_difference(reader, saved.options); }), path));
  std::vector<std::byte> into(1000 * 4);
  CHECK_NOTHROW(reader.read("wte.weight", 0, into));  // the first file has all of this range
}

TEST_CASE("a flipped bit in any chunk of which bytes are wanted at once is noticed", "[io]") {
  const Saved saved;
  const std::string path = saved.path(1);
  const Flipper file(path);
  CheckpointReader reader(saved.folder);
  std::vector<std::vector<std::byte>> found;
  std::vector<CheckpointRead> reads;
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    reads.push_back({name, 0, found.emplace_back(static_cast<size_t>(tensor.bytes()))});
  }
  CHECK_NOTHROW(reader.read_all(reads));
  const auto bytes = static_cast<int64_t>(fs::file_size(path));
  const int64_t chunk = reader.manifest().chunk_bytes;
  // A file's first checksum chunk covers its header and the first data.
  for (int64_t begin = 0; begin < bytes; begin += chunk) {
    const int64_t bit = 8 * std::min(begin + begin % 997, bytes - 1);
    file.flip(bit);
    const std::string message = message_of<DataError>([&] { reader.read_all(reads); });
    CHECK(contains(message, cat(path, ": chunk ", begin / chunk, " ")));
    file.flip(bit);
  }
  CHECK_NOTHROW(reader.read_all(reads));
}

TEST_CASE("a file cut at any 4 KiB, or longer by a byte, is noticed", "[io]") {
  const Saved saved;
  int64_t unnoticed = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string path = saved.path(rank);
    const std::string text = test::read_file(path);
    const std::string name = "step_00000010/" + shard_file_name(rank, kRanks);
    saved.dir.write(name, text + 'x');
    unnoticed += is_noticed(saved, path) ? 0 : 1;
    // The sizes decrease, because the test truncates one file again and again and cannot restore
    // its content.
    std::vector<size_t> sizes = {text.size() - 1};
    for (size_t size = (text.size() - 2) / 4096 * 4096; size > 0; size -= 4096) {
      sizes.push_back(size);
    }
    sizes.push_back(0);
    for (const size_t size : sizes) {
      fs::resize_file(path, size);
      unnoticed += is_noticed(saved, path) ? 0 : 1;
    }
    saved.dir.write(name, text);
  }
  CHECK(unnoticed == 0);
  CHECK_NOTHROW(CheckpointReader(saved.folder).verify());
}

TEST_CASE("the manifest on the disk is checked as its text is", "[io]") {
  const Saved saved;
  const std::string path = saved.folder + "/" + kManifestName;
  const std::string text = test::read_file(path);
  int64_t unnoticed = 0;
  for (size_t size = text.size(); size-- > 0;) {
    fs::resize_file(path, size);
    unnoticed += is_noticed(saved, path) ? 0 : 1;
  }
  saved.dir.write("step_00000010/manifest.json", text);
  const Flipper file(path);
  for (int64_t bit = 0; bit < static_cast<int64_t>(8 * text.size()); ++bit) {
    file.flip(bit);
    unnoticed += is_noticed(saved, path) ? 0 : 1;
    file.flip(bit);
  }
  CHECK(unnoticed == 0);
}

TEST_CASE("a file that is gone, a link, or another's is noticed", "[io]") {
  const Saved saved;
  const std::vector<std::string> names = Folder::open(saved.folder).names();
  REQUIRE(names.size() == kRanks + 1);
  const std::string aside = saved.dir.file("aside");
  for (const std::string& name : names) {
    CAPTURE(name);
    const std::string path = saved.folder + "/" + name;
    fs::rename(path, aside);
    CHECK(is_noticed(saved, path));
    fs::create_symlink(aside, path);
    CHECK(is_noticed(saved, path));
    fs::remove(path);
    fs::create_directory(path);
    CHECK(is_noticed(saved, path));
    fs::remove(path);
    fs::rename(aside, path);
  }
  for (int a = 0; a < kRanks; ++a) {
    for (int b = 0; b < a; ++b) {
      for (int twice = 0; twice < 2; ++twice) {
        if (twice == 0) CHECK_NOTHROW(CheckpointReader(saved.folder).verify());
        fs::rename(saved.path(a), aside);
        fs::rename(saved.path(b), saved.path(a));
        fs::rename(aside, saved.path(b));
        if (twice == 0)
          CHECK((is_noticed(saved, saved.path(a)) || is_noticed(saved, saved.path(b))));
      }
    }
  }
  CHECK_NOTHROW(CheckpointReader(saved.folder).verify());
}

TEST_CASE("files of equal size that were swapped are noticed", "[io]") {
  // The ranks' tensors have equal sizes and different values.
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  folder.begin(1, "n");
  CheckpointManifest manifest{.step = 1};
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<TensorPart> parts = {{.tensor = cat("w", rank),
                                            .dtype = DType::kU8,
                                            .shape = {9},
                                            .box = {},
                                            .first = 0,
                                            .count = 9}};
    CheckpointShardWriter writer(folder.temporary_path(1, "n"), shard_file_name(rank, 2), parts);
    writer.write(std::vector<std::byte>(9, static_cast<std::byte>(rank)));
    add_shard(manifest, writer.finish());
  }
  folder.commit(manifest, "n");
  const std::string first = folder.path_of(1) + "/" + shard_file_name(0, 2);
  const std::string second = folder.path_of(1) + "/" + shard_file_name(1, 2);
  REQUIRE(fs::file_size(first) == fs::file_size(second));
  CHECK_NOTHROW(CheckpointReader(folder.path_of(1)).verify());
  fs::rename(first, dir.file("aside"));
  fs::rename(second, first);
  fs::rename(dir.file("aside"), second);
  CHECK(contains(message_of<DataError>([&] { CheckpointReader(folder.path_of(1)).verify(); }),
                 first));
}

TEST_CASE("a file that belongs to a manifest by its checksums but not by its parts is refused",
          "[io]") {
  // Two tensors swap names in the manifest. All checksums remain valid.
  const TempDir dir;
  const CheckpointFolder folder(dir.path());
  save_sample(folder, 1, {.ranks = 1});
  CheckpointManifest manifest = CheckpointReader(folder.path_of(1)).manifest();
  auto moved = manifest.tensors.extract("h.0.bias");
  moved.key() = "h.1.bias";
  manifest.tensors.insert(std::move(moved));
  const std::string path = folder.path_of(1) + "/" + kManifestName;
  dir.write("step_00000001/manifest.json", to_json(manifest));
  CHECK(contains(message_of<DataError>([&] { CheckpointReader(folder.path_of(1)).verify(); }),
                 "tensor 'h.1.bias' is missing"));
  // Another dtype of the same size and another shape with equally many elements are errors.
  std::vector<std::byte> into(4);
  const CheckpointTensor bias = manifest.tensors.at("h.1.bias");
  CheckpointTensor changed = bias;
  changed.dtype = DType::kI32;
  CheckpointTensor reshaped = bias;
  reshaped.shape = {7, 1};
  reshaped.boxes[0].box = whole_box(reshaped.shape);
  manifest.tensors.erase("h.1.bias");
  for (const CheckpointTensor& other : {changed, reshaped}) {
    manifest.tensors["h.0.bias"] = other;
    dir.write("step_00000001/manifest.json", to_json(manifest));
    CheckpointReader reader(folder.path_of(1));
    CHECK(contains(message_of<DataError>([&] { reader.verify(); }), "another type or shape"));
    CHECK_THROWS_AS(reader.read("h.0.bias", 0, into), DataError);
  }
  // The manifest lacks one tensor of the file.
  manifest.tensors.erase("h.0.bias");
  dir.write("step_00000001/manifest.json", to_json(manifest));
  CHECK(contains(message_of<DataError>([&] { CheckpointReader(folder.path_of(1)).verify(); }),
                 "expected the"));
}

}  // namespace shale
