#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "shale/runtime/io/mapped_file.h"

namespace shale {

// The bytes of a file one after another; those of names that end with ".gz" or ".zst", in any case,
// decompressed, all members or frames of them.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills `to`, less of it before the end; 0: the end. Throws DataError, starting with the path,
  // for what is damaged, ends in the middle, or cannot be read.
  virtual size_t read(std::span<char> to) = 0;
  // Leaves out so many bytes. Throws DataError if there are fewer.
  virtual void skip(int64_t bytes);
  virtual int64_t taken() const = 0;  // bytes of the file that were used so far
};

// Throws MissingInputError or DataError as MappedFile; UnavailableError that names the package if
// this build has no library for the compression.
std::unique_ptr<ByteSource> open_byte_source(const std::string& path);

// "text.jsonl" of "text.jsonl.gz": the name without the ending of a compression.
std::string_view without_compression(std::string_view path);
bool is_compressed(std::string_view path);

namespace corpus_internal {

// Of compressed files, by their library. An empty file is one that ends in the middle.
std::unique_ptr<ByteSource> make_gzip_source(MappedFile file);
std::unique_ptr<ByteSource> make_zstd_source(MappedFile file);

}  // namespace corpus_internal
}  // namespace shale
