#include "shale/runtime/io/zip_archive.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale {
namespace {

// Signatures and fixed sizes of the records in APPNOTE.TXT, sections 4.3.7 to 4.3.16.
constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr uint64_t kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr uint16_t kExtra64 = 1;        // type of the extra field with 64-bit sizes
// value of a 32-bit size field: the size is in that extra field
constexpr uint32_t kIn64 = 0xffffffff;
constexpr uint16_t kEncrypted = 1;  // flag of an encrypted member
constexpr size_t kMaxComment = 0xffff;

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> bytes, std::string_view source)
      : bytes_(bytes), source_(source) {}

  ZipMembers read() {
    find_directory();
    ZipMembers members;
    uint64_t at = directory_;
    for (uint64_t i = 0; i < count_; ++i) at = read_member(at, members);
    if (at != directory_ + directory_bytes_) fail("its directory has another size than it claims");
    return members;
  }

 private:
  [[noreturn]] void fail(std::string_view problem) const {
    throw DataError(cat(source_, ": zip archive: ", problem));
  }
  template <typename T>
  T number(uint64_t at) const {
    T value{};
    if (at > bytes_.size() || sizeof value > bytes_.size() - at) fail("a record is cut off");
    std::memcpy(&value, bytes_.data() + at, sizeof value);
    return value;
  }
  std::string_view text(uint64_t at, uint64_t count) const {
    if (at > bytes_.size() || count > bytes_.size() - at) fail("a record is cut off");
    return {reinterpret_cast<const char*>(bytes_.data()) + at, static_cast<size_t>(count)};
  }

  // Returns the position of the archive's end record. Only a comment can follow it.
  uint64_t find_end() const {
    if (bytes_.size() < kEndBytes) fail("shorter than an empty archive");
    const uint64_t last = bytes_.size() - kEndBytes;
    for (uint64_t at = last;; --at) {
      if (number<uint32_t>(at) == kEnd && number<uint16_t>(at + 20) == last - at) return at;
      if (at == 0 || last - at == kMaxComment) fail("no directory at its end; it may be truncated");
    }
  }

  void find_directory() {
    const uint64_t end = find_end();
    if (number<uint16_t>(end + 4) != 0) fail("split into several files, expected one");
    count_ = number<uint16_t>(end + 10);
    directory_bytes_ = number<uint32_t>(end + 12);
    directory_ = number<uint32_t>(end + 16);
    if (end >= kLocator64Bytes && number<uint32_t>(end - kLocator64Bytes) == kLocator64) {
      const auto end64 = number<uint64_t>(end - kLocator64Bytes + 8);
      if (end64 > bytes_.size() || bytes_.size() - end64 < kEnd64Bytes ||
          number<uint32_t>(end64) != kEnd64) {
        fail("no 64-bit directory where it should be");
      }
      count_ = number<uint64_t>(end64 + 32);
      directory_bytes_ = number<uint64_t>(end64 + 40);
      directory_ = number<uint64_t>(end64 + 48);
    }
    if (directory_ > end || directory_bytes_ > end - directory_) fail("its directory is cut off");
    if (count_ > directory_bytes_ / kCentralBytes) fail("more members than its directory holds");
  }

  struct Place {
    uint64_t bytes, stored, local;
  };
  // Returns sizes and offset of the member whose directory record is at `at`. Values that do not
  // fit into 32 bits are in an extra field, in the order size, compressed size, offset.
  Place place_of(uint64_t at, uint64_t extra, uint64_t extra_bytes) const {
    Place place{number<uint32_t>(at + 24), number<uint32_t>(at + 20), number<uint32_t>(at + 42)};
    if (std::max({place.bytes, place.stored, place.local}) != kIn64) return place;
    for (uint64_t field = extra; field + 4 <= extra + extra_bytes;) {
      const auto size = number<uint16_t>(field + 2);
      if (number<uint16_t>(field) == kExtra64) {
        uint64_t next = field + 4;
        for (uint64_t* value : {&place.bytes, &place.stored, &place.local}) {
          if (*value != kIn64) continue;
          if (next + 8 > field + 4 + size) fail("a 64-bit size is missing");
          *value = number<uint64_t>(next);
          next += 8;
        }
        return place;
      }
      field += 4 + uint64_t{size};
    }
    return place;  // no extra field of 64-bit sizes, so the value is really kIn64
  }

  // Adds a member. Returns the position of the next directory record.
  uint64_t read_member(uint64_t at, ZipMembers& members) const {
    if (number<uint32_t>(at) != kCentral) fail("its directory is malformed");
    const auto name_bytes = number<uint16_t>(at + 28), extra_bytes = number<uint16_t>(at + 30);
    const std::string_view name = text(at + kCentralBytes, name_bytes);
    const auto fail_member = [&](std::string_view problem) {
      fail(cat("member '", excerpt(name), "' ", problem));
    };
    if (number<uint16_t>(at + 10) != 0)
      fail_member("is compressed, as in TorchScript; expected an archive of torch.save");
    if ((number<uint16_t>(at + 8) & kEncrypted) != 0) fail_member("is encrypted");
    const Place place = place_of(at, at + kCentralBytes + name_bytes, extra_bytes);
    if (place.bytes != place.stored) {
      fail_member("is not compressed, but its compressed and uncompressed sizes differ");
    }
    if (place.local > bytes_.size() || number<uint32_t>(place.local) != kLocal ||
        number<uint16_t>(place.local + 26) != name_bytes ||
        text(place.local + kLocalBytes, name_bytes) != name) {
      fail_member("is not where the directory says");
    }
    const uint64_t data =
        place.local + kLocalBytes + name_bytes + number<uint16_t>(place.local + 28);
    if (data > bytes_.size() || place.bytes > bytes_.size() - data) fail_member("is cut off");
    const auto part = bytes_.subspan(static_cast<size_t>(data), static_cast<size_t>(place.bytes));
    if (!members.emplace(name, part).second) fail_member("appears twice");
    return at + kCentralBytes + name_bytes + extra_bytes + number<uint16_t>(at + 32);
  }

  std::span<const std::byte> bytes_;
  std::string_view source_;
  uint64_t count_ = 0, directory_ = 0, directory_bytes_ = 0;
};

}  // namespace

ZipMembers read_zip(std::span<const std::byte> archive, std::string_view source) {
  return ZipReader(archive, source).read();
}

}  // namespace shale
