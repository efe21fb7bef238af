#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/data/tokens/dataset_internal.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::data_internal {
namespace {

namespace fs = std::filesystem;

BinData collect_llmc(const DataSource& source, const std::vector<std::string>& files,
                     const DataOptions& options) {
  BinData data{.files = make_files(options)};
  std::string first;
  for (const auto& [path, is_validation] : divide_token_files(source, files, data.note)) {
    MappedFile file = map_tokens(path, options.validate);
    const LlmcHeader header = parse_llmc_header(file.bytes(), path);
    file.check();
    if (first.empty()) {
      first = path;
      data.width = header.width;
    }
    if (header.width != data.width) {
      throw DataError(cat(path, ": tokens of ", static_cast<int>(header.width), " bytes, but ",
                          first, " has tokens of ", static_cast<int>(data.width), " bytes"));
    }
    data.add(std::move(file), kLlmcHeaderBytes, header.tokens, is_validation);
  }
  return data;
}

// Returns the tokens that lie in a part of a file's bytes. data: the file's first token.
TokenPiece tokens_in(const TokenPiece& file, const std::byte* data, TokenWidth width,
                     std::span<const std::byte> part) {
  const auto size = static_cast<int64_t>(width);
  const int64_t before = std::max<int64_t>(part.data() - data, 0) / size;
  const int64_t end = (part.data() + part.size() - data) / size;
  TokenPiece tokens = file;
  tokens.offset += before * size;
  tokens.first_token += before;
  tokens.tokens = std::clamp<int64_t>(end, before, file.tokens) - before;
  return tokens;
}

// Checks sampled pages of a file and returns their CRC-32C. All ranks sample the same pages, so
// they find the same invalid tokens.
uint32_t check_sample(const TokenPiece& file, TokenWidth width, int64_t blocks,
                      const DataOptions& options) {
  uint32_t crc = 0;
  int64_t looked_at = 0;
  const PieceBytes bytes(file);
  for (const std::span<const std::byte> part : sampled_parts(*bytes.file, blocks)) {
    if (options.on_reading && looked_at++ % 64 == 0) options.on_reading(file.name);
    crc = crc32c(part, crc);
    bytes.check();
    if (options.vocab_size > 0) {
      check_tokens(tokens_in(file, bytes.data, width, part), width, options.vocab_size);
    }
  }
  return crc;
}

// Computes the checksums that are compared between ranks and when a run resumes. Must run before
// the pieces are divided into training and validation.
void take_checksums(BinData& data, const DataOptions& options, DatasetSplits& splits) {
  const int64_t blocks =
      sampled_blocks((data.train.size() + data.val.size()) * static_cast<size_t>(options.sources));
  for (auto* pieces : {&data.train, &data.val}) {
    for (TokenPiece& piece : *pieces) {
      piece.crc = check_sample(piece, data.width, blocks, options);
      splits.fingerprint = mix_fingerprint(splits.fingerprint,
                                           fs::path(piece.name).filename().string(), piece.tokens);
      splits.checksum = mix_checksum(splits.checksum, piece.crc);
    }
  }
}

// Returns the largest token of a file. Throws DataError for a token that is not below `bound`.
// Calls on_reading between parts of the file.
uint32_t check_file(const TokenPiece& file, TokenWidth width, int64_t bound,
                    const OnReading& on_reading) {
  constexpr int64_t kPart = int64_t{1} << 22;  // number of tokens in a part
  uint32_t largest = 0;
  for (int64_t begin = 0; begin < file.tokens; begin += kPart) {
    if (on_reading) on_reading(file.name);
    TokenPiece part = file;
    part.offset += begin * static_cast<int>(width);
    part.first_token += begin;
    part.tokens = std::min(kPart, file.tokens - begin);
    largest = std::max(largest, check_tokens(part, width, bound));
  }
  return largest;
}

// Returns a number that is above all tokens: the vocabulary size if it is given, else the largest
// token + 1.
int64_t check_all(const BinData& data, const DataOptions& options) {
  const int64_t widest = data.width == TokenWidth::k32
                             ? int64_t{1} << 31
                             : int64_t{1} << (8 * static_cast<int>(data.width));
  const int64_t wanted = options.vocab_size > 0 ? options.vocab_size : widest;
  if (!options.validate) return wanted;
  int64_t largest = 0;
  for (const auto* pieces : {&data.train, &data.val}) {
    for (const TokenPiece& piece : *pieces) {
      largest =
          std::max(largest, int64_t{check_file(piece, data.width, wanted, options.on_reading)});
      PieceBytes(piece).file->advise(AccessPattern::kRandom);
    }
  }
  return options.vocab_size > 0 ? wanted : largest + 1;
}

std::shared_ptr<const TokenStream> make_stream(std::vector<TokenPiece> pieces, TokenWidth width,
                                               int64_t bound) {
  if (pieces.empty()) return nullptr;
  return std::make_shared<const PieceStream>(
      std::move(pieces),
      PieceStream::Options{.width = width, .vocab_bound = bound, .separator = std::nullopt});
}

}  // namespace

