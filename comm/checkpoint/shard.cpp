#include "shale/comm/checkpoint/shard.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/json_internal.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/io/safetensors_layout.h"

namespace shale {
namespace {

// Number of bytes that are checksummed and then copied. It is small, so that they are still in the
// cache for the copy.
constexpr size_t kCachedBytes = size_t{128} << 10;

void check_part(const TensorPart& part) {
  const auto fail = [&](const auto&... problem) {
    throw InternalError(cat("checkpoint: tensor '", part.tensor, "': ", problem...));
  };
  const TensorBox box = part.box.size.empty() ? whole_box(part.shape) : part.box;
  if (box.size.size() != part.shape.size() || box.begin.size() != part.shape.size()) {
    fail("a box of ", box.size.size(), " dimensions, expected ", part.shape.size());
  }
  int64_t numel = 1;
  for (size_t i = 0; i < part.shape.size(); ++i) {
    if (box.begin[i] < 0 || box.size[i] < 0 || box.size[i] > part.shape[i] - box.begin[i]) {
      fail("a box of ", box.size[i], " elements that begins at ", box.begin[i],
           " exceeds dimension ", i, " of size ", part.shape[i]);
    }
    numel *= box.size[i];
  }
  if (part.first < 0 || part.count < 0 || part.count > numel - part.first) {
    fail("a part that begins at element ", part.first, " and has ", part.count,
         " elements exceeds the box of ", numel, " elements");
  }
}

std::vector<SafetensorsSpec> specs_of(const std::vector<TensorPart>& parts,
                                      const std::vector<size_t>& stored) {
  std::vector<SafetensorsSpec> specs;
  for (const size_t i : stored) {
    specs.push_back({stored_name(parts[i]), parts[i].dtype, stored_shape(parts[i])});
  }
  return specs;
}

void record_part(CheckpointManifest& record, const TensorPart& part) {
  const auto [it, is_new] = record.tensors.try_emplace(
      part.tensor, CheckpointTensor{.dtype = part.dtype, .shape = part.shape, .boxes = {}});
  CheckpointTensor& tensor = it->second;
  if (tensor.dtype != part.dtype || tensor.shape != part.shape) {
    throw InternalError(
        cat("checkpoint: tensor '", part.tensor, "' was given with two different types or shapes"));
  }
  const TensorBox box = part.box.size.empty() ? whole_box(part.shape) : part.box;
  auto found = std::find_if(tensor.boxes.begin(), tensor.boxes.end(),
                            [&](const CheckpointTensor::Box& b) { return b.box == box; });
  if (found == tensor.boxes.end()) {
    found = tensor.boxes.insert(found, CheckpointTensor::Box{.box = box, .parts = {}});
  }
  if (part.count > 0) found->parts.push_back({.file = 0, .first = part.first, .count = part.count});
}

}  // namespace

std::string shard_file_name(int rank, int ranks) {
  char name[64];
  std::snprintf(name, sizeof name, "shard_%05d_of_%05d.safetensors", rank, ranks);
  return name;
}

ShardPlan::ShardPlan(const std::string& name, std::vector<TensorPart> all, int64_t chunk_bytes)
    : parts(std::move(all)) {
  if (chunk_bytes < kMinChunkBytes || chunk_bytes > kMaxChunkBytes) {
    throw InternalError(cat("checkpoint: chunks of ", chunk_bytes, " bytes, expected ",
                            kMinChunkBytes, " to ", kMaxChunkBytes));
  }
  std::vector<size_t> stored;  // indices of non-empty parts
  for (size_t i = 0; i < parts.size(); ++i) {
    check_part(parts[i]);
    record_part(record, parts[i]);
    if (parts[i].count > 0) stored.push_back(i);
  }
  SafetensorsLayout layout = lay_out_safetensors(specs_of(parts, stored), {{"format", "pt"}});
  for (const size_t i : layout.order) {
    order.push_back(stored[i]);
    begins.push_back(layout.begins[i]);
  }
  front = std::move(layout.front);
  record.chunk_bytes = chunk_bytes;
  record.files.push_back({.name = name, .bytes = layout.file_bytes, .chunk_crcs = {}});
}

CheckpointShardWriter::CheckpointShardWriter(const std::string& folder, const std::string& name,
                                             std::vector<TensorPart> parts, int64_t chunk_bytes)
    : plan_(name, std::move(parts), chunk_bytes),
      file_(Folder::open(folder), name, plan_.file().bytes) {
  append(std::as_bytes(std::span(plan_.front)));
}

int64_t CheckpointShardWriter::left() const {
  return is_complete() ? 0 : plan_.parts[next()].bytes() - written_;
}

void CheckpointShardWriter::skip_complete() {
  while (!is_complete() && left() == 0) {
    ++next_;
    written_ = 0;
  }
}

void CheckpointShardWriter::write(std::span<const std::byte> bytes) {
  if (static_cast<int64_t>(bytes.size()) > left()) {
    throw InternalError(cat(file_.path(), ": ", bytes.size(), " bytes written to tensor '",
                            is_complete() ? "(none)" : plan_.parts[next()].tensor,
                            "', expected at most the ", left(), " bytes left"));
  }
  append(bytes);
  written_ += static_cast<int64_t>(bytes.size());
  skip_complete();
}

void CheckpointShardWriter::append(std::span<const std::byte> bytes) {
  std::vector<uint32_t>& crcs = plan_.record.files[0].chunk_crcs;
  while (!bytes.empty()) {
    const int64_t in_chunk = position_ % plan_.record.chunk_bytes;
    const auto room = static_cast<size_t>(plan_.record.chunk_bytes - in_chunk);
    const std::span<const std::byte> piece =
        bytes.first(std::min({bytes.size(), room, kCachedBytes}));
    if (in_chunk == 0) crcs.push_back(0);
    crcs.back() = crc32c(piece, crcs.back());
    file_.append(piece);
    position_ += static_cast<int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
  }
}

std::string CheckpointShardWriter::finish() {
  if (!is_complete()) {
    throw InternalError(cat(file_.path(), ": ", left(), " bytes of tensor '",
                            plan_.parts[next()].tensor, "' are missing"));
  }
  file_.finish();
  return encode_shard(plan_.record);
}

}  // namespace shale
