#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "shale/runtime/data/on_reading.h"
#include "shale/runtime/data/once_per_host.h"

namespace shale {

struct StoredTokenizer;  // in runtime/data/text/tokenizer/stored_tokenizer.h

// A long sequence of tokens, which consists of documents one after another.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  virtual int64_t size() const = 0;  // number of tokens

  // Returns a number that is above all tokens.
  virtual int64_t vocab_bound() const = 0;

  // Fills `out` with tokens [begin, begin + out.size()). Thread-safe. Throws InternalError if the
  // range is outside [0, size()). Throws DataError for a token that is not below vocab_bound(),
  // because a file may have changed since it was checked.
  virtual void read(int64_t begin, std::span<int32_t> out) const = 0;
};

// Formats of token files.
enum class DataFormat {
  kAuto,
  kText,      // a file or folder of text; its tokens are bytes, or those of a tokenizer
  kLlmc,      // .bin shards with a 1024-byte header: 16-bit (GPT-2) or 32-bit (Llama 3) tokens
  kNanogpt,   // 16-bit tokens without a header: train.bin and val.bin
  kMegatron,  // .bin files with an .idx each, as written by Megatron-LM's tools
  kRaw,       // tokens without a header, such as OLMo's .npy files; or NumPy vectors
  kCorpus,    // JSONL or text, also compressed as .gz and .zst; is tokenized once into a cache
};

std::string to_string(DataFormat format);  // returns "auto", "text", "llmc" and so on
// Number of bytes of a token in a file. Tokens are unsigned, little-endian.
enum class TokenWidth : int { k8 = 1, k16 = 2, k32 = 4 };

// True if tokens are bytes, or are made from text when the data is opened. False for a corpus,
// whose tokens are in a cache.
inline bool is_text(DataFormat format) {
  return format == DataFormat::kText;
}

// Options of open_dataset().
struct DataOptions {
  std::string path;  // file, folder, or file name pattern with *, ? or [...]
  DataFormat format = DataFormat::kAuto;
  // Fraction of the documents or tokens to hold out for validation, in [0, 1). Unused if file names
  // mark validation data.
  double val_fraction = 0.1;
  int64_t vocab_size = 0;  // number that is above all tokens; 0: derived from the data
  // True: checks all tokens of binary files when they are opened. False: read() checks only the
  // tokens that it reads. Text is always read completely.
  bool validate = true;
  OnReading on_reading = {};  // called by any thread, but one at a time
  // If set, one process of each host lists, checks and tokenizes the files, and sends the result to
  // the others. These open a file when they first read from it. Then find_format(), open_dataset()
  // and tokenizer_beside() are collective over the processes of the host.
  OncePerHost once = {};
  // Tokenizer for text; null: tokens of text are bytes. threads: number of threads that tokenize.
  std::shared_ptr<const StoredTokenizer> tokenizer = {};
  int threads = 1;
  std::optional<TokenWidth> width = {};  // bytes per token in files without a header
  std::string field = "text";            // key of the text in a JSON line
  std::string cache = {};                // folder in which kCorpus keeps its tokens
  // Number of sources opened together. If there are many, fewer pages of each are sampled for the
  // checksum.
  int64_t sources = 1;
};

// An opened dataset.
struct DatasetSplits {
  std::shared_ptr<const TokenStream> train;
  std::shared_ptr<const TokenStream> val;  // validation data; null if there is none
  DataFormat format = DataFormat::kText;   // the format that was found; never kAuto
  std::string summary;                     // one line with format, files, tokens and skipped files
  // Values that must be equal on all ranks, and when a run resumes, to detect different data.
  uint64_t fingerprint = 0;  // covers file names and sizes
  uint64_t checksum = 0;     // covers contents: all text, sampled pages of binary files

  bool is_text() const { return shale::is_text(format); }
};

// Opens token data. Files are memory-mapped, not copied. The exception is a folder of text with
// more files than FileMaps keeps mapped: its small files are copied. Files must not change while
// the result exists. If a file is mapped again and has changed, DataError is thrown.
//
// In every format, file names can mark the validation data (runtime/data/split.h). The name of a
// file is its path below the folder or, with a pattern, its path from the pattern's first component
// with
// *, ? or [ on. A file that is the path itself has no name in this sense. If no name marks
// validation data, text is divided by documents; for tokens, the end of all of them is for
// validation.
//
// text: a token is a byte or, with a tokenizer, one of its tokens. A folder contributes all regular
//   files below it, in the order of their relative paths. It skips names that begin with '.', files
//   with a NUL byte (binary files), unreadable files, files that are not UTF-8 if there is a
//   tokenizer, and second names of the same file. Links to files are followed, links to folders are
//   not.
//   - Without a tokenizer, files are separated by one NUL token, which appears nowhere else, so
//   that
//     a model learns where files end. With a tokenizer, they are separated by its end-of-document
//     token, and open_dataset() makes all tokens and keeps them in memory.
//   - Validation data is whole files. They are chosen by a hash of their contents, so adding files
//     does not move other files. Of a single file it is the end, from the first line that begins in
//     the last `val_fraction`.
// llmc: shards *.bin directly in the folder, sorted by name.
// nanogpt: train.bin of a folder, and *.bin files that their names mark for validation or test; or
//   one file.
// megatron: files *.bin, each with its *.idx, of u8, u16 or i32. Their sequences must be
// contiguous.
//   The path may also be the common name of a pair, without an ending.
// raw: files *.bin and *.npy with tokens of `width`; NumPy headers give the width themselves.
// corpus: input of tokenize() (runtime/data/corpus/tokenize.h). The first process writes shards to
//   a folder in `cache`, named after inputs and tokenizer. Other processes and later runs reuse
//   them. Validation data is chosen by a hash of each document.
// auto: picks the first format that fits.
//   - Files with llm.c's magic number are llmc; files with an index are megatron; a folder with a
//     train.bin is nanogpt; *.npy is raw.
//   - Other *.bin files are raw if `width` is given. Otherwise they are ambiguous, and so is a
//     mixture of formats.
//   - Files with JSON lines (corpus/documents.h), and folders with such files, are corpus. With a
//     tokenizer, so are *.gz and *.zst. Everything else is text.
//
// Throws MissingInputError if a file does not exist. Throws ConfigError if `auto` is ambiguous, or
// an option is out of range or missing, such as a tokenizer for a corpus. Throws DataError if the
// tokenizer for text has no end-of-document token. Throws DataError, with file and position, if the
// data is malformed or nothing is left for training.
DatasetSplits open_dataset(const DataOptions& options);

// Returns the format that open_dataset() would use, without reading data. Throws like
// open_dataset().
DataFormat find_format(const DataOptions& options);
// Returns the path of the tokenizer.json that belongs to token data, which is the one in its
// folder. For single files it is returned only if `shale tokenize` made the folder. nullopt: there
// is none, or the data is text.
std::optional<std::string> tokenizer_beside(const DataOptions& options);

}  // namespace shale