void BinData::add(MappedFile file, int64_t offset, int64_t tokens, bool is_validation) {
  std::string name = file.path();
  (is_validation ? val : train)
      .push_back({.files = files,
                  .file = files->add(std::move(file)),
                  .offset = offset,
                  .tokens = tokens,
                  .name = std::move(name)});
}

std::shared_ptr<FileMaps> make_files(const DataOptions& options) {
  const auto sources = static_cast<size_t>(std::max<int64_t>(options.sources, 1));
  return std::make_shared<FileMaps>(std::max<size_t>(FileMaps::kMostMapped / sources, 1));
}

MappedFile map_tokens(const std::string& path, bool will_scan) {
  return MappedFile(path,
                    {.pattern = will_scan ? AccessPattern::kSequential : AccessPattern::kRandom});
}

DatasetSplits make_splits(BinData data, DataFormat format, const DataOptions& options) {
  DatasetSplits splits;
  splits.format = format;
  const size_t files = data.train.size() + data.val.size();
  take_checksums(data, options, splits);
  const int64_t bound = check_all(data, options);
  const char* rule = " (chosen by file name)";
  if (data.val.empty()) {
    rule = options.val_fraction > 0 ? " (from the end of the data)" : "";
    const int64_t total = count_tokens(data.train);
    const auto held_out = static_cast<int64_t>(static_cast<double>(total) * options.val_fraction);
    std::tie(data.train, data.val) =
        split_pieces(std::move(data.train), data.width, total - held_out);
  }
  splits.summary = cat(to_string(format), ": ", count_tokens(data.train), " training and ",
                       count_tokens(data.val), " validation tokens", rule, ", of ",
                       8 * static_cast<int>(data.width), " bits in ", files,
                       files == 1 ? " file" : " files", data.note);
  splits.train = make_stream(std::move(data.train), data.width, bound);
  splits.val = make_stream(std::move(data.val), data.width, bound);
  return splits;
}

LlmcHeader parse_llmc_header(std::span<const std::byte> shard, const std::string& source) {
  const auto bytes = static_cast<int64_t>(shard.size());
  if (bytes < kLlmcHeaderBytes) {
    throw DataError(
        cat(source, ": ", bytes, " bytes, expected a header of ", kLlmcHeaderBytes, " bytes"));
  }
  std::array<int32_t, 3> header;
  std::memcpy(header.data(), shard.data(), sizeof header);
  const auto magic = static_cast<uint32_t>(header[0]);
  if (magic == kLlmcEvalMagic) {
    throw DataError(cat(source, ": a multiple-choice evaluation file, expected training tokens"));
  }
  if (!is_llmc_magic(magic)) {
    throw DataError(cat(source, ": magic number ", magic, ", expected ", kLlmcGpt2Magic,
                        " (16-bit tokens) or ", kLlmcLlama3Magic, " (32-bit tokens)"));
  }
  const bool is_gpt2 = magic == kLlmcGpt2Magic;
  const int32_t version = is_gpt2 ? 1 : 7;
  if (header[1] != version) {
    throw DataError(cat(source, ": version ", header[1], ", expected ", version));
  }
  const LlmcHeader result{is_gpt2 ? TokenWidth::k16 : TokenWidth::k32, header[2]};
  // The product cannot overflow: 31 bits times at most 4.
  const int64_t want = kLlmcHeaderBytes + result.tokens * static_cast<int>(result.width);
  if (result.tokens <= 0 || bytes != want) {
    throw DataError(cat(source, ": the header says ", result.tokens, " tokens, ", want,
                        " bytes in all, but the file has ", bytes, " bytes"));
  }
  return result;
}

DatasetSplits open_llmc(const DataSource& source, const DataOptions& options) {
  std::vector<std::string> files =
      source.is_folder ? files_ending(source.path, ".bin") : source.files;
  size_t skipped = 0;
  if (source.is_folder) {
    // A folder may also contain evaluation files, which are skipped. If the user names one, it is
    // kept, because opening it reports a more precise error.
    skipped = std::erase_if(
        files, [](const std::string& file) { return file_magic(file) == kLlmcEvalMagic; });
  }
  if (files.empty()) {
    throw MissingInputError(cat(source.path, ": no shard *.bin in this folder"));
  }
  BinData data = collect_llmc(source, files, options);
  if (skipped > 0) data.note += cat("; skipped ", skipped, " evaluation files");
  return make_splits(std::move(data), DataFormat::kLlmc, options);
}

}  // namespace shale::data_internal
