#include "shale/runtime/data/corpus/documents.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/text.h"
#include "shale/runtime/data/text/text_files.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBytes = size_t{1} << 20;

CorpusFile corpus_file(std::string name, std::string path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    const std::string problem = cat(path, ": ", std::strerror(errno));
    if (errno == ENOENT || errno == ENOTDIR) throw MissingInputError(problem);
    throw DataError(problem);
  }
  if (!S_ISREG(info.st_mode)) throw DataError(cat(path, ": neither a file nor a folder"));
  const std::string_view plain = without_compression(path);
  return {.name = std::move(name),
          .path = path,
          .bytes = info.st_size,
          .modified = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec,
          .is_jsonl = plain.ends_with(".jsonl") || plain.ends_with(".ndjson")};
}

// Most binaries show a NUL at the start.
bool looks_binary(const CorpusFile& file) {
  std::string start(8192, ' ');
  const size_t count = open_byte_source(file.path)->read(start);
  return start.find('\0') < count;
}

void list_folder(const std::string& folder, std::vector<CorpusFile>& files) {
  const size_t before = files.size();
  data_internal::SkippedFiles skipped;
  for (const data_internal::ListedFile& listed : data_internal::list_files(folder, skipped)) {
    CorpusFile file = corpus_file(listed.name, listed.path);
    if (file.bytes > 0 && !looks_binary(file)) files.push_back(std::move(file));
  }
  if (skipped.unreadable > 0) {
    throw DataError(cat(folder, ": ", skipped.unreadable, " files or folders cannot be read"));
  }
  if (files.size() == before) throw DataError(cat(folder, ": no text or jsonl in this folder"));
}

}  // namespace

std::vector<CorpusFile> list_corpus(const std::vector<std::string>& paths) {
  std::vector<CorpusFile> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      list_folder(path, files);
    } else {
      files.push_back(corpus_file(path, path));
    }
  }
  return files;
}

BatchReader::BatchReader(const std::vector<CorpusFile>& files, FindCut find_cut,
                         CorpusPosition from)
    : files_(files), find_cut_(std::move(find_cut)), at_(from) {
  for (int64_t i = 0; i < from.file; ++i) taken_before_ += files[static_cast<size_t>(i)].bytes;
  if (from.offset > 0) {
    source_ = open_byte_source(files[static_cast<size_t>(from.file)].path);
    source_->skip(from.offset);
  }
}

bool BatchReader::open_next() {
  if (at_.file == std::ssize(files_)) return false;
  source_ = open_byte_source(files_[static_cast<size_t>(at_.file)].path);
  return true;
}

// Reads until so much is pending, or the source ends.
void BatchReader::fill(size_t bytes) {
  while (!at_end_ && pending_.size() < bytes) {
    const size_t had = pending_.size();
    pending_.resize(had + kReadBytes);
    const size_t got = source_->read(std::span(pending_).subspan(had));
    pending_.resize(had + got);
    at_end_ = got == 0;
  }
}

// The end of the next batch in what is pending.
size_t BatchReader::find_end(const CorpusFile& file) {
  const size_t most = kBatchBytes + (file.is_jsonl ? kMaxLineBytes : kMaxPartBytes);
  // What was looked at and has no end is not looked at again, but for the last characters.
  for (size_t from = kBatchBytes;; from = std::max(kBatchBytes, pending_.size() - 8)) {
    fill(std::max(from, pending_.size()) + kReadBytes);
    if (pending_.size() <= kBatchBytes) return pending_.size();
    if (file.is_jsonl) {
      const size_t newline = pending_.find('\n', from - 1);
      if (newline != pending_.npos) return newline + 1;
    } else {
      const size_t cut = find_cut_(pending_, from);
      if (cut < pending_.size()) return cut;
    }
    if (at_end_) return pending_.size();
    if (pending_.size() < most) continue;
    if (file.is_jsonl) {
      const int64_t line = at_.line + std::count(pending_.begin(), pending_.end(), '\n') + 1;
      throw DataError(cat(file.path, ":", line, ": a line of more than ",
                          format_bytes(static_cast<double>(kMaxLineBytes)), ", want less"));
    }
    throw DataError(cat(file.path, ": ", format_bytes(static_cast<double>(kMaxPartBytes)),
                        " from byte ", at_.offset,
                        " on have no place at which this tokenizer's text can be cut; want smaller "
                        "documents, as lines of jsonl"));
  }
}

bool BatchReader::next(DocumentBatch& batch) {
  while (true) {
    if (source_ == nullptr && !open_next()) return false;
    const CorpusFile& file = files_[static_cast<size_t>(at_.file)];
    const size_t end = find_end(file);
    if (end > 0) {
      batch.begin = at_;
      batch.text = pending_.substr(0, end);
      pending_.erase(0, end);
      fill(1);
      batch.ends_document = at_end_ && pending_.empty();
      at_.offset += static_cast<int64_t>(end);
      if (file.is_jsonl) {
        at_.line += std::count(batch.text.begin(), batch.text.end(), '\n');
        batch.ends_document = true;
      }
      return true;
    }
    taken_before_ += file.bytes;
    at_ = {.file = at_.file + 1};
    source_.reset();
    at_end_ = false;
  }
}

int64_t BatchReader::taken() const {
  return taken_before_ + (source_ == nullptr ? 0 : source_->taken());
}

}  // namespace shale
