#include "shale/runtime/io/safetensors_writer.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/io/file.h"
#include "shale/runtime/io/safetensors_format.h"
#include "shale/runtime/io/safetensors_index.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsSpec> tensors,
                                     std::map<std::string, std::string> metadata)
    : tensors_(std::move(tensors)), file_(path) {
  metadata.emplace("format", "pt");
  const SafetensorsLayout layout = lay_out_safetensors(tensors_, metadata);
  begins_ = layout.begins;
  file_bytes_ = layout.file_bytes;
  file_.reserve(file_bytes_);
  file_.write_at(0, std::as_bytes(std::span(layout.front)));
  skip_complete();
}

const SafetensorsSpec* SafetensorsWriter::current() const {
  return current_ < tensors_.size() ? &tensors_[current_] : nullptr;
}

void SafetensorsWriter::skip_complete() {
  while (current() != nullptr && written_ == current()->bytes()) {
    ++current_;
    written_ = 0;
  }
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const int64_t left = current() == nullptr ? 0 : current()->bytes() - written_;
  if (static_cast<int64_t>(bytes.size()) > left) {
    throw InternalError(cat(file_.path(), ": ", bytes.size(), " bytes for tensor '",
                            current() == nullptr ? "(none)" : current()->name,
                            "', expected at most the ", left, " bytes left"));
  }
  file_.write_at(begins_[current_] + written_, bytes);
  written_ += static_cast<int64_t>(bytes.size());
  skip_complete();
}

void SafetensorsWriter::write(const View& tensor) {
  if (tensor.numel() == 0) return;  // an empty tensor is complete from the start
  const SafetensorsSpec* spec = current();
  const auto fail = [&](const std::string& problem) {
    throw InternalError(cat(file_.path(), ": ", tensor, " given for tensor '",
                            spec == nullptr ? "(none)" : spec->name, "'", problem));
  };
  if (spec == nullptr) fail(", expected nothing more");
  const bool same_shape =
      std::equal(tensor.shape.begin(), tensor.shape.end(), spec->shape.begin(), spec->shape.end());
  if (tensor.dtype != spec->dtype || !same_shape) {
    fail(", which was declared with another dtype or shape");
  }
  if (!tensor.contiguous()) fail(", expected a dense tensor");
  if (written_ != 0) fail(cat(", of which ", written_, " bytes are written already"));
  write(std::span(static_cast<const std::byte*>(tensor.data), static_cast<size_t>(tensor.bytes())));
}

void SafetensorsWriter::finish() {
  if (current() != nullptr) {
    throw InternalError(cat(file_.path(), ": tensor '", current()->name, "' has ", written_,
                            " of its ", current()->bytes(), " bytes"));
  }
  file_.finish(file_bytes_);
}

void SafetensorsWriter::commit() {
  finish();
  file_.commit(file_bytes_);
}

namespace {

std::vector<std::vector<SafetensorsSpec>> make_shards(std::vector<SafetensorsSpec> tensors,
                                                      int64_t max_bytes) {
  std::vector<std::vector<SafetensorsSpec>> shards(1);
  int64_t bytes = 0;
  for (SafetensorsSpec& spec : tensors) {
    const int64_t more = spec.bytes();
    if (!shards.back().empty() && more > max_bytes - bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(std::move(spec));
  }
  return shards;
}

std::string make_index(const std::vector<std::vector<SafetensorsSpec>>& shards) {
  SafetensorsWeightMap weight_map;
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const SafetensorsSpec& spec : shards[i]) {
      weight_map[spec.name] = safetensors_file_name(i, shards.size());
      total += spec.bytes();
    }
  }
  return make_safetensors_index(weight_map, total);
}

// Removes the files with these names, as far as they exist, and syncs the folder.
void remove_names(const Folder& folder, const std::vector<std::string>& names) {
  bool removed = false;
  for (const std::string& name : names) {
    if (!folder.has(name)) continue;
    folder.remove_file(name);
    removed = true;
  }
  if (removed) folder.sync();
}

}  // namespace

SafetensorsFolderWriter::SafetensorsFolderWriter(std::string folder,
                                                 std::vector<SafetensorsSpec> tensors,
                                                 const SafetensorsFolderOptions& options)
    : folder_(std::move(folder)) {
  check_safetensors_specs(tensors);  // checks that names are unique across all files
  Folder::make(folder_);
  auto shards = make_shards(std::move(tensors), options.max_shard_bytes);
  if (shards.size() > 1) index_ = make_index(shards);
  // Creates all files first, so that a full disk is reported before anything is written.
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string path = (fs::path(folder_) / safetensors_file_name(i, shards.size())).string();
    writers_.emplace_back(path, std::move(shards[i]), options.metadata);
  }
}

SafetensorsWriter& SafetensorsFolderWriter::current_writer() {
  while (current_ + 1 < writers_.size() && writers_[current_].current() == nullptr) ++current_;
  return writers_[current_];
}

void SafetensorsFolderWriter::write(std::span<const std::byte> bytes) {
  current_writer().write(bytes);
}

void SafetensorsFolderWriter::write(const View& tensor) {
  current_writer().write(tensor);
}

const SafetensorsSpec* SafetensorsFolderWriter::current() const {
  for (size_t i = current_; i < writers_.size(); ++i) {
    if (writers_[i].current() != nullptr) return writers_[i].current();
  }
  return nullptr;
}

void SafetensorsFolderWriter::finish() {
  if (current() != nullptr) {
    throw InternalError(cat(folder_, ": tensor '", current()->name, "' is not complete"));
  }
  for (SafetensorsWriter& writer : writers_) writer.finish();
}

void SafetensorsFolderWriter::commit() {
  finish();  // completes all files before the first rename
  const Folder folder = Folder::open(folder_);
  std::set<std::string> parts;  // names of the new files; empty if there is a single file
  for (size_t i = 0; i < writers_.size() && !index_.empty(); ++i) {
    parts.insert(safetensors_file_name(i, writers_.size()));
  }
  // Readers prefer a single file to an index. So a new single file is valid as soon as it has its
  // name. If there are several new files, readers switch to them when the old single file is
  // removed; without one, when the index appears. Only if new files replace old ones of the same
  // names is there a time without a model, because the old index is removed first.
  const auto is_there = [&](const std::string& name) { return folder.has(name); };
  if (std::any_of(parts.begin(), parts.end(), is_there)) {
    remove_names(folder, {kSafetensorsIndexFile});
  }
  for (SafetensorsWriter& writer : writers_) writer.commit();
  if (!index_.empty()) {
    write_file_atomically((fs::path(folder_) / kSafetensorsIndexFile).string(), index_);
  }
  remove_names(folder, {index_.empty() ? kSafetensorsIndexFile : kSafetensorsSingleFile});
  std::vector<std::string> stale;
  for (const std::string& name : folder.names()) {
    if (is_safetensors_part_name(name) && !parts.contains(name)) stale.push_back(name);
  }
  remove_names(folder, stale);
}

}  // namespace shale
