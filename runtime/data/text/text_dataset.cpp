#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/rng.h"
#include "shale/runtime/data/tokens/dataset_internal.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::data_internal {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kByteVocab = 256;
constexpr int32_t kEndOfFile = 0;
constexpr size_t kProbeBytes = 8192;
// A process may have 65,530 mappings (vm.max_map_count), and others need some too. Files beyond
// this number are copied, the smallest first.
constexpr size_t kMaxMappings = 16384;

struct TextFile {
  std::string name;  // relative to the folder, '/' between parts
  std::string path;
  int64_t bytes = 0;
  std::pair<dev_t, ino_t> identity;
};

struct Skipped {
  int64_t binary = 0;
  int64_t empty = 0;
  int64_t unreadable = 0;  // files and folders
  int64_t repeated = 0;    // second names of a file
};

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

// Files directly in `folder` are appended to `files`, folders to `pending`.
void list_folder(const fs::path& folder, const fs::path& root, std::vector<TextFile>& files,
                 std::vector<fs::path>& pending, Skipped& skipped) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    if (is_hidden(path)) continue;
    std::error_code ignored;
    if (it->is_directory(ignored)) {
      // A link to a folder may lead back up.
      if (!it->is_symlink(ignored)) pending.push_back(path);
      continue;
    }
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      ++skipped.unreadable;
    } else if (S_ISREG(info.st_mode)) {
      files.push_back({path.lexically_relative(root).generic_string(),
                       path.string(),
                       info.st_size,
                       {info.st_dev, info.st_ino}});
    }
  }
  if (error) ++skipped.unreadable;
}

std::vector<TextFile> list_text_files(const std::string& root, Skipped& skipped) {
  std::vector<TextFile> files;
  std::vector<fs::path> pending = {root};
  while (!pending.empty()) {
    const fs::path folder = std::move(pending.back());
    pending.pop_back();
    list_folder(folder, root, files, pending, skipped);
  }
  // By bytes of the path: the same on every file system and in every locale.
  std::sort(files.begin(), files.end(),
            [](const TextFile& a, const TextFile& b) { return a.name < b.name; });
  std::set<std::pair<dev_t, ino_t>> seen;
  skipped.repeated = static_cast<int64_t>(std::erase_if(
      files, [&seen](const TextFile& file) { return !seen.insert(file.identity).second; }));
  return files;
}

// Reads a file. Most binaries show a NUL at the start, before the rest is read.
TextScan read_file(const MappedFile& file, const OnReading& on_reading) {
  const std::span<const std::byte> bytes = file.bytes();
  const int64_t early = find_nul(bytes.first(std::min(bytes.size(), kProbeBytes)));
  file.check();
  if (early >= 0) return {.first_nul = early};
  file.advise(AccessPattern::kSequential);
  return scan_text(file, on_reading);
}

TokenPiece make_document(MappedFile file, std::string name, uint32_t crc, bool copy) {
  const auto tokens = static_cast<int64_t>(file.bytes().size());
  if (copy) {
    const auto bytes =
        std::make_shared<std::vector<std::byte>>(file.bytes().begin(), file.bytes().end());
    file.check();
    return {.owner = bytes,
            .data = bytes->data(),
            .tokens = tokens,
            .name = std::move(name),
            .crc = crc};
  }
  file.advise(AccessPattern::kRandom);
  const auto owner = std::make_shared<const MappedFile>(std::move(file));
  return {.owner = owner,
          .data = owner->bytes().data(),
          .tokens = tokens,
          .name = std::move(name),
          .crc = crc,
          .file = owner.get()};
}

// Files of this size or more are mapped, the others copied; 0 if all can be mapped.
int64_t smallest_mapped(const std::vector<TextFile>& files) {
  if (files.size() <= kMaxMappings) return 0;
  std::vector<int64_t> sizes;
  for (const TextFile& file : files) sizes.push_back(file.bytes);
  const auto nth = sizes.begin() + static_cast<std::ptrdiff_t>(kMaxMappings);
  std::nth_element(sizes.begin(), nth, sizes.end(), std::greater<>());
  return *nth + 1;
}

std::vector<TokenPiece> open_folder(const std::string& root, const OnReading& on_reading,
                                    Skipped& skipped) {
  const std::vector<TextFile> files = list_text_files(root, skipped);
  const int64_t mapped_bytes = smallest_mapped(files);
  std::vector<TokenPiece> documents;
  for (const TextFile& file : files) {
    if (file.bytes == 0) {
      ++skipped.empty;
      continue;
    }
    try {
      MappedFile mapped(file.path);
      const TextScan scan = read_file(mapped, on_reading);
      if (scan.first_nul >= 0) {
        ++skipped.binary;
      } else {
        documents.push_back(
            make_document(std::move(mapped), file.name, scan.crc, file.bytes < mapped_bytes));
      }
    } catch (const OutOfMemoryError&) {
      throw;  // this machine's limits must not decide what the data is
    } catch (const Error& error) {
      if (error.code() == ExitCode::kInterrupted) throw;
      ++skipped.unreadable;  // reported with the count: one locked file must not stop a run
    }
  }
  return documents;
}

