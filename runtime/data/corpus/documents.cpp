#include "shale/runtime/data/corpus/documents.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/text.h"
#include "shale/runtime/data/fetch_advice.h"
#include "shale/runtime/data/split.h"
#include "shale/runtime/data/text/text_files.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBytes = size_t{1} << 20;

CorpusFile corpus_file(std::string name, std::string path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      throw MissingInputError(
          cat(path, ": no such file or folder", data_internal::fetch_advice(path)));
    }
    throw DataError(cat(path, ": ", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) throw DataError(cat(path, ": neither a file nor a folder"));
  return {.name = std::move(name),
          .path = path,
          .bytes = info.st_size,
          .modified = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

// Returns the file's name in lower case, without the suffix of a compression format.
std::string plain_name(const std::string& path) {
  std::string name(without_compression(path));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

std::shared_ptr<ByteSource> open_source(const CorpusFile& file) {
  if (file.pipe != nullptr) return file.pipe;
  return open_byte_source(file.path);
}

// Finds the kind of a file from its first bytes. If one of these bytes is 0, the file is binary,
// and the bytes are returned. Otherwise returns "".
std::string look_into(CorpusFile& file, std::string_view field, bool is_named) {
  const std::string plain = plain_name(file.path);
  file.is_jsonl = plain.ends_with(".jsonl") || plain.ends_with(".ndjson");
  if (is_named && file.is_jsonl) return {};  // reading the file later will report problems
  const std::shared_ptr<ByteSource> source = open_source(file);
  std::string start(8192, ' ');
  start.resize(source->read(start));
  if (start.find('\0') != start.npos) return start;
  if (file.is_jsonl) return {};
  const TextKind kind = find_kind(std::move(start), *source, field);
  file.is_jsonl = kind == TextKind::kJsonLines;
  if (!plain.ends_with(".json")) return {};
  file.is_records = kind == TextKind::kRecords;
  if (is_named && (file.is_records || kind == TextKind::kJson)) {
    throw DataError(cat(file.path, ": expected an object with '", field,
                        "' in each line, found other JSON; convert an array to lines with python3 "
                        "-m shale.data (conversations: --from alpaca or sharegpt), choose another "
                        "key with --data-field, or train on the characters of the file with "
                        "--data-format text"));
  }
  return {};
}

void find_in_folder(const std::string& folder, std::string_view field,
                    std::vector<CorpusFile>& files, data_internal::SkippedFiles& skipped) {
  for (const data_internal::ListedFile& listed : data_internal::list_files(folder, skipped)) {
    try {
      CorpusFile file = corpus_file(listed.name, listed.path);
      file.below = listed.name;
      const std::string binary = file.bytes == 0 ? "" : look_into(file, field, /*is_named=*/false);
      if (file.bytes == 0) {
        ++skipped.empty;
      } else if (file.is_records) {
        ++skipped.records;
      } else if (!binary.empty()) {
        skipped.add_binary(binary, file.bytes);
      } else {
        files.push_back(std::move(file));
      }
    } catch (const OutOfMemoryError&) {
      throw;  // the process is out of memory, so the file is not to blame
    } catch (const Error& error) {
      skipped.add_unreadable(error.what());
    }
  }
}

}  // namespace

std::vector<CorpusFile> find_corpus(const std::vector<std::string>& paths, std::string_view field,
                                    data_internal::SkippedFiles& skipped) {
  std::vector<CorpusFile> files;
  const std::vector<std::string> names = data_internal::names_below_common_folder(paths);
  for (size_t i = 0; i < paths.size(); ++i) {
    std::error_code error;
    if (fs::is_directory(paths[i], error)) {
      const size_t before = files.size();
      find_in_folder(paths[i], field, files, skipped);
      for (size_t k = before; k < files.size(); ++k) {
        files[k].below = (fs::path(names[i]) / files[k].below).generic_string();
      }
      continue;
    }
    CorpusFile file = corpus_file(paths[i], paths[i]);
    file.below = names[i];
    const data_internal::BinaryKind kind = data_internal::binary_kind(look_into(file, field, true));
    if (!kind.instead.empty()) throw DataError(data_internal::describe_binary(file.path, kind));
    files.push_back(std::move(file));
  }
  return files;
}

std::vector<CorpusFile> list_corpus(const std::vector<std::string>& paths, std::string_view field,
                                    data_internal::SkippedFiles* skipped) {
  data_internal::SkippedFiles own;
  data_internal::SkippedFiles& all = skipped == nullptr ? own : *skipped;
  std::vector<CorpusFile> files = find_corpus(paths, field, all);
  int64_t text_bytes = 0;
  for (const CorpusFile& file : files) {
    if (file.is_jsonl || !data_internal::describes_data(file.name)) text_bytes += file.bytes;
  }
  if (!paths.empty()) all.require_text(paths.front(), text_bytes);
  if (files.empty() && !paths.empty()) {
    throw DataError(cat(paths.front(), ": no text or jsonl in this folder", all.describe()));
  }
  return files;
}

CorpusFile corpus_of_pipe(std::shared_ptr<PipeSource> pipe, std::string_view field) {
  CorpusFile file{.name = pipe->name(), .path = pipe->name(), .pipe = pipe};
  const data_internal::BinaryKind kind = data_internal::binary_kind(look_into(file, field, true));
  if (!kind.instead.empty()) {
    throw DataError(cat(file.path, ": expected text or jsonl, found ", kind.name, "; ",
                        kind.is_data ? "convert it with python3 -m shale.data FILE"
                                     : "pipe the decompressed text, such as zcat's output"));
  }
  pipe->rewind();
  return file;
}

std::vector<CorpusFile> list_inputs(const std::vector<std::string>& paths, std::string_view field,
                                    data_internal::SkippedFiles& skipped, OnReading on_reading) {
  if (std::none_of(paths.begin(), paths.end(), is_pipe)) {
    return list_corpus(paths, field, &skipped);
  }
  if (paths.size() == 1) {
    return {
        corpus_of_pipe(std::make_shared<PipeSource>(paths.front(), std::move(on_reading)), field)};
  }
  throw ConfigError(cat("- and pipes must be the only input, found ", paths.size(), " inputs"));
}

void check_stream_end(const std::string& name, std::string_view last_line, int64_t lines) {
  while (last_line.ends_with('\n')) last_line.remove_suffix(1);
  if (last_line == cat(kStreamEnd, lines - 2, "}")) return;
  throw DataError(cat(name, ": ends after ", lines,
                      " lines without the last line of shale.data: the program that wrote them "
                      "failed or was cut off, so data is missing"));
}

void divide_corpus(std::vector<CorpusFile>& files, const std::string& source,
                   data_internal::SkippedFiles& skipped) {
  using data_internal::FileUse;
  std::vector<std::string> names;
  for (const CorpusFile& file : files) names.push_back(file.below);
  const std::vector<FileUse> uses = data_internal::divide_files(names, source);
  std::vector<CorpusFile> used;
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].is_validation = uses[i] == FileUse::kValidation;
    if (uses[i] != FileUse::kNone) used.push_back(std::move(files[i]));
  }
  skipped.test += std::ssize(files) - std::ssize(used);
  files = std::move(used);
}

