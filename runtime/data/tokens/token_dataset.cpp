#include "shale/runtime/data/tokens/token_dataset.h"

#include <glob.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/data/fetch_advice.h"
#include "shale/runtime/data/split.h"
#include "shale/runtime/data/tokens/dataset_internal.h"

namespace shale {

namespace fs = std::filesystem;
using namespace data_internal;

std::string to_string(DataFormat format) {
  switch (format) {
    case DataFormat::kAuto: return "auto";
    case DataFormat::kText: return "text";
    case DataFormat::kLlmc: return "llmc";
    case DataFormat::kNanogpt: return "nanogpt";
    case DataFormat::kMegatron: return "megatron";
    case DataFormat::kRaw: return "raw";
    case DataFormat::kCorpus: return "corpus";
  }
  return "?";
}

namespace data_internal {

bool is_llmc_magic(uint32_t magic) {
  return magic == kLlmcGpt2Magic || magic == kLlmcLlama3Magic;
}

uint32_t file_magic(const std::string& path) {
  std::error_code error;
  // does not open pipes, because that would wait for a writer
  if (!fs::is_regular_file(path, error)) return 0;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  uint32_t magic = 0;
  if (!file || std::fread(&magic, sizeof magic, 1, file.get()) != 1) return 0;
  return magic;
}

std::vector<std::string> files_ending(const std::string& folder, std::string_view ending,
                                      bool with_links) {
  std::vector<std::string> files;
  for (const std::string& in : folders_by_use(folder)) {
    std::error_code error;
    for (fs::directory_iterator it(in, error), end; !error && it != end; it.increment(error)) {
      std::error_code ignored;
      const std::string path = it->path().string();
      const bool is_file = it->is_regular_file(ignored) || (with_links && it->is_symlink(ignored));
      if (!is_file || !path.ends_with(ending)) continue;
      if (in == folder || ending == ".npy" || is_llmc_magic(file_magic(path)) ||
          megatron_index(path)) {
        files.push_back(path);
      }
    }
    if (error) throw DataError(cat(in, ": the folder cannot be read: ", error.message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::pair<std::vector<TokenPiece>, std::vector<TokenPiece>> split_pieces(
    std::vector<TokenPiece> pieces, TokenWidth width, int64_t head) {
  std::vector<TokenPiece> tail;
  std::vector<TokenPiece> first;
  for (TokenPiece& piece : pieces) {
    const int64_t here = std::clamp(head, int64_t{0}, piece.tokens);
    head -= here;
    if (here < piece.tokens) {
      TokenPiece rest = piece;
      rest.offset += here * static_cast<int>(width);
      rest.tokens -= here;
      rest.first_token += here;
      tail.push_back(std::move(rest));
    }
    piece.tokens = here;
    if (here > 0) first.push_back(std::move(piece));
  }
  return {std::move(first), std::move(tail)};
}

std::string DataSource::name_of(const std::string& file) const {
  if (is_folder) return fs::path(file).lexically_relative(path).generic_string();
  const size_t star = path.find_first_of("*?[");
  if (star == path.npos || file == path) return {};
  // rfind() + 1 is 0 without a '/', which gives the whole name
  return file.substr(path.rfind('/', star) + 1);
}

std::vector<TokenFile> divide_token_files(const DataSource& source,
                                          const std::vector<std::string>& files,
                                          std::string& note) {
  std::vector<std::string> names;
  for (const std::string& file : files) names.push_back(source.name_of(file));
  const std::vector<FileUse> uses = divide_files(names, source.path);
  std::vector<TokenFile> used;
  for (size_t i = 0; i < files.size(); ++i) {
    if (uses[i] != FileUse::kNone) used.push_back({files[i], uses[i] == FileUse::kValidation});
  }
  if (const size_t left_out = files.size() - used.size(); left_out > 0) {
    note += cat("; skipped ", left_out, " files of the test split");
  }
  return used;
}

int64_t count_tokens(const std::vector<TokenPiece>& pieces) {
  int64_t total = 0;
  for (const TokenPiece& piece : pieces) total += piece.tokens;
  return total;
}

}  // namespace data_internal

namespace {

std::vector<std::string> match_pattern(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> files;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  std::erase_if(files, [](const std::string& file) {
    std::error_code error;
    return fs::is_directory(file, error);
  });
  std::sort(files.begin(), files.end());  // sorts by bytes, because glob() sorts by locale
  return files;
}

}  // namespace

namespace data_internal {

DataSource resolve(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return {path, true, {}};
  if (fs::exists(status)) {
    const bool is_index = path.ends_with(".idx");
    return {path, false, {is_index ? path.substr(0, path.size() - 4) + ".bin" : path}};
  }
  if (const std::string bin = path + ".bin"; megatron_index(bin)) return {path, false, {bin}};
  if (path.find_first_of("*?[") != std::string::npos) {
    std::vector<std::string> files = match_pattern(path);
    std::erase_if(files, [](const std::string& file) { return file.ends_with(".idx"); });
    if (!files.empty()) return {path, false, std::move(files)};
    throw MissingInputError(cat(path, ": no file name matches this pattern"));
  }
  throw MissingInputError(
      cat(path, ": no such file or folder, expected token data or text", fetch_advice(path)));
}

}  // namespace data_internal

namespace {

[[noreturn]] void fail_ambiguous(const std::string& path, const std::string& why) {
  throw ConfigError(
      cat(path, ": ", why, "; use --data-format text, llmc, nanogpt, megatron, u16 or u32"));
}

// Detects the format of files without llm.c's magic number or an index: raw by the file name,
// corpus by the contents, else text.
DataFormat detect_text(const DataSource& source, const std::vector<std::string>& bins,
                       const DataOptions& options) {
  for (const std::string& file : bins) {
    if (fs::path(file).extension() == ".npy" ||
        (options.width && fs::path(file).extension() == ".bin")) {
      return DataFormat::kRaw;
    }
    if (fs::path(file).extension() == ".bin") {
      fail_ambiguous(source.path, cat(fs::path(file).filename().string(),
                                      " may hold tokens, but has no header that says so"));
    }
  }
  return is_corpus(source, options) ? DataFormat::kCorpus : DataFormat::kText;
}

DataFormat detect(const DataSource& source, const DataOptions& options) {
  std::vector<std::string> bins =
      source.is_folder ? files_ending(source.path, ".bin") : source.files;
  // In a folder, llm.c's evaluation files are ignored. An evaluation file that the user names
  // counts as llm.c, because opening it in that format reports what it is.
  size_t shards = 0;
  std::erase_if(bins, [&](const std::string& file) {
    const uint32_t magic = file_magic(file);
    if (magic == kLlmcEvalMagic && source.is_folder) return true;
    if (magic == kLlmcEvalMagic || is_llmc_magic(magic)) ++shards;
    return false;
  });
  if (shards > 0 && shards == bins.size()) return DataFormat::kLlmc;
  if (shards > 0) {
    fail_ambiguous(source.path, "some of the files begin with llm.c's magic number, others do not");
  }
  const auto indexed = std::count_if(bins.begin(), bins.end(), [](const std::string& file) {
    return megatron_index(file).has_value();
  });
  if (indexed > 0 && static_cast<size_t>(indexed) == bins.size()) return DataFormat::kMegatron;
  if (indexed > 0) {
    fail_ambiguous(source.path, "some of the files have an index of Megatron-LM, others do not");
  }
  std::error_code error;
  const fs::path train = fs::path(source.path) / "train.bin";
  if (source.is_folder && fs::symlink_status(train, error).type() != fs::file_type::not_found) {
    return DataFormat::kNanogpt;
  }
  if (source.is_folder) {
    for (std::string& file : files_ending(source.path, ".npy")) bins.push_back(std::move(file));
  }
  return detect_text(source, bins, options);
}

DatasetSplits open_format(DataFormat format, const DataSource& source, const DataOptions& options) {
  switch (format) {
    case DataFormat::kAuto: break;
    case DataFormat::kText: return open_text(source, options);
    case DataFormat::kLlmc: return open_llmc(source, options);
    case DataFormat::kNanogpt: return open_nanogpt(source, options);
    case DataFormat::kMegatron: return open_megatron(source, options);
    case DataFormat::kRaw: return open_raw(source, options);
    case DataFormat::kCorpus: return open_corpus(source, options);
  }
  throw InternalError("dataset: unknown format");
}

}  // namespace

namespace data_internal {

// Packs or unpacks a piece. Tokens in memory are packed; for tokens in a file, the number of the
// file is.
static void exchange(PackedValues& all, TokenPiece& piece, TokenWidth width,
                     const std::shared_ptr<FileMaps>& files) {
  bool is_in_file = piece.files != nullptr;
  exchange(all, is_in_file);
  if (!is_in_file) {
    piece.memory = {piece.memory, piece.memory.get() + std::exchange(piece.offset, 0)};
  }
  exchange_all(all, piece.file, piece.offset, piece.tokens, piece.name, piece.first_token,
               piece.crc);
  if (is_in_file) {
    piece.files = files;
  } else {
    all.exchange_memory(piece.memory, static_cast<size_t>(piece.tokens * static_cast<int>(width)));
  }
}

static void exchange(PackedValues& all, std::shared_ptr<const TokenStream>& stream,
                     const std::shared_ptr<FileMaps>& files) {
  bool is_there = stream != nullptr;
  exchange(all, is_there);
  if (!is_there) return;
  PieceStream::Options options;
  std::vector<TokenPiece> pieces;
  if (!all.unpacks()) {
    const auto& from = dynamic_cast<const PieceStream&>(*stream);
    options = from.options();
    pieces = from.pieces();
  }
  exchange(all, options);
  size_t count = pieces.size();
  exchange(all, count);
  pieces.resize(count);
  for (TokenPiece& piece : pieces) exchange(all, piece, options.width, files);
  if (all.unpacks()) stream = std::make_shared<const PieceStream>(std::move(pieces), options);
}

// Returns the files of a dataset's pieces; null if all pieces are in memory.
static std::shared_ptr<FileMaps> files_of(const DatasetSplits& splits) {
  for (const auto& stream : {splits.train, splits.val}) {
    if (stream == nullptr) continue;
    for (const TokenPiece& piece : dynamic_cast<const PieceStream&>(*stream).pieces()) {
      if (piece.files != nullptr) return piece.files;
    }
  }
  return std::make_shared<FileMaps>();
}

static void exchange(PackedValues& all, DatasetSplits& splits) {
  std::shared_ptr<FileMaps> files = files_of(splits);
  size_t most = files->most();
  exchange(all, most);
  if (all.unpacks()) files = std::make_shared<FileMaps>(most);
  exchange(all, *files);
  exchange(all, splits.train, files);
  exchange(all, splits.val, files);
  exchange_all(all, splits.format, splits.summary, splits.fingerprint, splits.checksum);
}

static DatasetSplits open_here(const DataOptions& options) {
  const DataSource source = resolve(options.path);
  const DataFormat format =
      options.format == DataFormat::kAuto ? detect(source, options) : options.format;
  DatasetSplits splits = open_format(format, source, options);
  if (splits.train == nullptr || splits.train->size() == 0) {
    throw DataError(cat(options.path, ": nothing is left for training (", splits.summary, ")"));
  }
  return splits;
}

}  // namespace data_internal

DataFormat find_format(const DataOptions& options) {
  return once_per_host<DataFormat>(options.once, [&] {
    const DataSource source = resolve(options.path);
    return options.format == DataFormat::kAuto ? detect(source, options) : options.format;
  });
}

DatasetSplits open_dataset(const DataOptions& options) {
  if (!(options.val_fraction >= 0 && options.val_fraction < 1)) {
    throw ConfigError(
        cat("val-fraction is ", options.val_fraction, ", expected a number in [0, 1)"));
  }
  if (options.vocab_size < 0) {
    throw ConfigError(cat("vocab is ", options.vocab_size, ", expected 0 or more"));
  }
  return once_per_host<DatasetSplits>(options.once, [&] { return open_here(options); });
}

}  // namespace shale
