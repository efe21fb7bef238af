#include "shale/runtime/data/split.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "shale/base/error.h"
#include "shale/base/rng.h"

namespace shale::data_internal {
namespace {

namespace fs = std::filesystem;

// Returns true for letters. Bytes of non-ASCII characters count as letters, so that such a
// character does not end a word.
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
}

}  // namespace

FileUse use_of_name(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kValidation = {"val", "valid", "validation",
                                                                  "dev"};
  FileUse use = FileUse::kTrain;
  std::string word;
  for (size_t i = 0; i <= name.size(); ++i) {
    if (i < name.size() && is_letter(name[i])) {
      const bool is_large = name[i] >= 'A' && name[i] <= 'Z';
      word += is_large ? static_cast<char>(name[i] - 'A' + 'a') : name[i];
      continue;
    }
    if (std::find(kValidation.begin(), kValidation.end(), word) != kValidation.end()) {
      return FileUse::kValidation;
    }
    if (word == "test") use = FileUse::kNone;
    word.clear();
  }
  return use;
}

std::vector<std::string> folders_by_use(const std::string& folder) {
  std::vector<std::string> folders = {folder};
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    const bool has_use = name == "train" || use_of_name(name) != FileUse::kTrain;
    if (has_use && it->is_directory(ignored)) folders.push_back(it->path().string());
  }
  return folders;
}

std::vector<FileUse> divide_files(const std::vector<std::string>& names,
                                  const std::string& source) {
  std::vector<FileUse> uses;
  for (const std::string& name : names) uses.push_back(use_of_name(name));
  const auto has = [&](FileUse use) {
    return std::find(uses.begin(), uses.end(), use) != uses.end();
  };
  if (!names.empty() && !has(FileUse::kTrain)) {
    throw DataError(cat(source, ": no files for training; the names of all ", names.size(),
                        " files, such as ", names.front(),
                        ", mark validation or test data; pass the parent folder or a single file"));
  }
  if (!has(FileUse::kValidation)) {
    std::replace(uses.begin(), uses.end(), FileUse::kNone, FileUse::kValidation);
  }
  return uses;
}

std::vector<std::string> names_below_common_folder(const std::vector<std::string>& paths) {
  if (paths.size() == 1) return {""};
  std::vector<fs::path> plain;
  for (const std::string& path : paths) plain.push_back(fs::path(path).lexically_normal());
  fs::path common = plain.empty() ? fs::path() : plain.front().parent_path();
  for (const fs::path& path : plain) {
    const auto [end, rest] = std::mismatch(common.begin(), common.end(), path.begin(), path.end());
    fs::path shared;
    for (auto part = common.begin(); part != end; ++part) shared /= *part;
    common = shared;
  }
  std::vector<std::string> names;
  for (const fs::path& path : plain) {
    const fs::path name = common.empty() ? path : path.lexically_relative(common);
    names.push_back(name.generic_string());
  }
  return names;
}

uint32_t split_hash(uint32_t crc, int64_t bytes) {
  const auto size = static_cast<uint64_t>(bytes);
  return philox({crc, static_cast<uint32_t>(size), static_cast<uint32_t>(size >> 32), 2},
                {0, 0})[0];
}

bool is_held_out(uint32_t hash, double fraction) {
  return hash < fraction * 0x1p32;
}

std::vector<bool> hold_out(const std::vector<uint32_t>& hashes, double fraction) {
  std::vector<bool> chosen(hashes.size(), false);
  if (fraction == 0 || hashes.empty()) return chosen;
  const auto [lowest, highest] = std::minmax_element(hashes.begin(), hashes.end());
  for (size_t i = 0; i < hashes.size(); ++i) {
    const bool is_low = is_held_out(hashes[i], fraction) || hashes[i] == *lowest;
    chosen[i] = is_low && hashes[i] != *highest;
  }
  return chosen;
}

}  // namespace shale::data_internal
