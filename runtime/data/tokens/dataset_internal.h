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

// The files that DataOptions::path refers to.
struct DataSource {
  std::string path;
  bool is_folder = false;
  // a single file, or the files that match a pattern, sorted by name; empty for a folder
  std::vector<std::string> files;

  // Returns the name that decides the use of a file (runtime/data/split.h). In a folder it is the
  // path within the folder. With a pattern it is the path from the pattern's first component with
  // *, ? or [ on. For a file that is the path itself it is "".
  std::string name_of(const std::string& file) const;
};

// Finds the files of a path. It is a file, a folder, a pattern, or the common prefix of
// Megatron-LM's .bin and .idx files. Throws MissingInputError if nothing exists.
DataSource resolve(const std::string& path);

// A token file, for training or validation.
struct TokenFile {
  std::string path;
  bool is_validation = false;
};
// Returns the files that are used. Appends the number of unused files to `note`, which becomes part
// of the summary. Throws DataError like divide_files().
std::vector<TokenFile> divide_token_files(const DataSource& source,
                                          const std::vector<std::string>& files, std::string& note);

// Magic numbers at the start of llm.c's .bin files.
inline constexpr uint32_t kLlmcGpt2Magic = 20240520;
inline constexpr uint32_t kLlmcLlama3Magic = 20240801;
// file of multiple-choice tests, not for training
inline constexpr uint32_t kLlmcEvalMagic = 20240522;

bool is_llmc_magic(uint32_t magic);
// returns the first 4 bytes; 0 if the file is unreadable
uint32_t file_magic(const std::string& path);
// Returns the files of a folder with names that end with `ending`, such as ".bin", sorted by name.
// Also searches its subfolder `train` and those with a name that use_of_name() knows. There it
// lists only files that are surely token files, because of the ending .npy, llm.c's magic number or
// an index of Megatron-LM. with_links: also lists dangling links, so that opening them reports the
// problem.
std::vector<std::string> files_ending(const std::string& folder, std::string_view ending,
                                      bool with_links = false);

// Header of an llm.c shard: int32[256]. Element 0 is the magic number, 1 the version, and 2 the
// number of tokens.
struct LlmcHeader {
  TokenWidth width = TokenWidth::k16;
  int64_t tokens = 0;  // at least 1; equals the number of tokens after the header
};
inline constexpr int64_t kLlmcHeaderBytes = 1024;

// Parses the header of a shard. shard: the bytes of the whole file. Throws DataError, which begins
// with `source`, unless the shard is well-formed. Does not check the tokens.
LlmcHeader parse_llmc_header(std::span<const std::byte> shard, const std::string& source);

// Returns the path of Megatron-LM's index next to a token file, "a.idx" for "a.bin". Returns
// nullopt unless that file begins like an index.
std::optional<std::string> megatron_index(const std::string& bin_path);

DatasetSplits open_text(const DataSource& source, const DataOptions& options);
DatasetSplits open_llmc(const DataSource& source, const DataOptions& options);
DatasetSplits open_nanogpt(const DataSource& source, const DataOptions& options);
DatasetSplits open_raw(const DataSource& source, const DataOptions& options);
DatasetSplits open_megatron(const DataSource& source, const DataOptions& options);
DatasetSplits open_corpus(const DataSource& source, const DataOptions& options);
// Returns true if the source contains JSON lines. With a tokenizer, also returns true for
// compressed text.
bool is_corpus(const DataSource& source, const DataOptions& options);

// Token files of one format, before they are divided into training and validation.
struct BinData {
  std::shared_ptr<FileMaps> files;
  std::vector<TokenPiece> train = {};
  std::vector<TokenPiece> val = {};  // files that their names mark for validation
  TokenWidth width = TokenWidth::k16;
  std::string note = {};  // text to add to the summary

  // Adds a file. Its tokens begin at byte `offset`.
  void add(MappedFile file, int64_t offset, int64_t tokens, bool is_validation);
};

// Returns an empty FileMaps for the files of one source. Its limit depends on the number of sources
// (options.sources).
std::shared_ptr<FileMaps> make_files(const DataOptions& options);
MappedFile map_tokens(const std::string& path, bool will_scan);
// Checks the data and computes checksums. Divides the data into training and validation, unless
// file names mark validation data.
DatasetSplits make_splits(BinData data, DataFormat format, const DataOptions& options);

// Divides pieces in two. The first result has their first `head` tokens, the second one the rest.
std::pair<std::vector<TokenPiece>, std::vector<TokenPiece>> split_pieces(
    std::vector<TokenPiece> pieces, TokenWidth width, int64_t head);

int64_t count_tokens(const std::vector<TokenPiece>& pieces);

}  // namespace shale::data_internal