BatchReader::BatchReader(const std::vector<CorpusFile>& files, FindCut find_cut,
                         CorpusPosition from)
    : files_(files), find_cut_(std::move(find_cut)), at_(from) {
  for (int64_t i = 0; i < from.file; ++i) taken_before_ += files[static_cast<size_t>(i)].bytes;
  if (from.offset > 0) open(from.offset);
}

void BatchReader::open(int64_t offset) {
  source_ = open_source(files_[static_cast<size_t>(at_.file)]);
  pending_.resize(kStreamBegin.size());
  pending_.resize(source_->read(pending_));
  is_stream_ = pending_ == kStreamBegin;
  if (offset == 0) return;
  // not negative, because a batch is longer than kStreamBegin
  source_->skip(offset - std::ssize(pending_));
  pending_.clear();
}

// Reads until pending_ has `bytes` bytes or the source ends.
void BatchReader::fill(size_t bytes) {
  while (!at_end_ && pending_.size() < bytes) {
    const size_t had = pending_.size();
    pending_.resize(had + kReadBytes);
    const size_t got = source_->read(std::span(pending_).subspan(had));
    pending_.resize(had + got);
    at_end_ = got == 0;
  }
}

// Returns the position in pending_ where the next batch ends.
size_t BatchReader::find_end(const CorpusFile& file) {
  const size_t most = kBatchBytes + (file.is_jsonl ? kMaxLineBytes : kMaxPartBytes);
  // Searches all text once, and the last 8 characters again after more text was read, because a
  // match may extend into it.
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
      throw DataError(cat(file.path, ":", line, ": the line has more than ",
                          format_bytes(static_cast<double>(kMaxLineBytes)), ", expected less"));
    }
    throw DataError(cat(file.path, ": ", format_bytes(static_cast<double>(kMaxPartBytes)),
                        " from byte ", at_.offset,
                        " on cannot be cut without changing tokens of this tokenizer; use smaller "
                        "documents, as lines of jsonl"));
  }
}

bool BatchReader::next(DocumentBatch& batch) {
  while (true) {
    if (source_ == nullptr) {
      if (at_.file == std::ssize(files_)) return false;
      open(0);
    }
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
        if (is_stream_ && at_end_ && pending_.empty()) {
          const size_t line = batch.text.rfind('\n', batch.text.size() - 2) + 1;
          check_stream_end(file.path, std::string_view(batch.text).substr(line), at_.line);
        }
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