std::vector<TokenPiece> open_files(const std::vector<std::string>& files,
                                   const OnReading& on_reading) {
  std::vector<TokenPiece> documents;
  for (const std::string& path : files) {
    MappedFile mapped(path);
    const TextScan scan = read_file(mapped, on_reading);
    if (scan.first_nul >= 0) {
      throw DataError(
          cat(path, ": byte 0 at position ", scan.first_nul, ", want text, which has none"));
    }
    documents.push_back(make_document(std::move(mapped), path, scan.crc, /*copy=*/false));
  }
  return documents;
}

// Uniform in [0, 2^32), a function of the name alone.
uint32_t split_hash(const std::string& name) {
  const uint64_t hash = hash_name(name);  // FNV alone is far from uniform in its upper bits
  return philox({static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32), 0, 0}, {0, 0})[0];
}

// Chooses validation files; at least one, and at least one for training. documents.size() >= 2.
std::vector<bool> choose_validation(const std::vector<TokenPiece>& documents, double fraction) {
  std::vector<uint32_t> hashes;
  for (const TokenPiece& document : documents) hashes.push_back(split_hash(document.name));
  std::vector<bool> chosen;
  for (const uint32_t hash : hashes) chosen.push_back(hash < fraction * 0x1p32);
  const auto [lowest, highest] = std::minmax_element(hashes.begin(), hashes.end());
  chosen[static_cast<size_t>(lowest - hashes.begin())] = true;
  chosen[static_cast<size_t>(highest - hashes.begin())] = false;
  return chosen;
}

// Where the validation part of one text begins: at the first line that starts in its last
// `fraction`, else at the last line that starts before, else in the middle of a line.
int64_t tail_start(const TokenPiece& document, double fraction) {
  const int64_t size = document.tokens;
  const auto tail = static_cast<int64_t>(static_cast<double>(size) * fraction);
  const int64_t wanted = std::max<int64_t>(size - tail, 1);
  const auto* text = reinterpret_cast<const char*>(document.data);
  for (int64_t i = wanted; i < size; ++i) {
    if (text[i - 1] == '\n') return i;
  }
  for (int64_t i = wanted; i > 1; --i) {
    if (text[i - 1] == '\n') return i;
  }
  return wanted;
}

std::pair<std::vector<TokenPiece>, std::vector<TokenPiece>> divide(
    std::vector<TokenPiece> documents, double fraction) {
  if (fraction == 0 || documents.empty()) return {std::move(documents), {}};
  if (documents.size() == 1) {
    const int64_t head = tail_start(documents.front(), fraction);
    if (documents.front().file != nullptr) documents.front().file->check();
    return split_pieces(std::move(documents), TokenWidth::k8, head);
  }
  const std::vector<bool> chosen = choose_validation(documents, fraction);
  std::vector<TokenPiece> train, val;
  for (size_t i = 0; i < documents.size(); ++i) {
    (chosen[i] ? val : train).push_back(std::move(documents[i]));
  }
  return {std::move(train), std::move(val)};
}

std::string describe_skipped(const Skipped& skipped) {
  std::string text;
  const auto add = [&text](int64_t count, const char* what) {
    if (count > 0) text += cat(text.empty() ? "; skipped " : ", ", count, " ", what);
  };
  add(skipped.binary, "binary");
  add(skipped.unreadable, "unreadable");
  add(skipped.empty, "empty");
  add(skipped.repeated, "repeated");
  return text;
}

std::string describe(const std::vector<TokenPiece>& documents) {
  return cat(documents.size(), documents.size() == 1 ? " file, " : " files, ",
             format_bytes(static_cast<double>(count_tokens(documents))));
}

std::shared_ptr<const TokenStream> make_stream(std::vector<TokenPiece> documents) {
  if (documents.empty()) return nullptr;
  return std::make_shared<const PieceStream>(
      std::move(documents),
      PieceStream::Options{
          .width = TokenWidth::k8, .vocab_bound = kByteVocab, .separator = kEndOfFile});
}

}  // namespace

DatasetSplits open_text(const DataSource& source, const DataOptions& options) {
  if (options.vocab_size > 0 && options.vocab_size < kByteVocab) {
    throw ConfigError(cat("vocab is ", options.vocab_size, ", want at least ", kByteVocab,
                          " for text, whose tokens are bytes"));
  }
  Skipped skipped;
  std::vector<TokenPiece> documents = source.is_folder
                                          ? open_folder(source.path, options.on_reading, skipped)
                                          : open_files(source.files, options.on_reading);
  if (documents.empty()) {
    throw DataError(cat(source.path, ": no text file in this folder", describe_skipped(skipped)));
  }
  DatasetSplits splits;
  splits.format = DataFormat::kText;
  for (const TokenPiece& document : documents) {
    // A name that is a whole path would change with the folder it lies in.
    const std::string name =
        source.is_folder ? document.name : fs::path(document.name).filename().string();
    splits.fingerprint = mix_fingerprint(splits.fingerprint, name, document.tokens);
    splits.checksum = mix_checksum(splits.checksum, document.crc);
  }
  auto [train, val] = divide(std::move(documents), options.val_fraction);
  splits.summary =
      cat("text: ", describe(train), "; validation: ", describe(val), describe_skipped(skipped));
  splits.train = make_stream(std::move(train));
  splits.val = make_stream(std::move(val));
  return splits;
}

}  // namespace shale::data_internal
