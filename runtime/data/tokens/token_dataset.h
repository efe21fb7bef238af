#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "shale/runtime/data/on_reading.h"
#include "shale/runtime/data/once_per_host.h"

namespace shale {

struct StoredTokenizer;  // runtime/data/text/tokenizer/stored_tokenizer.h

// A long sequence of tokens: documents one after another.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  virtual int64_t size() const = 0;  // number of tokens

  // Upper bound: all tokens are below this number.
  virtual int64_t vocab_bound() const = 0;

  // Fills `out` with tokens [begin, begin + out.size()). Thread-safe. Throws InternalError if the
  // range is outside [0, size()), DataError for a token that is not below vocab_bound() (a file may
  // have changed since it was checked).
  virtual void read(int64_t begin, std::span<int32_t> out) const = 0;
};

// Formats of token files.
enum class DataFormat {
  kAuto,
  kText,      // a file or folder of text; tokens are bytes, or a tokenizer's
  kLlmc,      // .bin shards with a 1024-byte header: 16-bit (GPT-2) or 32-bit (Llama 3) tokens
  kNanogpt,   // headerless 16-bit tokens: train.bin and val.bin
  kMegatron,  // .bin files with an .idx each, as written by Megatron-LM's tools
  kRaw,       // headerless tokens, such as OLMo's .npy files, or NumPy vectors
  kCorpus,    // JSONL or text, also as .gz and .zst: tokenized once into a cache
};

std::string to_string(DataFormat format);  // "auto", "text", "llmc" and so on
// Bytes per token in a file; unsigned, little-endian.
enum class TokenWidth : int { k8 = 1, k16 = 2, k32 = 4 };

// True if tokens are bytes, or text is tokenized when it is opened.
inline bool is_text(DataFormat format) {
  return format == DataFormat::kText;
}

// Options of open_dataset().
struct DataOptions {
  std::string path;  // file, folder, or file name pattern with *, ? or [...]
  DataFormat format = DataFormat::kAuto;
  // Fraction of the documents or tokens to hold out for validation, in [0, 1). Unused if names mark
  // the validation data.
  double val_fraction = 0.1;
  int64_t vocab_size = 0;  // all tokens must be below it; 0: derived from the data
  // True: checks all tokens of binary files now. False: read() checks only the tokens that it
  // reads. Text is always read completely.
  bool validate = true;
  OnReading on_reading = {};  // called by one thread at a time, which may be any
  // If set, one process of each host lists, checks and tokenizes the files, and tells the others
  // what it found; they open a file when they first read from it. Then find_format(),
  // open_dataset() and tokenizer_beside() are collective over the host.
  OncePerHost once = {};
  // Tokenizer for text, and its number of threads; null: tokens of text are bytes.
  std::shared_ptr<const StoredTokenizer> tokenizer = {};
  int threads = 1;
  std::optional<TokenWidth> width = {};  // bytes per token in files without a header
  std::string field = "text";            // key of the text in a JSON line
  std::string cache = {};                // folder for the tokens that kCorpus makes
  // Number of sources opened together; with many, fewer pages of each are compared.
  int64_t sources = 1;
};

// An opened dataset.
struct DatasetSplits {
  std::shared_ptr<const TokenStream> train;
  std::shared_ptr<const TokenStream> val;  // null if nothing is held out
  DataFormat format = DataFormat::kText;   // never kAuto
  std::string summary;                     // one line: format, files, tokens, skipped files
  // Compared between ranks, and between a run and its resume, to detect different data.
  uint64_t fingerprint = 0;  // covers file names and sizes
  uint64_t checksum = 0;     // covers contents: all text, sampled pages of binary files

  bool is_text() const { return shale::is_text(format); }
};

// Opens token data. Files are memory-mapped, not copied, except small ones of a folder of text with
// more files than FileMaps keeps mapped. They must not change while the result exists: a file that
// is mapped again and has changed is a DataError.
//
// File names mark the validation data in every format (runtime/data/split.h). In a folder the path
// below it counts, with a pattern the path from its first component with *, ? or [ on. A file that
// is the path itself is not judged by its name. If no name marks any, text is divided by documents,
// and for tokens the end of all of them is for validation.
//
// text: a token is a byte, or, with a tokenizer, one of its tokens. In a folder, uses all regular
//   files below it, in order of their relative paths, except names that begin with '.', files with
//   a NUL byte (binaries), unreadable files, invalid UTF-8 if there is a tokenizer, and second
//   names of the same file. Links to files are followed, links to folders are not.
//   - Without a tokenizer one NUL token, which appears nowhere else, separates files, so that a
//     model learns where files end. With one, its end-of-document token separates them, and
//     open_dataset() makes all tokens and keeps them in memory.
//   - Validation consists of whole files, chosen by a hash of their contents, so adding files does
//     not move other files. Of a single file it is the end, from the first line that begins in the
//     last `val_fraction`.
// llmc: shards *.bin directly in the folder, sorted by name.
// nanogpt: train.bin of a folder, and *.bin files marked for validation or test; or one file.
// megatron: files *.bin, each with its *.idx, of u8, u16 or i32, whose sequences are contiguous.
//   A pair can also be given by its name without an ending.
// raw: files *.bin and *.npy of `width`; NumPy headers give the width themselves.
// corpus: input of tokenize() (runtime/data/corpus/tokenize.h). The first process writes shards to
//   a folder in `cache`, named after inputs and tokenizer; other processes and later runs reuse
//   them. Validation is chosen by a hash of each document.
// auto: picks the first format that fits.
//   - Files with llm.c's magic number are llmc; files with an index are megatron; a folder with a
//     train.bin is nanogpt; *.npy is raw.
//   - Other *.bin files are raw if `width` is given, else ambiguous, like a mixture of formats.
//   - Files with JSON lines (corpus/documents.h), with a tokenizer also *.gz and *.zst, and folders
//     with such files are corpus. Everything else is text.
//
// Throws MissingInputError if a file does not exist; ConfigError if `auto` is ambiguous, or an
// option is out of range or missing, such as a tokenizer for a corpus; DataError if the tokenizer
// for text has no end-of-document token; DataError, with file and position, if the data is
// malformed or nothing is left for training.
DatasetSplits open_dataset(const DataOptions& options);

// Returns the format that open_dataset() would use, without reading data. Throws as it does.
DataFormat find_format(const DataOptions& options);
// Returns the tokenizer.json that belongs to token data: the one in its folder; for single files
// only if shale tokenize made the folder. nullopt: there is none, or the data is text.
std::optional<std::string> tokenizer_beside(const DataOptions& options);

}  // namespace shale
