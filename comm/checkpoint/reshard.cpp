#include "shale/comm/checkpoint/reshard.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/shard.h"

namespace shale {
namespace {

constexpr int64_t kCopyBytes = int64_t{4} << 20;

// First byte of rank `rank` if `total` bytes are split evenly. Does not compute total * rank, which
// may exceed 64 bits.
int64_t begin_of(int64_t total, int64_t rank, int64_t ranks) {
  return total / ranks * rank + total % ranks * rank / ranks;
}

// Index of a tensor's first element that begins at or after byte `place` of the file. The tensor's
// data begins at byte `begin`; `size` is the size of an element.
int64_t element_at(int64_t place, int64_t begin, int64_t numel, int64_t size) {
  return std::clamp((place - begin + size - 1) / size, int64_t{0}, numel);
}

void write_parts(CheckpointReader& from, CheckpointShardWriter& writer,
                 const std::vector<TensorPart>& parts) {
  std::vector<std::byte> buffer;
  while (!writer.is_complete()) {
    const TensorPart& part = parts[writer.next()];
    const int64_t size = dtype_size(part.dtype);
    for (int64_t done = 0; done < part.count;) {
      const int64_t count = std::min(kCopyBytes / size, part.count - done);
      buffer.resize(static_cast<size_t>(count * size));
      from.read(part.tensor, part.first + done, buffer);
      writer.write(buffer);
      done += count;
    }
  }
}

}  // namespace

std::vector<std::vector<TensorPart>> even_parts(const CheckpointManifest& manifest, int ranks) {
  int64_t total = 0;
  for (const auto& [name, tensor] : manifest.tensors) {
    if (__builtin_add_overflow(total, tensor.bytes(), &total)) {
      throw DataError("checkpoint: the tensors have 2^63 bytes or more, expected fewer");
    }
  }
  std::vector<std::vector<TensorPart>> parts(static_cast<size_t>(ranks));
  int64_t begin = 0;  // first byte of this tensor among the bytes of all tensors
  for (const auto& [name, tensor] : manifest.tensors) {
    const TensorPart whole{
        .tensor = name, .dtype = tensor.dtype, .shape = tensor.shape, .count = tensor.numel()};
    if (whole.count == 0) parts[0].push_back(whole);  // an empty tensor is recorded in file 0
    const int64_t size = dtype_size(tensor.dtype);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto cut = [&](int at) {
        return element_at(begin_of(total, at, ranks), begin, whole.count, size);
      };
      TensorPart part = whole;
      part.first = cut(rank);
      part.count = cut(rank + 1) - part.first;
      if (part.count > 0) parts[static_cast<size_t>(rank)].push_back(std::move(part));
    }
    begin += tensor.bytes();
  }
  return parts;
}

void reshard_checkpoint(CheckpointReader& from, const CheckpointFolder& to, int ranks) {
  constexpr int kMaxRanks = 99'999;  // file names have five digits
  if (ranks < 1 || ranks > kMaxRanks) {
    throw ConfigError(cat("reshard: ", ranks, " ranks, expected 1 to ", kMaxRanks));
  }
  CheckpointManifest manifest;
  manifest.step = from.manifest().step;
  manifest.state = from.manifest().state;
  manifest.config = from.manifest().config;
  const std::vector<int64_t> steps = to.steps();
  if (std::find(steps.begin(), steps.end(), manifest.step) != steps.end()) {
    throw ConfigError(cat("reshard: ", to.path_of(manifest.step),
                          " already exists; delete it, or choose another folder"));
  }
  const std::vector<std::vector<TensorPart>> parts = even_parts(from.manifest(), ranks);
  const std::string nonce = make_checkpoint_nonce();
  to.begin(manifest.step, nonce);
  try {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<TensorPart>& own = parts[static_cast<size_t>(rank)];
      CheckpointShardWriter writer(to.temporary_path(manifest.step, nonce),
                                   shard_file_name(rank, ranks), own);
      write_parts(from, writer, own);
      add_shard(manifest, writer.finish());
    }
    to.commit(manifest, nonce, read_attachments(from.path(), from.manifest()));
  } catch (const Error&) {
    try {
      to.discard(manifest.step, nonce);
    } catch (const Error&) {
      // Only the first error is reported; the next run removes what discard() left.
    }
    throw;
  }
}

}  // namespace shale
