#include "runtime/io/checkpoint_reader.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/io/crc32c.h"

namespace shale {
namespace {

constexpr size_t kCachedChunks = 8;
// Descriptors are few: a process has 1024 by default.
constexpr int64_t kOpenFiles = 128;

std::string hex(uint32_t value) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", value);
  return digits;
}

}  // namespace

CheckpointManifest read_checkpoint_manifest(const Folder& folder) {
  const File file = File::open(folder, kManifestName);
  const int64_t bytes = file.bytes();
  if (bytes > kMaxManifestBytes) {
    throw DataError(cat(file.path(), ": ", bytes, " bytes, want at most ", kMaxManifestBytes));
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return parse_checkpoint_manifest(text, file.path());
}

CheckpointReader::CheckpointReader(const std::string& folder)
    : folder_(Folder::open(folder)),
      manifest_(read_checkpoint_manifest(folder_)),
      files_(manifest_.files.size()) {
  for (const CheckpointFile& want : manifest_.files) {
    const int64_t bytes = File::open(folder_, want.name).bytes();
    if (bytes != want.bytes) {
      throw DataError(cat(folder_.path_of(want.name), ": ", bytes, " bytes, want ", want.bytes));
    }
  }
}

const CheckpointTensor* CheckpointReader::find(std::string_view tensor) const {
  const auto it = manifest_.tensors.find(tensor);
  return it == manifest_.tensors.end() ? nullptr : &it->second;
}

// ---- Files and chunks ----

CheckpointReader::OpenFile& CheckpointReader::open(size_t file) {
  OpenFile& wanted = files_[file];
  wanted.last_use = ++uses_;
  if (wanted.file.is_open()) return wanted;
  OpenFile* oldest = nullptr;
  int64_t open_files = 0;
  for (OpenFile& other : files_) {
    if (!other.file.is_open()) continue;
    ++open_files;
    if (oldest == nullptr || other.last_use < oldest->last_use) oldest = &other;
  }
  if (open_files >= kOpenFiles) oldest->file = File();
  wanted.file = File::open(folder_, manifest_.files[file].name);
  wanted.file.expect_sequential_reads();
  return wanted;
}

int64_t CheckpointReader::chunk_size(size_t file, int64_t chunk) const {
  const int64_t begin = chunk * manifest_.chunk_bytes;
  return std::min(manifest_.chunk_bytes, manifest_.files[file].bytes - begin);
}

// A whole chunk.
void CheckpointReader::read_chunk(size_t file, int64_t chunk, std::span<std::byte> into) {
  const File& from = open(file).file;
  const int64_t begin = chunk * manifest_.chunk_bytes;
  from.read_at(begin, into);
  const uint32_t found = crc32c(into);
  const uint32_t want = manifest_.files[file].chunk_crcs[static_cast<size_t>(chunk)];
  if (found != want) {
    throw DataError(cat(from.path(), ": chunk ", chunk, " (bytes ", begin, " to ",
                        begin + static_cast<int64_t>(into.size()) - 1, ") has CRC32C ", hex(found),
                        ", want ", hex(want), "; it is damaged, or was changed"));
  }
}

std::span<const std::byte> CheckpointReader::cached_chunk(size_t file, int64_t chunk) {
  CachedChunk* oldest = nullptr;
  for (CachedChunk& cached : cache_) {
    if (cached.file == file && cached.chunk == chunk) {
      cached.last_use = ++uses_;
      return cached.bytes;
    }
    if (oldest == nullptr || cached.last_use < oldest->last_use) oldest = &cached;
  }
  if (cache_.size() < kCachedChunks) oldest = &cache_.emplace_back();
  oldest->chunk = -1;  // nothing, if the read fails
  oldest->bytes.resize(static_cast<size_t>(chunk_size(file, chunk)));
  read_chunk(file, chunk, oldest->bytes);
  oldest->file = file;
  oldest->chunk = chunk;
  oldest->last_use = ++uses_;
  return oldest->bytes;
}

void CheckpointReader::read_bytes(size_t file, int64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const int64_t chunk = offset / manifest_.chunk_bytes;
    const int64_t in_chunk = offset % manifest_.chunk_bytes;
    const int64_t size = chunk_size(file, chunk);
    const size_t count = std::min(into.size(), static_cast<size_t>(size - in_chunk));
    if (static_cast<int64_t>(count) == size) {
      read_chunk(file, chunk, into.first(count));
    } else {
      const auto bytes = cached_chunk(file, chunk);
      std::memcpy(into.data(), bytes.data() + in_chunk, count);
    }
    into = into.subspan(count);
    offset += static_cast<int64_t>(count);
  }
}

