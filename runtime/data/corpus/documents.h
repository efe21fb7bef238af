#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/json.h"
#include "shale/runtime/data/corpus/byte_source.h"
#include "shale/runtime/data/text/text_files.h"

namespace shale {

// A file of documents: one JSON object per line, or a single text document.
struct CorpusFile {
  std::string name;  // name given by the user, or path relative to the folder given by the user
  std::string path;
  int64_t bytes = 0;     // size on the disk
  int64_t modified = 0;  // time of the last change, in nanoseconds of the system clock
  bool is_jsonl = false;
  bool is_records = false;  // true: a .json file in which objects are not one per line
  std::shared_ptr<PipeSource> pipe = {};  // source of the bytes if it is a pipe; null: a file
  std::string below = {};      // name by which divide_files() decides (runtime/data/split.h)
  bool is_validation = false;  // true: divide_corpus() has chosen the file for validation
};

// Lists the files of these paths, in order. A folder contributes the files below it, as for text
// data (runtime/data/tokens/token_dataset.h). Binary files, empty files, and .json files in which
// records are not one per line are left out and counted in `skipped`.
//
// A file has JSON lines if its name ends with .jsonl or .ndjson (in upper or lower case). It also
// has JSON lines if its decompressed contents look like it: the first two lines are objects, or the
// first line has the key `field`, "messages" or "prompt". Throws MissingInputError for a path that
// does not exist. Throws DataError for a file that is unreadable, is Parquet or Arrow, or is named
// .json and has no JSON lines.
std::vector<CorpusFile> find_corpus(const std::vector<std::string>& paths, std::string_view field,
                                    data_internal::SkippedFiles& skipped);
// Like find_corpus(), but throws DataError if a folder has no file to read.
std::vector<CorpusFile> list_corpus(const std::vector<std::string>& paths,
                                    std::string_view field = "text",
                                    data_internal::SkippedFiles* skipped = nullptr);
// Finds the kind of a pipe's contents, as for a file that the user names. Throws DataError like
// find_corpus().
CorpusFile corpus_of_pipe(std::shared_ptr<PipeSource> pipe, std::string_view field = "text");
// Returns list_corpus(), or corpus_of_pipe() if the only path is a pipe. Throws ConfigError if
// there are several paths and one is a pipe. on_reading: see PipeSource.
std::vector<CorpusFile> list_inputs(const std::vector<std::string>& paths, std::string_view field,
                                    data_internal::SkippedFiles& skipped, OnReading on_reading);
// Marks files for validation by their names. Removes files that are neither for training nor for
// validation, and counts them in `skipped`. Throws DataError like divide_files().
void divide_corpus(std::vector<CorpusFile>& files, const std::string& source,
                   data_internal::SkippedFiles& skipped);

// First and last line of a stream that shale.data wrote (bindings/python/shale/data.py). They are
// not documents. The last line ends with "}" after the number of lines between them.
inline constexpr std::string_view kStreamBegin = R"({"shale.data": "begin"})";
inline constexpr std::string_view kStreamEnd = R"({"shale.data": "end", "lines": )";
// Throws DataError unless last_line is the end of a stream with `lines` lines. `lines` includes the
// first and last line.
void check_stream_end(const std::string& name, std::string_view last_line, int64_t lines);

// Position in a corpus between two batches.
struct CorpusPosition {
  int64_t file = 0;    // index in the list of files
  int64_t offset = 0;  // offset in the decompressed contents of the file
  int64_t line = 0;    // number of lines before the position
};

// Returns the first keys of an object for messages: "'id', 'body'", or "none".
std::string keys_text(const Json& object);

// Kind of a text, found from its first lines.
enum class TextKind {
  kPlain,
  kJsonLines,
  kJson,     // JSON: an array or object that spans several lines
  kRecords,  // kJson that is an array of objects, or an object with a key of training data
};
// Returns the kind of a source. `text` is its beginning; reads more if needed.
TextKind find_kind(std::string text, ByteSource& source, std::string_view field);

// Consecutive text of one file: whole JSON lines, or a text document, or a part of a text document.
struct DocumentBatch {
  CorpusPosition begin;
  std::string text;
  bool ends_document = true;  // false: the next batch continues the same document
};

// Reads files in batches of about kBatchBytes. The end of a batch depends only on its beginning, so
// reading can resume after any batch.
class BatchReader {
 public:
  static constexpr size_t kBatchBytes = size_t{1} << 20;
  static constexpr size_t kMaxLineBytes = size_t{64} << 20;
  static constexpr size_t kMaxPartBytes = size_t{1} << 28;

  // Returns the first position at or after `from` where a document may be divided; the size of the
  // text if there is none.
  using FindCut = std::function<size_t(std::string_view text, size_t from)>;

  // `files` must outlive the reader.
  BatchReader(const std::vector<CorpusFile>& files, FindCut find_cut, CorpusPosition from = {});

  // Reads the next batch. Returns false at the end. Throws like ByteSource. Throws DataError, with
  // file and line, if a line or a part of a document exceeds the limit, or if a stream of
  // shale.data lacks its last line.
  bool next(DocumentBatch& batch);
  int64_t taken() const;  // Returns how many bytes of the files on the disk were consumed so far.

 private:
  void open(int64_t offset);
  void fill(size_t bytes);
  size_t find_end(const CorpusFile& file);

  const std::vector<CorpusFile>& files_;
  const FindCut find_cut_;
  CorpusPosition at_;
  std::shared_ptr<ByteSource> source_;  // reader of the current file; null between two files
  std::string pending_;                 // text that was read but is not yet in a batch
  bool at_end_ = false;                 // true: the current file has been read to its end
  bool is_stream_ = false;              // true: the current file begins with kStreamBegin
  int64_t taken_before_ = 0;            // bytes of previous files
};

// Calls on_line for the non-blank lines of a JSONL batch, each with its position for messages, such
// as "a.jsonl:3". Omits the first and last line of a stream of shale.data. Throws DataError for a
// line above the limit, and for kStreamBegin in another line than a file's first.
void for_each_line(
    const DocumentBatch& batch, const CorpusFile& file,
    const std::function<void(std::string_view line, const std::string& place)>& on_line);

// Calls on_document for each document of a batch, or for the part of a document that the batch
// contains. Skips empty lines and documents. Throws DataError, with file and line or byte, for text
// that is not UTF-8 or contains a 0 byte, and for lines without a string under the key `field`.
void for_each_document(const DocumentBatch& batch, const CorpusFile& file, std::string_view field,
                       const std::function<void(std::string_view text)>& on_document);

}  // namespace shale
