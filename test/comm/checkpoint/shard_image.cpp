#include "shale/comm/checkpoint/shard_image.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/io/direct_memory.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/file_size_limit.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::FileSizeLimit;
using test::message_of;
using test::TempDir;

namespace {

constexpr int64_t kChunkBytes = 8192;

std::vector<TensorPart> parts_of(int64_t count) {
  return {{.tensor = "a", .dtype = DType::kF32, .shape = {count}, .box = {}, .count = count},
          {.tensor = "none", .dtype = DType::kF32, .shape = {4}, .box = {}, .count = 0},
          {.tensor = "b", .dtype = DType::kU8, .shape = {7, 3}, .box = {}, .first = 2, .count = 9}};
}

std::vector<std::byte> bytes_of(const TensorPart& part) {
  std::vector<std::byte> bytes(static_cast<size_t>(part.bytes()));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 4096);
  return bytes;
}

// The planned content of a file, with memory for its data.
struct Shard {
  ShardPlan plan;
  DirectMemory memory = allocate_direct_memory(size_t(ShardImage::bytes_for(plan)));
  ShardImage image{plan, memory.get()};

  explicit Shard(int64_t count) : plan("shard", parts_of(count), kChunkBytes) {}
  void fill(size_t i) const {
    const std::vector<std::byte> bytes = bytes_of(plan.parts[plan.order[i]]);
    std::copy(bytes.begin(), bytes.end(), image.data(i));
  }
};

// Writes the shard on another thread. At return the file exists and, if the file system supports
// it, its space is reserved.
std::future<std::string> start_writing(Shard& shard, const TempDir& dir) {
  auto written = std::async(std::launch::async, [&] { return shard.image.write(dir.path()); });
  const auto want = static_cast<uintmax_t>(shard.plan.file().bytes);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  std::error_code error;
  while (std::filesystem::file_size(dir.file("shard"), error) != want &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return written;
}

}  // namespace

TEST_CASE("an image writes the file that a writer writes, while it is being filled", "[io]") {
  // These sizes are around multiples of the direct-I/O alignment and of the chunk size.
  for (const int64_t count : {1, 900, 1000, 1024, 1900, 2000, 2048, 5000, 100'000}) {
    CAPTURE(count);
    const TempDir dir, other;
    Shard shard(count);
    std::future<std::string> written = start_writing(shard, dir);
    for (size_t i = 0; i < shard.plan.order.size(); ++i) {
      shard.fill(i);
      shard.image.filled(shard.plan.begins[i] + shard.plan.parts[shard.plan.order[i]].bytes());
    }
    CheckpointShardWriter writer(other.path(), "shard", parts_of(count), kChunkBytes);
    while (!writer.is_complete()) writer.write(bytes_of(shard.plan.parts[writer.next()]));
    CHECK(written.get() == writer.finish());
    CHECK(test::read_file(dir.file("shard")) == test::read_file(other.file("shard")));
  }
}

TEST_CASE("an image that is given up stops waiting for its bytes", "[io]") {
  const TempDir dir;
  Shard shard(100'000);
  std::future<std::string> written = start_writing(shard, dir);
  shard.image.filled(shard.plan.file().bytes / 2);
  shard.image.cancel();
  CHECK_THROWS_AS(written.get(), InternalError);
}

TEST_CASE("an image that cannot be written is a disk error with the file and the reason", "[io]") {
  const TempDir dir;
  Shard shard(100'000);
  std::future<std::string> written = start_writing(shard, dir);
  // From here on, writes beyond 50,000 bytes fail, although space is reserved.
  const FileSizeLimit limit(50'000);
  shard.image.filled(shard.plan.file().bytes);
  const std::string message = message_of<DiskError>([&] { written.get(); });
  CHECK(contains(message, dir.file("shard")));
  CHECK(contains(message, "errno 27"));  // errno 27 is EFBIG
  // The file exists already, which is an error.
  CHECK_THROWS_AS(shard.image.write(dir.path()), DiskError);
}

}  // namespace shale
