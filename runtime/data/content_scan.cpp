#include "shale/runtime/data/content_scan.h"

#include <algorithm>
#include <cstring>

#include "shale/base/error.h"
#include "shale/base/rng.h"
#include "shale/runtime/io/crc32c.h"

namespace shale::data_internal {
namespace {

// Bytes processed at a time, few enough to stay in the cache for a second pass.
constexpr int64_t kPiece = int64_t{1} << 20;
constexpr int64_t kBlock = 4096;  // size of a page
// number of pages to sample: of all files together; minimum per file
constexpr int64_t kOfAllFiles = 4096, kOfOneFile = 4;

int64_t size_of(std::span<const std::byte> bytes) {
  return static_cast<int64_t>(bytes.size());
}

uint32_t sampled_crc(const std::string& path, int64_t blocks, const OnReading& on_reading) {
  const MappedFile file(path, {.pattern = AccessPattern::kRandom, .allow_empty = true});
  uint32_t crc = 0;
  int64_t read = 0;
  for (const std::span<const std::byte> part : sampled_parts(file, blocks)) {
    if (on_reading && read++ % 64 == 0) on_reading(path);
    crc = crc32c(part, crc);
  }
  file.check();
  return crc;
}

}  // namespace

uint64_t mix_fingerprint(uint64_t fingerprint, const std::string& name, int64_t size) {
  const uint64_t entry = hash_name(cat(name, '\n', size));
  const PhiloxCounter mixed =
      philox({static_cast<uint32_t>(fingerprint), static_cast<uint32_t>(fingerprint >> 32),
              static_cast<uint32_t>(entry), static_cast<uint32_t>(entry >> 32)},
             {0, 0});
  return uint64_t{mixed[1]} << 32 | mixed[0];
}

int64_t find_nul(std::span<const std::byte> bytes) {
  if (bytes.empty()) return -1;
  const void* hit = std::memchr(bytes.data(), 0, bytes.size());
  return hit == nullptr ? -1 : static_cast<const std::byte*>(hit) - bytes.data();
}

TextScan scan_text(const MappedFile& file, const OnReading& on_reading) {
  const std::span<const std::byte> bytes = file.bytes();
  TextScan scan;
  for (int64_t begin = 0; begin < size_of(bytes); begin += kPiece) {
    if (on_reading) on_reading(file.path());
    const int64_t count = std::min(kPiece, size_of(bytes) - begin);
    const auto piece = bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    const int64_t nul = find_nul(piece);
    scan.crc = crc32c(piece, scan.crc);
    file.check();
    if (nul >= 0) return {.first_nul = begin + nul};
  }
  return scan;
}

uint32_t whole_crc(const MappedFile& file, const OnReading& on_reading) {
  const std::span<const std::byte> bytes = file.bytes();
  uint32_t crc = 0;
  for (int64_t begin = 0; begin < size_of(bytes); begin += kPiece) {
    if (on_reading) on_reading(file.path());
    const int64_t count = std::min(kPiece, size_of(bytes) - begin);
    crc = crc32c(bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)), crc);
  }
  file.check();
  return crc;
}

int64_t sampled_blocks(size_t files) {
  return std::max(kOfAllFiles / std::max<int64_t>(static_cast<int64_t>(files), 1), kOfOneFile);
}

std::vector<std::span<const std::byte>> sampled_parts(const MappedFile& file, int64_t blocks) {
  const std::span<const std::byte> bytes = file.bytes();
  const int64_t pages = (size_of(bytes) + kBlock - 1) / kBlock;
  if (pages <= blocks) return {bytes};
  std::vector<std::span<const std::byte>> parts;
  for (int64_t i = 0; i < blocks; ++i) {
    const auto page = static_cast<int64_t>(static_cast<__int128>(i) * (pages - 1) / (blocks - 1));
    const auto begin = static_cast<size_t>(page * kBlock);
    parts.push_back(bytes.subspan(begin, std::min<size_t>(kBlock, bytes.size() - begin)));
    file.will_need(parts.back());  // starts to read all pages before the first one is needed
  }
  return parts;
}

uint64_t sampled_checksum(int64_t files, const std::function<std::string(int64_t i)>& path_of,
                          const OnReading& on_reading, bool skip_unreadable) {
  const int64_t sampled = std::min(files, kOfAllFiles);
  const int64_t blocks = sampled_blocks(static_cast<size_t>(files));
  uint64_t checksum = 0;
  for (int64_t i = 0; i < sampled; ++i) {
    const int64_t at = i * (files - 1) / std::max<int64_t>(sampled - 1, 1);
    uint32_t crc = 0;
    try {
      crc = sampled_crc(path_of(at), blocks, on_reading);
    } catch (const DataError&) {
      if (!skip_unreadable) throw;
    }
    checksum = mix_checksum(checksum, crc);
  }
  return checksum;
}

uint64_t mix_checksum(uint64_t checksum, uint32_t crc) {
  return mix_fingerprint(checksum, "content", int64_t{crc});
}

}  // namespace shale::data_internal
