#include "shale/comm/checkpoint/shard_image.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/json_internal.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/io/direct_memory.h"
#include "shale/runtime/io/file.h"
#include "shale/runtime/io/in_parallel.h"

namespace shale {
namespace {

// Number of writing threads: enough to keep the disk busy while some of them compute checksums.
constexpr size_t kWriters = 4;

}  // namespace

ShardImage::ShardImage(const ShardPlan& plan, std::byte* memory) : plan_(plan), memory_(memory) {
  std::memcpy(memory, plan.front.data(), plan.front.size());
}

void ShardImage::filled(int64_t end) {
  {
    const std::lock_guard lock(mutex_);
    filled_ = end;
  }
  changed_.notify_all();
}

void ShardImage::cancel() {
  {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
  }
  changed_.notify_all();
}

void ShardImage::wait_until_filled(int64_t end) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return filled_ >= end || is_cancelled_; });
  if (is_cancelled_) throw InternalError("the shard image was cancelled");
}

std::string ShardImage::write(const std::string& folder) {
  CheckpointManifest record = plan_.record;
  const std::span<const std::byte> image(memory_, static_cast<size_t>(plan_.file().bytes));
  const auto chunk_bytes = static_cast<size_t>(record.chunk_bytes);
  const size_t chunks = (image.size() + chunk_bytes - 1) / chunk_bytes;
  std::vector<uint32_t>& crcs = record.files[0].chunk_crcs;
  crcs.resize(chunks);

  File file = File::create(Folder::open(folder), plan_.file().name);
  file.reserve(plan_.file().bytes);
  file.bypass_cache(true);
  const size_t aligned = align_down(image.size());
  in_parallel(chunks, kWriters, [&](size_t i, size_t) {
    const size_t begin = i * chunk_bytes, end = std::min(begin + chunk_bytes, image.size());
    wait_until_filled(static_cast<int64_t>(end));
    const std::span<const std::byte> chunk = image.subspan(begin, end - begin);
    crcs[i] = crc32c(chunk);
    const size_t now = std::min(end, std::max(begin, aligned)) - begin;
    file.write_at(static_cast<int64_t>(begin), chunk.first(now));
  });
  file.bypass_cache(false);
  file.write_at(static_cast<int64_t>(aligned), image.subspan(aligned));
  file.sync();
  file.close();
  return encode_shard(record);
}

}  // namespace shale
