#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "shale/runtime/data/on_reading.h"
#include "shale/runtime/io/file.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale {

// Sequential reader of a file's bytes. Decompresses files with names that end with ".gz" or ".zst"
// (in upper or lower case), including all their members or frames.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills `to`. At the end of the file fills only a part of it, then returns 0. Returns the number
  // of bytes. Throws DataError, which begins with the path, for data that is damaged, truncated or
  // unreadable.
  virtual size_t read(std::span<char> to) = 0;
  // Skips bytes. Throws DataError if there are fewer.
  virtual void skip(int64_t bytes);
  // returns how many bytes of the (compressed) file were consumed so far
  virtual int64_t taken() const = 0;
};

// Reader of standard input or a named pipe, whose bytes can be read only once.
class PipeSource final : public ByteSource {
 public:
  // path: a pipe, or "-", which is standard input. on_reading: called while a read waits, and at
  // the end. Throws DataError if the pipe cannot be opened, or is a terminal.
  explicit PipeSource(const std::string& path, OnReading on_reading = {});

  size_t read(std::span<char> to) override;
  int64_t taken() const override { return taken_; }
  const std::string& name() const { return name_; }  // name for messages
  // Makes the next read() begin with the first byte again. Can be called only once, because bytes
  // that are read afterwards are not kept.
  void rewind();

 private:
  size_t read_pipe(std::span<char> to);

  std::string name_;
  OnReading on_reading_;
  FileHandle file_;
  std::string start_;  // bytes that were read before rewind()
  size_t start_at_ = 0;
  bool keeps_start_ = true;
  int64_t taken_ = 0;
};

// True for "-" and for the path of a named pipe, such as bash's <(command).
bool is_pipe(const std::string& path);

// Opens a file. Throws MissingInputError or DataError like MappedFile. Throws UnavailableError,
// with the package's name, if this build lacks the library for the compression.
std::unique_ptr<ByteSource> open_byte_source(const std::string& path);

// Returns the name without the suffix of a compression format: "text.jsonl" for "text.jsonl.gz".
std::string_view without_compression(std::string_view path);
bool is_compressed(std::string_view path);

namespace corpus_internal {

// Open a compressed file. An empty file counts as truncated.
std::unique_ptr<ByteSource> make_gzip_source(MappedFile file);
std::unique_ptr<ByteSource> make_zstd_source(MappedFile file);

}  // namespace corpus_internal
}  // namespace shale
