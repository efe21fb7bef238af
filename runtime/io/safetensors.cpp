#include "shale/runtime/io/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/io/safetensors_index.h"

namespace shale {

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path), header_(parse_safetensors_header(file_.bytes(), path)) {
  check();
  for (size_t i = 0; i < header_.entries.size(); ++i) index_[header_.entries[i].name] = i;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &header_.entries[it->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return file_.bytes().subspan(static_cast<size_t>(entry.begin), static_cast<size_t>(entry.bytes));
}

View SafetensorsFile::view(const SafetensorsEntry& entry) const {
  const auto fail = [&](const std::string& problem) {
    throw DataError(cat(path(), ": tensor '", excerpt(entry.name), "' ", problem));
  };
  if (!entry.type->dtype) fail(cat("has elements of type ", entry.type->name, ", not supported"));
  if (entry.shape.size() > static_cast<size_t>(kMaxDims)) {
    fail(cat("has ", entry.shape.size(), " dimensions, expected at most ", kMaxDims));
  }
  const std::byte* data = bytes(entry).data();
  const auto alignment = static_cast<uintptr_t>(dtype_size(*entry.type->dtype));
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    fail(cat("begins at byte ", entry.begin, ", which is not aligned to ", entry.type->name));
  }
  return make_view(const_cast<std::byte*>(data), *entry.type->dtype, Shape(entry.shape));
}

namespace {

namespace fs = std::filesystem;

}  // namespace

SafetensorsFolder::SafetensorsFolder(const std::string& path) {
  const std::string single = (fs::path(path) / kSafetensorsSingleFile).string();
  const std::string index = (fs::path(path) / kSafetensorsIndexFile).string();
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    add_file(path);
  } else if (!fs::exists(single, error) && fs::exists(index, error)) {
    open_index(path, index);
  } else if (fs::exists(single, error)) {
    add_file(single);
  } else {
    throw MissingInputError(
        cat(path, ": found neither ", kSafetensorsSingleFile, " nor ", kSafetensorsIndexFile));
  }
}

void SafetensorsFolder::open_index(const std::string& folder, const std::string& index_path) {
  const MappedFile index(index_path, {.allow_empty = true});
  const SafetensorsWeightMap weight_map = parse_safetensors_index(index.text(), index_path);
  index.check();
  std::vector<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.push_back(file);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) {
    add_file((std::filesystem::path(folder) / name).string());
  }
  for (const auto& [name, tensor] : tensors_) {
    const auto it = weight_map.find(name);
    const std::string file = std::filesystem::path(tensor.file->path()).filename().string();
    if (it == weight_map.end()) {
      throw DataError(
          cat(index_path, ": tensor '", excerpt(name), "' of ", file, " is not in the index"));
    }
    if (it->second != file) {
      throw DataError(cat(index_path, ": tensor '", excerpt(name), "' should be in ", it->second,
                          ", but is in ", file));
    }
  }
  for (const auto& [name, file] : weight_map) {
    if (!tensors_.contains(name)) {
      throw DataError(
          cat(index_path, ": tensor '", excerpt(name), "' should be in ", file, ", but is not"));
    }
  }
}

void SafetensorsFolder::add_file(const std::string& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  const SafetensorsFile& file = *files_.back();
  for (const SafetensorsEntry& entry : file.entries()) {
    const auto [it, is_new] = tensors_.try_emplace(entry.name, Tensor{&file, &entry});
    if (!is_new) {
      throw DataError(
          cat(path, ": tensor '", excerpt(entry.name), "' is also in ", it->second.file->path()));
    }
  }
}

const SafetensorsFolder::Tensor* SafetensorsFolder::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace shale
