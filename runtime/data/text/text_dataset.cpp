#include <algorithm>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/data/split.h"
#include "shale/runtime/data/text/text_files.h"
#include "shale/runtime/data/text/text_tokens.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"
#include "shale/runtime/data/tokens/dataset_internal.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::data_internal {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kByteVocab = 256;
constexpr int32_t kEndOfFile = 0;
constexpr size_t kProbeBytes = 8192;

// Reads a file. First looks for a NUL at the beginning, because most binary files have one there.
TextScan read_file(const MappedFile& file, const OnReading& on_reading) {
  const std::span<const std::byte> bytes = file.bytes();
  const int64_t early = find_nul(bytes.first(std::min(bytes.size(), kProbeBytes)));
  file.check();
  if (early >= 0) return {.first_nul = early};
  file.advise(AccessPattern::kSequential);
  return scan_text(file, on_reading);
}

// Makes a document of a file. files: keeps the file mapped; null: the document is a copy in memory.
TokenPiece make_document(MappedFile file, std::string name, uint32_t crc,
                         const std::shared_ptr<FileMaps>& files) {
  TokenPiece document{.files = files,
                      .tokens = static_cast<int64_t>(file.bytes().size()),
                      .name = std::move(name),
                      .crc = crc};
  if (files == nullptr) {
    const auto copy =
        std::make_shared<std::vector<std::byte>>(file.bytes().begin(), file.bytes().end());
    file.check();
    document.memory = {copy, copy->data()};
  } else {
    file.advise(AccessPattern::kRandom);
    document.file = files->add(std::move(file));
  }
  return document;
}

// Returns the size from which files are mapped; smaller files are copied, because at most `most`
// files can be mapped. 0: all files are mapped.
int64_t smallest_mapped(const std::vector<ListedFile>& files, size_t most) {
  if (files.size() <= most) return 0;
  std::vector<int64_t> sizes;
  for (const ListedFile& file : files) sizes.push_back(file.bytes);
  const auto nth = sizes.begin() + static_cast<std::ptrdiff_t>(most);
  std::nth_element(sizes.begin(), nth, sizes.end(), std::greater<>());
  return *nth + 1;
}

// Returns the position of the first invalid UTF-8; npos if the text is valid or need not be UTF-8.
size_t broken_at(const MappedFile& file, const DataOptions& options) {
  const std::string_view text = file.text();
  const size_t at =
      options.tokenizer == nullptr ? text.npos : tokenizer_internal::find_broken_utf8(text);
  file.check();
  return at;
}

std::vector<TokenPiece> open_folder(const std::string& root, const DataOptions& options,
                                    SkippedFiles& skipped) {
  const std::vector<ListedFile> files = list_files(root, skipped);
  const std::shared_ptr<FileMaps> maps = make_files(options);
  const int64_t mapped_bytes = smallest_mapped(files, maps->most());
  std::vector<TokenPiece> documents;
  for (const ListedFile& file : files) {
    if (file.bytes == 0) {
      ++skipped.empty;
      continue;
    }
    try {
      MappedFile mapped(file.path);
      const TextScan scan = read_file(mapped, options.on_reading);
      if (scan.first_nul >= 0) {
        skipped.add_binary(mapped.text(), file.bytes);
      } else if (broken_at(mapped, options) != std::string_view::npos) {
        ++skipped.not_utf8;
      } else {
        documents.push_back(make_document(std::move(mapped), file.name, scan.crc,
                                          file.bytes < mapped_bytes ? nullptr : maps));
      }
    } catch (const OutOfMemoryError&) {
      throw;  // the process is out of memory, so the file is not to blame
    } catch (const Error& error) {
      if (error.code() == ExitCode::kInterrupted) throw;
      // skips the file: one unreadable file must not stop a run
      skipped.add_unreadable(error.what());
    }
  }
  return documents;
}

std::vector<TokenPiece> open_files(const std::vector<std::string>& files,
                                   const DataOptions& options) {
  const std::shared_ptr<FileMaps> maps = make_files(options);
  std::vector<TokenPiece> documents;
  for (const std::string& path : files) {
    MappedFile mapped(path);
    const TextScan scan = read_file(mapped, options.on_reading);
    if (scan.first_nul >= 0) {
      throw DataError(cat(describe_binary(path, binary_kind(mapped.text())),
                          " (byte 0 at position ", scan.first_nul, ")"));
    }
    if (const size_t at = broken_at(mapped, options); at != std::string_view::npos) {
      throw DataError(cat(path, ": not UTF-8 at byte ", at, ", expected text for a tokenizer"));
    }
    documents.push_back(make_document(std::move(mapped), path, scan.crc, maps));
  }
  return documents;
}

// Returns the position where the validation part of a single text begins. This is the first line
// that begins in the last `fraction` of the text. If there is none, it is the last line that begins
// before; if there is none either, it is in the middle of a line.
int64_t tail_start(const TokenPiece& document, double fraction) {
  const int64_t size = document.tokens;
  const auto tail = static_cast<int64_t>(static_cast<double>(size) * fraction);
  const int64_t wanted = std::max<int64_t>(size - tail, 1);
  const PieceBytes bytes(document);
  const auto* text = reinterpret_cast<const char*>(bytes.data);
  for (int64_t i = wanted; i < size; ++i) {
    if (text[i - 1] == '\n') return i;
  }
  for (int64_t i = wanted; i > 1; --i) {
    if (text[i - 1] == '\n') return i;
  }
  return wanted;
}

