#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shale {

// CRC32C (Castagnoli; RFC 3720, appendix B.4). Detects every single-bit error and every burst of up
// to 32 bits. `before` is the checksum of the preceding bytes: crc32c(ab) == crc32c(b, crc32c(a)).
// Uses the CPU's instruction if it has one, and then runs at memory speed.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// Like crc32c(), but with tables: several times slower, for CPUs without the instruction.
uint32_t crc32c_by_tables(std::span<const std::byte> bytes, uint32_t before = 0);

// CRC-32 of zip archives and zlib (ISO 3309), with tables.
uint32_t zip_crc32(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace shale
