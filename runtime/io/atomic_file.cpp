#include "shale/runtime/io/atomic_file.h"

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "shale/base/error.h"

namespace shale {
namespace {

constexpr int kMaxAttempts = 1000;

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  const std::filesystem::path target = path_;
  for (int attempt = 0; attempt < kMaxAttempts && !file_.is_open(); ++attempt) {
    // Makes a name for the temporary file. Other processes, even on other machines, may write in
    // the same folder. If one has the same name, creating the file fails and the next attempt uses
    // another.
    const std::string name =
        cat('.', target.filename().string(), ".tmp-", ::getpid(), '-', attempt);
    std::string temporary = (target.parent_path() / name).string();
    if (std::optional<File> file = File::try_create(temporary, path_)) {
      file_ = std::move(*file);
      temporary_ = std::move(temporary);
    }
  }
  if (!file_.is_open()) {
    throw DiskError(cat(path_, ": ", kMaxAttempts, " temporary names next to it are taken"));
  }
}

AtomicFile::~AtomicFile() {
  discard();
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(file_, other.file_);
  return *this;
}

void AtomicFile::discard() noexcept {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::reserve(int64_t bytes) {
  file_.reserve(bytes);
}

void AtomicFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  file_.write_at(offset, bytes);
}

void AtomicFile::finish(int64_t bytes) {
  if (!file_.is_open()) return;
  file_.resize(bytes);
  file_.sync();
  file_.close();
}

void AtomicFile::commit(int64_t bytes) {
  finish(bytes);
  const std::filesystem::path temporary = temporary_;
  const Folder folder = Folder::open(temporary.parent_path().string());
  folder.rename(temporary.filename().string(), std::filesystem::path(path_).filename().string());
  temporary_.clear();
  folder.sync();
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.commit(static_cast<int64_t>(text.size()));
}

}  // namespace shale
