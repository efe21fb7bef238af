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
  std::string name;  // name as the user gave it, or relative to the given folder
  std::string path;
  int64_t bytes = 0;     // size on the disk
  int64_t modified = 0;  // time of the last change, in nanoseconds of the system clock
  bool is_jsonl = false;
  bool is_records = false;     // a .json file with objects that are not one per line
  std::shared_ptr<PipeSource> pipe = {};  // null: a file
  std::string below = {};      // name that divide_files() classifies (runtime/data/split.h)
  bool is_validation = false;  // chosen for validation by divide_corpus()
};

// Lists the files of these paths, in order. A folder contributes the files below it, as for text
// data (runtime/data/tokens/token_dataset.h), without binary and empty files, and without .json
// files whose records are not one per line; `skipped` counts these. JSON lines are recognised by
// the name, .jsonl or .ndjson in any case, or by the decompressed contents: the first two lines are
// objects, or the first line has the key `field`, "messages" or "prompt". Throws MissingInputError
// for a path that does not exist, DataError for a file that is unreadable, is Parquet or Arrow, or
// is named .json and has no JSON lines.
std::vector<CorpusFile> find_corpus(const std::vector<std::string>& paths, std::string_view field,
                                    data_internal::SkippedFiles& skipped);
// Like find_corpus(), but throws DataError if a folder has no file to read.
std::vector<CorpusFile> list_corpus(const std::vector<std::string>& paths,
                                    std::string_view field = "text",
                                    data_internal::SkippedFiles* skipped = nullptr);
// Recognises the contents of a pipe like those of a named file. Throws DataError like
// find_corpus().
CorpusFile corpus_of_pipe(std::shared_ptr<PipeSource> pipe, std::string_view field = "text");
// Returns list_corpus(), or corpus_of_pipe() if the only path is a pipe. Throws ConfigError if a
// pipe is among several paths. on_reading: see PipeSource.
std::vector<CorpusFile> list_inputs(const std::vector<std::string>& paths, std::string_view field,
                                    data_internal::SkippedFiles& skipped, OnReading on_reading);
// Marks files for validation by their names, and removes unused ones, which it counts. Throws
// DataError like divide_files().
void divide_corpus(std::vector<CorpusFile>& files, const std::string& source,
                   data_internal::SkippedFiles& skipped);

// First and last line of a stream that shale.data wrote (bindings/python/shale/data.py). The last
// one ends with the number of lines between them and "}". They are no documents.
inline constexpr std::string_view kStreamBegin = R"({"shale.data": "begin"})";
inline constexpr std::string_view kStreamEnd = R"({"shale.data": "end", "lines": )";
// Throws DataError unless last_line ends a stream of `lines` lines, including the first and last.
void check_stream_end(const std::string& name, std::string_view last_line, int64_t lines);

// Position in a corpus where one batch ends and the next begins.
struct CorpusPosition {
  int64_t file = 0;    // index in the list of files
  int64_t offset = 0;  // byte in the decompressed contents of the file
  int64_t line = 0;    // number of lines before the position
};

// Returns the first keys of an object for messages: "'id', 'body'", or "none".
std::string keys_text(const Json& object);

// Kind of a text, recognised by its first lines.
enum class TextKind {
  kPlain,
  kJsonLines,
  kJson,     // an array or object that spans several lines
  kRecords,  // like kJson, but an array of objects, or an object with a key of training data
};
// Returns the kind of a source that begins with `text`, and reads more of it if needed.
TextKind find_kind(std::string text, ByteSource& source, std::string_view field);

// Consecutive text of one file: whole JSON lines, or a text document or a part of it.
struct DocumentBatch {
  CorpusPosition begin;
  std::string text;
  bool ends_document = true;  // false: the next batch continues the same document
};

// Reads files as batches of about kBatchBytes. The end of a batch depends only on its beginning, so
// reading can resume anywhere.
class BatchReader {
 public:
  static constexpr size_t kBatchBytes = size_t{1} << 20;
  static constexpr size_t kMaxLineBytes = size_t{64} << 20;
  static constexpr size_t kMaxPartBytes = size_t{1} << 28;

  // Returns the first position at or after `from` where a document may be cut; the size of the text
  // if there is none.
  using FindCut = std::function<size_t(std::string_view text, size_t from)>;

  // `files` must outlive the reader.
  BatchReader(const std::vector<CorpusFile>& files, FindCut find_cut, CorpusPosition from = {});

  // Returns false at the end. Throws like ByteSource; DataError, with file and line, if a line or a
  // part of a document exceeds the limit, or if a stream of shale.data lacks its last line.
  bool next(DocumentBatch& batch);
  int64_t taken() const;  // bytes of the files on the disk consumed so far

 private:
  void open(int64_t offset);
  void fill(size_t bytes);
  size_t find_end(const CorpusFile& file);

  const std::vector<CorpusFile>& files_;
  const FindCut find_cut_;
  CorpusPosition at_;
  std::shared_ptr<ByteSource> source_;  // reader of the current file; null between two files
  std::string pending_;                 // text that was read but is not yet in a batch
  bool at_end_ = false;                 // the current file has been read to its end
  bool is_stream_ = false;              // the current file begins with kStreamBegin
  int64_t taken_before_ = 0;            // bytes consumed from previous files
};

// Calls on_line for the non-blank lines of a JSONL batch, each with its position for messages,
// "a.jsonl:3". Leaves out the first and last line of a stream of shale.data. Throws DataError for a
// line above the limit, and for kStreamBegin in another line than a file's first.
void for_each_line(
    const DocumentBatch& batch, const CorpusFile& file,
    const std::function<void(std::string_view line, const std::string& place)>& on_line);

// Calls on_document for each document of a batch, or for the batch's part of a text. Throws
// DataError, with file and line or byte, for text that is not UTF-8 or contains a 0 byte, and for
// lines without a string under the key `field`. Skips empty lines and documents.
void for_each_document(const DocumentBatch& batch, const CorpusFile& file, std::string_view field,
                       const std::function<void(std::string_view text)>& on_document);

}  // namespace shale
