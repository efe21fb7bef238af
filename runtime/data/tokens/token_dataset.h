#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "shale/runtime/data/on_reading.h"

namespace shale {

struct StoredTokenizer;  // runtime/data/text/tokenizer/stored_tokenizer.h

// A long sequence of tokens: documents one after another.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  virtual int64_t size() const = 0;  // tokens

  // Every token is below this number.
  virtual int64_t vocab_bound() const = 0;

  // Fills `out` with the tokens [begin, begin + out.size()). Safe to call from several threads.
  // Throws InternalError if the range leaves [0, size()), DataError for a token that is not below
  // vocab_bound() (the files may have been changed since they were checked).
  virtual void read(int64_t begin, std::span<int32_t> out) const = 0;
};

// How tokens lie in files.
enum class DataFormat {
  kAuto,
  kText,      // a file or a folder of text; tokens are bytes, or those of a tokenizer
  kLlmc,      // .bin shards with a 1024-byte header: 16-bit (GPT-2) or 32-bit (Llama 3) tokens
  kNanogpt,   // headerless 16-bit tokens: train.bin and val.bin
  kMegatron,  // .bin files with an .idx each, as Megatron-LM's tools write them
  kRaw,       // headerless tokens, as OLMo's .npy; or vectors of numpy
  kCorpus,    // jsonl, or text, also as .gz and .zst: tokens are made once, into a cache
};

std::string to_string(DataFormat format);  // "auto", "text", "llmc" and so on
// Bytes of a token in a file, unsigned and little-endian.
enum class TokenWidth : int { k8 = 1, k16 = 2, k32 = 4 };

// Whether a token is a byte, or what a tokenizer makes of text when it is opened.
inline bool is_text(DataFormat format) {
  return format == DataFormat::kText;
}

// What is read, and how it is divided.
struct DataOptions {
  std::string path;  // a file, a folder, or a pattern of file names with *, ? or [...]
  DataFormat format = DataFormat::kAuto;
  // Part of the documents or tokens that is kept for validation, in [0, 1). Unused where the data
  // says by its names what is for validation.
  double val_fraction = 0.1;
  int64_t vocab_size = 0;  // tokens must be below it; 0: whatever the data has
  // Read all binary tokens now; without, read() still checks those that it reads. Text is read in
  // any case.
  bool validate = true;
  OnReading on_reading = {};  // one call at a time, from any thread
  // What text is tokenized with, by so many threads; null: tokens of text are its bytes.
  std::shared_ptr<const StoredTokenizer> tokenizer = {};
  int threads = 1;
  std::optional<TokenWidth> width = {};  // of files that do not say it
  std::string field = "text";            // of a line of jsonl
  std::string cache = {};                // the folder for tokens of kCorpus
  int64_t sources = 1;  // that are opened, this among them: of many, fewer pages each are compared
};

// An opened dataset.
struct DatasetSplits {
  std::shared_ptr<const TokenStream> train;
  std::shared_ptr<const TokenStream> val;  // null if nothing is kept for validation
  DataFormat format = DataFormat::kText;   // never kAuto
  std::string summary;                     // one line: format, files, tokens, what was skipped
  // By these ranks that see different data, and a resume on changed data, are found out.
  uint64_t fingerprint = 0;  // of the files' names and sizes
  uint64_t checksum = 0;     // of what is in them: of all text, of pages spread over binary files
  std::optional<uint64_t> whole_checksum = {};  // of all binary files, if they were validated

  bool is_text() const { return shale::is_text(format); }
};

// Opens token data. Files stay memory-mapped and are not copied, except when a folder has more of
// them than a process may map: then the small ones are.
//
// Validation is what the names of files say (runtime/data/split.h), whatever the format: of a
// folder the paths below it, of a pattern from its first part with *, ? or [ on. A file that is the
// path is not judged by its name. Where no name says it, text is divided by its documents, and
// tokens are by their number: the end of all is for validation.
//
// text: a token is a byte; with a tokenizer, which text must be UTF-8 for, all tokens are made here
//   and kept in memory, and its end of a document joins files. Of a folder, all regular files below
//   it, in order of their relative paths, except names that begin with '.', files with a NUL byte
//   (binaries), unreadable ones, those that must be UTF-8 and are not, and second names of the same
//   file; links to files are followed, links to folders are not. The files are joined by one NUL
//   token, which appears nowhere else, so that a model learns where files end. Validation is made
//   of whole files, chosen by a hash of their content: adding files moves no other file across. Of
//   a single file it is the end, from the first line that begins in the last `val_fraction`.
// llmc: shards *.bin directly in the folder, sorted by name.
// nanogpt: train.bin of a folder, and those *.bin that are for validation or test; or one file.
// megatron: files *.bin, each with its *.idx, of u8, u16 or i32, whose sequences follow each other
//   without gaps; one pair also by its name without an ending.
// raw: files *.bin and *.npy of `width`; those that begin as numpy's say it themselves.
// corpus: what tokenize() (runtime/data/corpus/tokenize.h) reads. The first process writes shards
// to
//   a folder of `cache`, named after inputs and tokenizer; others, and later runs, find them there.
//   Validation is chosen by a hash of each document.
// auto: files that begin with llmc's magic number are llmc, those beside an index megatron; a
// folder
//   with a train.bin that is neither is nanogpt; *.npy is raw, and so is other *.bin if there is a
//   width; else *.bin, or some of each, is ambiguous. Files that have lines of JSON (corpus/
//   documents.h), with a tokenizer also *.gz and *.zst, and folders that have some below them, are
//   a corpus; everything else is text.
//
// Throws MissingInputError if there is no such file; ConfigError if `auto` is ambiguous, an option
// is out of range, or one is missing, such as a tokenizer for a corpus; DataError if text is wanted
// of a tokenizer that has no end of a document; DataError, with file and position, if the data is
// malformed, or nothing is left for training.
DatasetSplits open_dataset(const DataOptions& options);

// The format that open_dataset() would find, without reading the data. Throws as it does.
DataFormat find_format(const DataOptions& options);
// The tokenizer.json in the folder of data that is tokens, whose ids it makes; of single files only
// where shale tokenize has made the folder. None: there is none, or the data is text.
std::optional<std::string> tokenizer_beside(const DataOptions& options);

}  // namespace shale
