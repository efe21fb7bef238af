#include "shale/runtime/io/crc32c.h"

#include <string>
#include <vector>

#include "shale/test/support/catch.h"

namespace shale {
namespace {

uint32_t crc_of(const std::string& text) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(text)));
  CHECK(crc == crc32c_by_tables(std::as_bytes(std::span(text))));
  return crc;
}

std::vector<std::byte> noise(size_t size) {
  std::vector<std::byte> bytes(size);
  uint32_t state = 12345;
  for (std::byte& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

}  // namespace

// Expected values are from RFC 3720, B.4, and the CRC catalogue's check value.
TEST_CASE("crc32c has the published values", "[io]") {
  std::string up;
  for (char c = 0; c < 32; ++c) up += c;
  CHECK(crc_of("") == 0);
  CHECK(crc_of("123456789") == 0xe3069283);
  CHECK(crc_of(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(crc_of(std::string(32, '\xff')) == 0x62a8ab43);
  CHECK(crc_of(up) == 0x46dd794e);
  CHECK(crc_of({up.rbegin(), up.rend()}) == 0x113fdb5c);
}

// The code with CPU instructions processes three lanes of 2048 bytes, then words, then bytes.
TEST_CASE("the instruction and the tables agree at every size and alignment", "[io]") {
  const std::vector<std::byte> bytes = noise(20'000);
  const std::span<const std::byte> all = bytes;
  int64_t different = 0;
  for (size_t size = 0; size < 600; ++size) {
    for (const size_t begin : {0, 1, 7}) {
      const auto part = all.subspan(begin, size);
      different += crc32c(part) != crc32c_by_tables(part) ? 1 : 0;
    }
  }
  for (const size_t size :
       {6143u, 6144u, 6145u, 6151u, 6152u, 12'287u, 12'288u, 18'440u, 19'999u}) {
    for (const size_t begin : {0, 1}) {
      const auto part = all.subspan(begin, size);
      different += crc32c(part) != crc32c_by_tables(part) ? 1 : 0;
    }
  }
  CHECK(different == 0);
}

TEST_CASE("a checksum goes on where another one stopped", "[io]") {
  const std::vector<std::byte> bytes = noise(15'000);
  const std::span<const std::byte> all = bytes;
  const uint32_t want = crc32c(all);
  for (const size_t cut : {0u, 1u, 9u, 6144u, 7000u, 14'999u, 15'000u}) {
    CAPTURE(cut);
    CHECK(crc32c(all.subspan(cut), crc32c(all.first(cut))) == want);
    CHECK(crc32c_by_tables(all.subspan(cut), crc32c_by_tables(all.first(cut))) == want);
  }
}

TEST_CASE("every flipped bit of 8 KiB changes the checksum", "[io]") {
  std::vector<std::byte> bytes = noise(8192);
  const uint32_t before = crc32c(bytes);
  int64_t unnoticed = 0;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const auto mask = static_cast<std::byte>(1 << (bit % 8));
    bytes[bit / 8] ^= mask;
    unnoticed += crc32c(bytes) == before ? 1 : 0;
    bytes[bit / 8] ^= mask;
  }
  CHECK(unnoticed == 0);
}

}  // namespace shale
