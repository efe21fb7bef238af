#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/runtime/data/content_scan.h"
#include "shale/runtime/data/tokens/piece_stream.h"
#include "shale/runtime/data/tokens/token_dataset.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::data_internal {

// What DataOptions::path stands for.
struct DataSource {
  std::string path;
  bool is_folder = false;
  std::vector<std::string> files;  // the file, or a pattern's matches by name; empty for a folder

  // The name by which the use of a file is decided (runtime/data/split.h): its path in the folder,
  // or from the first part of the pattern on that has a *, ? or [; "" of a file that is the path.
  std::string name_of(const std::string& file) const;
};

// What is at a path: a file, a folder, a pattern's files, or what Megatron-LM's .bin and .idx begin
// with. Throws MissingInputError if there is nothing.
DataSource resolve(const std::string& path);

// A file of tokens, and whether it is for validation.
struct TokenFile {
  std::string path;
  bool is_validation = false;
};
// The files without those that have no use, whose number goes into the note of a summary. Throws
// DataError as divide_files().
std::vector<TokenFile> divide_token_files(const DataSource& source,
                                          const std::vector<std::string>& files, std::string& note);

// Magic numbers at the start of llm.c's .bin files.
inline constexpr uint32_t kLlmcGpt2Magic = 20240520;
inline constexpr uint32_t kLlmcLlama3Magic = 20240801;
inline constexpr uint32_t kLlmcEvalMagic = 20240522;  // multiple-choice tests: not for training

bool is_llmc_magic(uint32_t magic);
uint32_t file_magic(const std::string& path);  // first 4 bytes; 0 if it cannot be read
// Files of a folder with that ending, such as ".bin", sorted by name; with links to nothing, if
// opening them is to say so. Of the folders in it, `train` and those that use_of_name() knows
// count, with those of their files that say what they are.
std::vector<std::string> files_ending(const std::string& folder, std::string_view ending,
                                      bool with_links = false);

// What the header of an llm.c shard says: int32[256], of which [0] is the magic number, [1] the
// version and [2] the number of tokens.
struct LlmcHeader {
  TokenWidth width = TokenWidth::k16;
  int64_t tokens = 0;  // at least 1, and as many as follow the header
};
inline constexpr int64_t kLlmcHeaderBytes = 1024;

// `shard`: a whole file. Throws DataError, starting with `source`, unless the shard is well-formed;
// the tokens are not looked at.
LlmcHeader parse_llmc_header(std::span<const std::byte> shard, const std::string& source);

// The index of Megatron-LM beside tokens, "a.idx" of "a.bin"; none unless it begins as one.
std::optional<std::string> megatron_index(const std::string& bin_path);

DatasetSplits open_text(const DataSource& source, const DataOptions& options);
DatasetSplits open_llmc(const DataSource& source, const DataOptions& options);
DatasetSplits open_nanogpt(const DataSource& source, const DataOptions& options);
DatasetSplits open_raw(const DataSource& source, const DataOptions& options);
DatasetSplits open_megatron(const DataSource& source, const DataOptions& options);
DatasetSplits open_corpus(const DataSource& source, const DataOptions& options);
// Whether there are lines of JSON, or, with a tokenizer, compressed text.
bool is_corpus(const DataSource& source, const DataOptions& options);

// Token files of one format, before they are divided.
struct BinData {
  std::vector<TokenPiece> train;
  std::vector<TokenPiece> val;  // by name
  TokenWidth width = TokenWidth::k16;
  std::string note = {};  // for the summary
};

std::shared_ptr<const MappedFile> map_tokens(const std::string& path, bool will_scan);
// Tokens from a byte of the file on.
TokenPiece make_piece(const std::shared_ptr<const MappedFile>& file, int64_t offset,
                      int64_t tokens);
// Checks the data, takes its checksums, and divides it unless files say what is for validation.
DatasetSplits make_splits(BinData data, DataFormat format, const DataOptions& options);

// The first `head` tokens of the pieces, and the rest.
std::pair<std::vector<TokenPiece>, std::vector<TokenPiece>> split_pieces(
    std::vector<TokenPiece> pieces, TokenWidth width, int64_t head);

int64_t count_tokens(const std::vector<TokenPiece>& pieces);

}  // namespace shale::data_internal
