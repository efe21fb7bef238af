#include "shale/comm/checkpoint/reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/base/stream_copy.h"
#include "shale/comm/checkpoint/chunks.h"
#include "shale/comm/checkpoint/folder.h"

namespace shale {
namespace {

constexpr size_t kCachedChunks = 8;
// File descriptors are limited: a process has 1024 by default.
constexpr int64_t kOpenFiles = 128;

}  // namespace

std::string read_manifest_text(const Folder& folder) {
  File file = File::open(folder, kManifestName);
  const int64_t bytes = file.bytes();
  if (bytes > kMaxManifestBytes) {
    throw DataError(cat(file.path(), ": ", bytes, " bytes, expected at most ", kMaxManifestBytes));
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

CheckpointManifest read_checkpoint_manifest(const Folder& folder) {
  return parse_checkpoint_manifest(read_manifest_text(folder), folder.path_of(kManifestName));
}

CheckpointReader::CheckpointReader(const std::string& folder)
    : CheckpointReader(folder, read_checkpoint_manifest(Folder::open(folder))) {
  check_files();
}

CheckpointReader::CheckpointReader(const std::string& folder, CheckpointManifest manifest)
    : folder_(Folder::open(folder)),
      manifest_(std::move(manifest)),
      files_(manifest_.files.size()) {
  // A renamed folder could be mistaken for a checkpoint of another step.
  const auto step = parse_checkpoint_name(std::filesystem::path(folder).filename().string());
  if (step && *step != manifest_.step) {
    throw DataError(cat(folder, ": manifest.json has step ", manifest_.step, ", expected step ",
                        *step, " as in the folder's name; was the folder renamed?"));
  }
}

void CheckpointReader::check_files() const {
  for (const CheckpointFile& want : manifest_.files) {
    const int64_t bytes = File::open(folder_, want.name).bytes();
    if (bytes != want.bytes) {
      throw DataError(
          cat(folder_.path_of(want.name), ": ", bytes, " bytes, expected ", want.bytes));
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

std::span<const std::byte> CheckpointReader::cached_chunk(ChunkId id) {
  CachedChunk* oldest = nullptr;
  for (CachedChunk& cached : cache_) {
    if (cached.id == id) {
      cached.last_use = ++uses_;
      return cached.bytes;
    }
    if (oldest == nullptr || cached.last_use < oldest->last_use) oldest = &cached;
  }
  if (cache_.size() < kCachedChunks) oldest = &cache_.emplace_back();
  oldest->id = CachedChunk().id;  // invalid until the read has succeeded
  oldest->bytes.resize(static_cast<size_t>(chunk_bytes(manifest_, id)));
  read_chunk(id, oldest->bytes);
  oldest->id = id;
  oldest->last_use = ++uses_;
  return oldest->bytes;
}

// Reads and verifies a whole chunk.
void CheckpointReader::read_chunk(ChunkId id, std::span<std::byte> into) {
  File& from = open(id.file).file;
  from.read_at(chunk_begin(manifest_, id), into);
  check_chunk(manifest_, id, from.path(), into);
}

void CheckpointReader::read_bytes(size_t file, int64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const ChunkId id{file, offset / manifest_.chunk_bytes};
    const int64_t in_chunk = offset % manifest_.chunk_bytes;
    const int64_t size = chunk_bytes(manifest_, id);
    const size_t count = std::min(into.size(), static_cast<size_t>(size - in_chunk));
    if (static_cast<int64_t>(count) == size) {
      read_chunk(id, into.first(count));
    } else {
      std::memcpy(into.data(), cached_chunk(id).data() + in_chunk, count);
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
    throw DataError(cat(folder_.path_of(manifest_.files[file].name), ": tensor '",
                        excerpt(stored_name(part)), "' ",
                        it == entries.end() ? "is missing, but the manifest lists it for this file"
                                            : "has another type or shape than in the manifest"));
  }
  return it->second;
}

void CheckpointReader::for_each_run_of(const CheckpointRead& wanted,
                                       const std::function<void(const Run&)>& visit) {
  const CheckpointTensor* found = find(wanted.tensor);
  if (found == nullptr) throw DataError(cat(path(), ": no tensor '", excerpt(wanted.tensor), "'"));
  const int64_t size = dtype_size(found->dtype);
  const auto bytes = static_cast<int64_t>(wanted.into.size());
  const int64_t first = wanted.first;
  const int64_t count = bytes / size;
  if (bytes % size != 0 || first < 0 || count > found->numel() - first) {
    throw InternalError(cat("checkpoint: read of ", bytes, " bytes of tensor '",
                            excerpt(wanted.tensor), "' from element ", first,
                            ", expected whole elements within its ", found->numel(),
                            " elements of ", size, " bytes each"));
  }
  // Parts of a single box are sorted, so a binary search finds the first requested part.
  const bool in_order = found->boxes.size() == 1;
  for (const CheckpointTensor::Box& box : found->boxes) {
    auto begin = box.parts.begin(), end = box.parts.end();
    if (in_order) {
      begin = std::partition_point(begin, end,
                                   [&](const auto& p) { return p.first + p.count <= first; });
      end =
          std::partition_point(begin, end, [&](const auto& p) { return p.first < first + count; });
    }
    for (const CheckpointTensor::Part& stored : std::span(begin, end)) {
      const TensorPart part = part_of(wanted.tensor, *found, box, stored);
      for_each_run(part, first, count, [&](const TensorRun& run) {
        const auto file = static_cast<size_t>(stored.file);
        const auto place = static_cast<size_t>((run.in_tensor - first) * size);
        visit({.place = {file, entry_of(file, part).begin + run.in_part * size},
               .into = wanted.into.subspan(place, static_cast<size_t>(run.count * size))});
      });
    }
  }
}

void CheckpointReader::read(std::string_view tensor, int64_t first, std::span<std::byte> into) {
  for_each_run_of({tensor, first, into},
                  [&](const Run& run) { read_bytes(run.place.file, run.place.offset, run.into); });
}

void CheckpointReader::read_all(std::span<const CheckpointRead> wanted, bool shared) {
  const auto chunk_of = [&](const Place& place) {
    return ChunkId{place.file, place.offset / manifest_.chunk_bytes};
  };
  std::vector<Run> runs;  // each run lies inside one chunk
  for (const CheckpointRead& one : wanted) {
    for_each_run_of(one, [&](Run run) {
      while (!run.into.empty()) {
        const int64_t room = manifest_.chunk_bytes - run.place.offset % manifest_.chunk_bytes;
        const size_t count = std::min(run.into.size(), static_cast<size_t>(room));
        runs.push_back({run.place, run.into.first(count)});
        run = {{run.place.file, run.place.offset + room}, run.into.subspan(count)};
      }
    });
  }
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.place < b.place; });
  std::vector<ChunkId> order;
  // indices in `runs`: the first run of each chunk in `order`, then the number of runs
  std::vector<size_t> first_run;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Place& place = runs[i].place;
    if (i > 0 && runs[i - 1].place.file == place.file &&
        runs[i - 1].place.offset + static_cast<int64_t>(runs[i - 1].into.size()) > place.offset) {
      throw InternalError(cat("checkpoint: byte ", place.offset, " of ",
                              manifest_.files[place.file].name, " was requested twice"));
    }
    if (!order.empty() && order.back() == chunk_of(place)) continue;
    order.push_back(chunk_of(place));
    first_run.push_back(i);
  }
  first_run.push_back(runs.size());
  // No two runs write to the same memory, so the reading threads need no lock.
  read_chunks(folder_, manifest_, order, shared, [&](size_t i, std::span<const std::byte> bytes) {
    const int64_t begin = chunk_begin(manifest_, order[i]);
    for (size_t r = first_run[i]; r < first_run[i + 1]; ++r) {
      const Run& run = runs[r];
      stream_copy(run.into.data(), bytes.data() + (run.place.offset - begin), run.into.size());
    }
  });
}

CheckpointReader::Place CheckpointReader::place_of(std::string_view tensor, int64_t element) {
  std::optional<Place> place;
  std::array<std::byte, 16> one{};  // room for an element of any type
  const CheckpointTensor* found = find(tensor);
  const auto size = static_cast<size_t>(found == nullptr ? 1 : dtype_size(found->dtype));
  for_each_run_of({tensor, element, std::span(one).first(size)},
                  [&](const Run& run) { place = run.place; });
  return place.value();
}

// ---- Verifying ----

const std::vector<CheckpointReader::StoredPart>& CheckpointReader::parts_of(size_t file) {
  if (!parts_.empty()) return parts_[file];
  parts_.resize(files_.size());
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const CheckpointTensor::Box& box : tensor.boxes) {
      for (const CheckpointTensor::Part& part : box.parts) {
        parts_[static_cast<size_t>(part.file)].push_back({&name, &tensor, &box, &part});
      }
    }
  }
  return parts_[file];
}

void CheckpointReader::verify_file(size_t file) {
  const CheckpointFile& want = manifest_.files[file];
  std::vector<ChunkId> order;
  for (size_t chunk = 0; chunk < want.chunk_crcs.size(); ++chunk) {
    order.push_back({file, static_cast<int64_t>(chunk)});
  }
  read_chunks(folder_, manifest_, order, /*shared=*/false, [](size_t, auto) {});
  const size_t parts = parts_of(file).size();
  for (const StoredPart& stored : parts_of(file)) {
    entry_of(file, part_of(*stored.tensor, *stored.whole, *stored.box, *stored.part));
  }
  const size_t entries = read_header(file).entries.size();
  if (entries != parts) {
    throw DataError(cat(folder_.path_of(want.name), ": ", entries, " tensors, expected the ", parts,
                        " that the manifest lists for this file"));
  }
}

void CheckpointReader::verify() {
  for (size_t file = 0; file < files_.size(); ++file) verify_file(file);
}

}  // namespace shale
