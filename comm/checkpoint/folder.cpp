#include "shale/comm/checkpoint/folder.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <span>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/file.h"

namespace shale {
namespace {

constexpr std::string_view kTrash = ".trash-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kStep = "step_";

std::string temporary_name(int64_t step, std::string_view nonce) {
  return cat(checkpoint_name(step), kTemporary, nonce);
}

bool is_leftover(std::string_view name) {
  if (name.starts_with(kTrash)) return true;
  const size_t end = name.find(kTemporary);
  // Names such as ".latest.tmp-1-0" are leftovers of AtomicFile.
  return end != name.npos &&
         (parse_checkpoint_name(name.substr(0, end)) || name.starts_with(".latest"));
}

// Renames a checkpoint before its files are deleted, because an incomplete checkpoint must never be
// visible. Returns the new name.
std::string move_to_trash(const Folder& folder, const std::string& name) {
  const std::string trash = cat(kTrash, make_checkpoint_nonce(), "-", name);
  folder.rename(name, trash);
  return trash;
}

// True if the manifest is valid and all files have the right sizes.
bool is_sound(const std::string& path) {
  try {
    CheckpointReader reader(path);
    return true;
  } catch (const DataError&) {
    return false;
  } catch (const MissingInputError&) {
    return false;
  }
}

void write_new_file(const Folder& folder, const std::string& name, std::string_view text) {
  File file = File::create(folder, name);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.sync();
  file.close();
}

}  // namespace

std::optional<std::string> newest_checkpoint(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(fs::path(path) / kManifestName, error)) return path;
  for (const fs::path& folder : {fs::path(path), fs::path(path) / "checkpoints"}) {
    if (!fs::is_directory(folder, error)) continue;
    const CheckpointFolder checkpoints(folder.string());
    const std::vector<int64_t> steps = checkpoints.steps();
    if (!steps.empty()) return checkpoints.path_of(steps.front());
  }
  return std::nullopt;
}

CheckpointFolder::Attachments read_attachments(const std::string& checkpoint,
                                               const CheckpointManifest& manifest) {
  std::set<std::string> known = {kManifestName};
  for (const CheckpointFile& file : manifest.files) known.insert(file.name);
  CheckpointFolder::Attachments attachments;
  const Folder folder = Folder::open(checkpoint);
  for (const std::string& name : folder.names()) {
    if (known.contains(name) || !is_plain_file_name(name)) continue;
    File file = File::open(folder, name);
    std::string& bytes = attachments[name];
    bytes.resize(static_cast<size_t>(file.bytes()));
    file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  }
  return attachments;
}

std::string make_checkpoint_nonce() {
  uint64_t value = 0;
  if (::getrandom(&value, sizeof value, 0) != sizeof value) {
    throw InternalError(cat("getrandom failed: ", std::strerror(errno)));
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
  return digits;
}

std::string checkpoint_name(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step_%08lld", static_cast<long long>(step));
  return name;
}

std::optional<int64_t> parse_checkpoint_name(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::optional<int64_t> step = parse_int(name.substr(kStep.size()));
  if (!step || *step < 0 || checkpoint_name(*step) != name) return std::nullopt;
  return step;
}

std::string CheckpointFolder::path_of(int64_t step) const {
  return cat(path_, "/", checkpoint_name(step));
}

std::string CheckpointFolder::temporary_path(int64_t step, std::string_view nonce) const {
  return cat(path_, "/", temporary_name(step, nonce));
}

std::vector<int64_t> CheckpointFolder::steps() const {
  std::vector<int64_t> steps;
  try {
    for (const std::string& name : Folder::open(path_).names()) {
      if (const auto step = parse_checkpoint_name(name)) steps.push_back(*step);
    }
  } catch (const MissingInputError&) {
    return {};
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

int64_t CheckpointFolder::clean() const {
  int64_t count = 0;
  try {
    const Folder folder = Folder::open(path_);
    for (const std::string& name : folder.names()) {
      if (!is_leftover(name)) continue;
      folder.remove_all(name);
      ++count;
    }
    if (count > 0) folder.sync();
  } catch (const MissingInputError&) {
    return 0;
  }
  return count;
}

void CheckpointFolder::begin(int64_t step, std::string_view nonce) const {
  Folder::make(path_).make_folder(temporary_name(step, nonce));
}

void CheckpointFolder::commit(const CheckpointManifest& manifest, std::string_view nonce,
                              const Attachments& attachments) const {
  const Folder folder = Folder::open(path_);
  const std::string temporary_folder = temporary_name(manifest.step, nonce);
  const std::string text = to_json(manifest);
  {
    const Folder temporary = folder.open_folder(temporary_folder);
    for (const auto& [name, bytes] : attachments) write_new_file(temporary, name, bytes);
    write_new_file(temporary, kManifestName, text);
    temporary.sync();
  }
  const std::string name = checkpoint_name(manifest.step);
  std::string trash;
  if (folder.has(name)) trash = move_to_trash(folder, name);
  try {
    folder.rename(temporary_folder, name);
  } catch (const DiskError&) {
    if (!trash.empty()) folder.rename(trash, name);
    throw;
  }
  folder.sync();
  write_file_atomically(cat(path_, "/latest"), name + "\n");
  if (!trash.empty()) folder.remove_all(trash);
}

void CheckpointFolder::discard(int64_t step, std::string_view nonce) const {
  const Folder folder = Folder::open(path_);
  const std::string name = temporary_name(step, nonce);
  if (!folder.has(name)) return;
  folder.remove_all(name);
  folder.sync();
}

void CheckpointFolder::retire(int64_t keep, int64_t committed,
                              const std::function<bool(int64_t step)>& spares,
                              std::set<int64_t>* known_sound) const {
  if (keep < 1) throw InternalError(cat("checkpoint: keep ", keep, ", expected at least 1"));
  const Folder folder = Folder::open(path_);
  std::vector<std::string> trash;
  std::set<int64_t> none;
  std::set<int64_t>& sound = known_sound != nullptr ? *known_sound : none;
  for (const int64_t step : steps()) {
    if (keep > 0) {
      if (!sound.contains(step) && !is_sound(path_of(step))) continue;
      sound.insert(step);
      --keep;
    } else if (step != committed && !(spares && spares(step))) {
      trash.push_back(move_to_trash(folder, checkpoint_name(step)));
      sound.erase(step);
    }
  }
  if (trash.empty()) return;
  // Write the new names to disk first. Otherwise a crash could bring back the old name of a
  // checkpoint that has lost some of its files.
  folder.sync();
  for (const std::string& name : trash) folder.remove_all(name);
}

}  // namespace shale
