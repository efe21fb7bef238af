#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shale/runtime/data/on_reading.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::data_internal {

// Combines a file's name and size with a fingerprint.
uint64_t mix_fingerprint(uint64_t fingerprint, const std::string& name, int64_t size);
// Combines a CRC of a file's contents with a checksum.
uint64_t mix_checksum(uint64_t checksum, uint32_t crc);

// Returns the position of the first NUL byte; -1 if there is none.
int64_t find_nul(std::span<const std::byte> bytes);

// Result of reading a whole text.
struct TextScan {
  int64_t first_nul = -1;  // position of the first NUL byte, where reading stopped; -1: none
  uint32_t crc = 0;        // CRC-32C of all bytes
};
TextScan scan_text(const MappedFile& file, const OnReading& on_reading);

// Returns the CRC-32C of all bytes.
uint32_t whole_crc(const MappedFile& file, const OnReading& on_reading);
// Returns `blocks` pages spread evenly over the file, including the first and the last. If the file
// has at most that many pages, returns all bytes as one part.
std::vector<std::span<const std::byte>> sampled_parts(const MappedFile& file, int64_t blocks);
// Returns the number of pages to sample per file: an equal share of 4,096, but at least 4.
int64_t sampled_blocks(size_t files);

// Returns a checksum of the contents of files, in order, without reading all of them. It covers
// sampled_blocks() pages of each file, so smaller files are covered completely. Of more than 4,096
// files it covers 4,096 with 4 pages each, at most 16,384 pages in total; they are spread evenly
// over the list and include the first and the last. Throws the errors of MappedFile. If
// `skip_unreadable`, an unreadable file counts as empty.
uint64_t sampled_checksum(int64_t files, const std::function<std::string(int64_t i)>& path_of,
                          const OnReading& on_reading, bool skip_unreadable = false);

}  // namespace shale::data_internal