// ---- Tensors ----

SafetensorsHeader CheckpointReader::read_header(size_t file) {
  const int64_t file_bytes = manifest_.files[file].bytes;
  const std::string path = folder_.path_of(manifest_.files[file].name);
  std::vector<std::byte> front(8);
  read_bytes(file, 0, front);
  front.resize(static_cast<size_t>(safetensors_data_begin(front, file_bytes, path)));
  read_bytes(file, 0, front);
  return parse_safetensors_header(front, file_bytes, path);
}

const SafetensorsEntry& CheckpointReader::entry_of(size_t file, const TensorPart& part) {
  auto& entries = files_[file].entries;
  if (entries.empty()) {
    for (SafetensorsEntry& entry : read_header(file).entries) {
      std::string name = entry.name;
      entries.emplace(std::move(name), std::move(entry));
    }
  }
  const auto it = entries.find(stored_name(part));
  if (it == entries.end() || it->second.type->dtype != part.dtype ||
      it->second.shape != stored_shape(part)) {
    throw DataError(cat(folder_.path_of(manifest_.files[file].name), ": ",
                        it == entries.end() ? "no tensor" : "another type or shape of", " '",
                        stored_name(part), "', which the manifest places there"));
  }
  return it->second;
}

void CheckpointReader::read(std::string_view tensor, int64_t first, std::span<std::byte> into) {
  const CheckpointTensor* found = find(tensor);
  if (found == nullptr) throw DataError(cat(path(), ": no tensor '", tensor, "'"));
  const int64_t size = dtype_size(found->dtype);
  const int64_t count = static_cast<int64_t>(into.size()) / size;
  if (static_cast<int64_t>(into.size()) % size != 0 || first < 0 ||
      count > found->numel() - first) {
    throw InternalError(cat("checkpoint: ", into.size(), " bytes of tensor '", tensor,
                            "' from element ", first, ", which has ", found->numel(), " of ", size,
                            " bytes"));
  }
  for (const CheckpointTensor::Box& box : found->boxes) {
    for (const CheckpointTensor::Part& stored : box.parts) {
      const TensorPart part = part_of(tensor, *found, box, stored);
      for_each_run(part, first, count, [&](const TensorRun& run) {
        const auto file = static_cast<size_t>(stored.file);
        read_bytes(file, entry_of(file, part).begin + run.in_part * size,
                   into.subspan(static_cast<size_t>((run.in_tensor - first) * size),
                                static_cast<size_t>(run.count * size)));
      });
    }
  }
}

// ---- Verifying ----

void CheckpointReader::verify_file(size_t file) {
  const CheckpointFile& want = manifest_.files[file];
  std::vector<std::byte> buffer;
  for (size_t chunk = 0; chunk < want.chunk_crcs.size(); ++chunk) {
    const auto number = static_cast<int64_t>(chunk);
    buffer.resize(static_cast<size_t>(chunk_size(file, number)));
    read_chunk(file, number, buffer);
  }
  size_t parts = 0;
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const CheckpointTensor::Box& box : tensor.boxes) {
      for (const CheckpointTensor::Part& part : box.parts) {
        if (static_cast<size_t>(part.file) != file) continue;
        entry_of(file, part_of(name, tensor, box, part));
        ++parts;
      }
    }
  }
  const size_t entries = read_header(file).entries.size();
  if (entries != parts) {
    throw DataError(cat(folder_.path_of(want.name), ": ", entries, " tensors, want the ", parts,
                        " that the manifest places there"));
  }
}

void CheckpointReader::verify() {
  for (size_t file = 0; file < files_.size(); ++file) verify_file(file);
}

}  // namespace shale
