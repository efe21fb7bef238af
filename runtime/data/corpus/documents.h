#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/data/corpus/byte_source.h"
#include "shale/runtime/data/text/text_files.h"

namespace shale {

// A file of documents: of a JSON object in each line, or one document of text.
struct CorpusFile {
  std::string name;  // as it was given, or relative to the folder that was
  std::string path;
  int64_t bytes = 0;     // on the disk
  int64_t modified = 0;  // in nanoseconds of the system's clock
  bool is_jsonl = false;
  bool is_records = false;     // .json with objects that are not in lines
  std::string below = {};      // its name for divide_files() (runtime/data/split.h)
  bool is_validation = false;  // see divide_corpus()
};

// The files that these paths name, in their order; of a folder, those below it as a folder of text
// is read (runtime/data/tokens/token_dataset.h), without binaries, empty ones and .json that holds
// records but not in lines, which are counted in `skipped`. Lines of JSON are told by the name,
// .jsonl or .ndjson in any case, or by the content, decompressed: the first two lines are objects,
// or the first one has the key `field`, "messages" or "prompt". Throws MissingInputError for a path
// where nothing is, DataError for a file that cannot be read, is of Parquet or Arrow, or is named
// .json and has no lines of JSON.
std::vector<CorpusFile> find_corpus(const std::vector<std::string>& paths, std::string_view field,
                                    data_internal::SkippedFiles& skipped);
// The same. Throws DataError also if a folder has no file.
std::vector<CorpusFile> list_corpus(const std::vector<std::string>& paths,
                                    std::string_view field = "text",
                                    data_internal::SkippedFiles* skipped = nullptr);
// Says which files are for validation by their names, and removes those of no use, which it counts.
// Throws DataError as divide_files().
void divide_corpus(std::vector<CorpusFile>& files, const std::string& source,
                   data_internal::SkippedFiles& skipped);

// A place between two batches.
struct CorpusPosition {
  int64_t file = 0;    // of the list
  int64_t offset = 0;  // in its bytes, decompressed
  int64_t line = 0;    // lines before it
};

// What the first lines of a text are.
enum class TextKind {
  kPlain,
  kJsonLines,
  kJson,     // an array or an object over several lines
  kRecords,  // such an array of objects, or object with a key that lines have
};
// `text` begins the source's; more of it is read as far as it is needed.
TextKind find_kind(std::string text, ByteSource& source, std::string_view field);

// Consecutive text of one file: whole lines of jsonl, else the document or a part of it.
struct DocumentBatch {
  CorpusPosition begin;
  std::string text;
  bool ends_document = true;  // else more of it follows in the next batch
};

// Reads files as batches of about kBatchBytes. Where a batch ends follows from where it begins, so
// that reading can go on anywhere.
class BatchReader {
 public:
  static constexpr size_t kBatchBytes = size_t{1} << 20;
  static constexpr size_t kMaxLineBytes = size_t{64} << 20;
  static constexpr size_t kMaxPartBytes = size_t{1} << 28;

  // Finds the first place at or behind `from` where the text of a document may be cut; its end if
  // there is none.
  using FindCut = std::function<size_t(std::string_view text, size_t from)>;

  // `files` outlives the reader.
  BatchReader(const std::vector<CorpusFile>& files, FindCut find_cut, CorpusPosition from = {});

  // False at the end. Throws as ByteSource; DataError, with file and line, for a line or a part of
  // a document that is longer than the limit.
  bool next(DocumentBatch& batch);
  int64_t taken() const;  // bytes on the disk that were used so far, of all files

 private:
  bool open_next();
  void fill(size_t bytes);
  size_t find_end(const CorpusFile& file);

  const std::vector<CorpusFile>& files_;
  const FindCut find_cut_;
  CorpusPosition at_;
  std::unique_ptr<ByteSource> source_;  // null: between two files
  std::string pending_;                 // read, and in no batch yet
  bool at_end_ = false;                 // of the source
  int64_t taken_before_ = 0;            // by the files before
};

// The lines of a batch of jsonl that are not blank, each with its place, "a.jsonl:3", for messages.
// Throws DataError for a line that is longer than the limit.
void for_each_line(
    const DocumentBatch& batch, const CorpusFile& file,
    const std::function<void(std::string_view line, const std::string& place)>& on_line);

// The documents of a batch, one by one; for text the part that it is. Throws DataError, with file
// and line or byte, for text that is not UTF-8 or has a byte 0, and for lines without a string
// under the key `field`. Empty lines and documents are left out.
void for_each_document(const DocumentBatch& batch, const CorpusFile& file, std::string_view field,
                       const std::function<void(std::string_view text)>& on_document);

}  // namespace shale
