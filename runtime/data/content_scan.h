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

// Joins a file's name and size to a fingerprint.
uint64_t mix_fingerprint(uint64_t fingerprint, const std::string& name, int64_t size);
// Joins what a file contains to a checksum.
uint64_t mix_checksum(uint64_t checksum, uint32_t crc);

// The position of the first NUL, or -1.
int64_t find_nul(std::span<const std::byte> bytes);

// What reading all of a text finds.
struct TextScan {
  int64_t first_nul = -1;  // then the rest was not read
  uint32_t crc = 0;        // CRC-32C of all bytes
};
TextScan scan_text(const MappedFile& file, const OnReading& on_reading);

// CRC-32C of all bytes.
uint32_t whole_crc(const MappedFile& file, const OnReading& on_reading);
// `blocks` pages spread over the file, the first and the last among them; all bytes as one part if
// there are not more.
std::vector<std::span<const std::byte>> sampled_parts(const MappedFile& file, int64_t blocks);
// Pages of each file: its share of 4,096, but at least 4.
int64_t sampled_blocks(size_t files);

// Checksum of the content of files, in their order, without reading all of it. Covers
// sampled_blocks() pages of each file, so a file of at most that many pages is covered completely.
// Of more than 4,096 files, covers 4 pages of each of 4,096 that are spread evenly over the list,
// the first and the last among them, and nothing of the others: at most 16,384 pages in all.
// Throws what MappedFile throws; with `skip_unreadable`, a file that cannot be read counts as
// empty.
uint64_t sampled_checksum(int64_t files, const std::function<std::string(int64_t i)>& path_of,
                          const OnReading& on_reading, bool skip_unreadable = false);

}  // namespace shale::data_internal