// Documents for training and for validation. rule: text that says how they were divided.
struct Divided {
  std::vector<TokenPiece> train, val;
  const char* rule = "";
};

Divided divide(std::vector<TokenPiece> documents, const std::vector<FileUse>& uses,
               double fraction) {
  if (documents.size() == 1 && fraction > 0) {
    const int64_t head = tail_start(documents.front(), fraction);
    PieceBytes(documents.front()).check();
    auto [train, val] = split_pieces(std::move(documents), TokenWidth::k8, head);
    return {std::move(train), std::move(val), ", from the end of the file"};
  }
  const bool by_name = std::find(uses.begin(), uses.end(), FileUse::kValidation) != uses.end();
  std::vector<uint32_t> hashes;
  for (const TokenPiece& document : documents) {
    hashes.push_back(split_hash(document.crc, document.tokens));
  }
  const std::vector<bool> chosen = hold_out(hashes, by_name ? 0 : fraction);
  Divided divided;
  for (size_t i = 0; i < documents.size(); ++i) {
    const bool is_val = chosen[i] || uses[i] == FileUse::kValidation;
    (is_val ? divided.val : divided.train).push_back(std::move(documents[i]));
  }
  if (!divided.val.empty()) {
    divided.rule = by_name ? ", chosen by file name" : ", chosen by a hash of each file";
  }
  return divided;
}

std::string describe(const std::vector<TokenPiece>& documents) {
  return cat(documents.size(), documents.size() == 1 ? " file, " : " files, ",
             format_bytes(static_cast<double>(count_tokens(documents))));
}

std::shared_ptr<const TokenStream> make_stream(std::vector<TokenPiece> documents,
                                               const DataOptions& options) {
  if (documents.empty()) return nullptr;
  PieceStream::Options stream{
      .width = TokenWidth::k8, .vocab_bound = kByteVocab, .separator = kEndOfFile};
  if (options.tokenizer != nullptr) {
    documents =
        tokenize_documents(documents, *options.tokenizer, options.threads, options.on_reading);
    const int64_t vocab = options.tokenizer->tokenizer.vocab_size();
    stream = {.width = token_width(vocab),
              .vocab_bound = vocab,
              .separator = options.tokenizer->end_of_document};
  }
  return std::make_shared<const PieceStream>(std::move(documents), stream);
}

void check_vocabulary(const DataOptions& options) {
  if (options.tokenizer == nullptr) {
    if (options.vocab_size == 0 || options.vocab_size >= kByteVocab) return;
    throw ConfigError(cat("vocab is ", options.vocab_size, ", expected at least ", kByteVocab,
                          " for text, whose tokens are bytes"));
  }
  if (!options.tokenizer->end_of_document) {
    throw DataError(cat(
        options.tokenizer->path,
        ": no end-of-document token found; set eos_token in a tokenizer_config.json beside it"));
  }
}

}  // namespace

DatasetSplits open_text(const DataSource& source, const DataOptions& options) {
  check_vocabulary(options);
  SkippedFiles skipped;
  std::vector<TokenPiece> documents = source.is_folder ? open_folder(source.path, options, skipped)
                                                       : open_files(source.files, options);
  int64_t text_bytes = 0;
  for (const TokenPiece& document : documents) {
    if (!describes_data(document.name)) text_bytes += document.tokens;
  }
  skipped.require_text(source.path, text_bytes);
  if (documents.empty()) {
    throw DataError(cat(source.path, ": no text file in this folder", skipped.describe()));
  }
  std::vector<std::string> names;
  for (const TokenPiece& document : documents) {
    names.push_back(source.is_folder ? document.name : source.name_of(document.name));
  }
  std::vector<FileUse> uses = divide_files(names, source.path);
  skipped.test = std::count(uses.begin(), uses.end(), FileUse::kNone);
  size_t i = 0;
  std::erase_if(documents, [&](const TokenPiece&) { return uses[i++] == FileUse::kNone; });
  std::erase(uses, FileUse::kNone);
  DatasetSplits splits;
  splits.format = DataFormat::kText;
  for (const TokenPiece& document : documents) {
    // The name is relative, because a full path would change if the folder was moved.
    const std::string name =
        source.is_folder ? document.name : fs::path(document.name).filename().string();
    splits.fingerprint = mix_fingerprint(splits.fingerprint, name, document.tokens);
    splits.checksum = mix_checksum(splits.checksum, document.crc);
  }
  if (options.tokenizer != nullptr) {
    splits.fingerprint = mix_fingerprint(
        splits.fingerprint, "tokenizer",
        int64_t{options.tokenizer->crc} + begin_of_document(*options.tokenizer).value_or(-1) + 1);
  }
  auto [train, val, rule] = divide(std::move(documents), uses, options.val_fraction);
  splits.summary =
      cat("text: ", describe(train), "; validation: ", describe(val), rule, skipped.describe());
  splits.train = make_stream(std::move(train), options);
  splits.val = make_stream(std::move(val), options);
  if (options.tokenizer != nullptr) {
    const int64_t held_out = splits.val == nullptr ? 0 : splits.val->size();
    splits.summary +=
        cat("; ", splits.train == nullptr ? 0 : splits.train->size(), " training and ", held_out,
            " validation tokens of ", options.tokenizer->path);
  }
  return splits;
}

}  // namespace shale::data_internal
