#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "shale/runtime/io/mapped_file.h"

namespace shale {

// Sequential reader of a file's bytes. Decompresses files whose names end with ".gz" or ".zst", in
// any case, including all their members or frames.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills `to`, only partly before the end; returns 0 at the end. Throws DataError, which begins
  // with the path, for data that is damaged, truncated or unreadable.
  virtual size_t read(std::span<char> to) = 0;
  // Skips bytes. Throws DataError if there are fewer.
  virtual void skip(int64_t bytes);
  virtual int64_t taken() const = 0;  // number of bytes of the (compressed) file consumed so far
};

// Throws MissingInputError or DataError like MappedFile; UnavailableError, with the package's name,
// if this build has no library for the compression.
std::unique_ptr<ByteSource> open_byte_source(const std::string& path);

// Returns the name without the suffix of a compression: "text.jsonl" for "text.jsonl.gz".
std::string_view without_compression(std::string_view path);
bool is_compressed(std::string_view path);

namespace corpus_internal {

// Open a compressed file. An empty file counts as truncated.
std::unique_ptr<ByteSource> make_gzip_source(MappedFile file);
std::unique_ptr<ByteSource> make_zstd_source(MappedFile file);

}  // namespace corpus_internal
}  // namespace shale
