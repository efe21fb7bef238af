#include "shale/runtime/data/images/tar_index.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale::image_internal {
namespace {

constexpr int64_t kBlock = 512;

// Returns a text field of a header, which ends with a NUL or at the end of the field.
std::string_view text_of(std::string_view header, size_t begin, size_t bytes) {
  const std::string_view field = header.substr(begin, bytes);
  return field.substr(0, std::min(field.find('\0'), field.size()));
}

// Parses a number field. It has octal digits with blanks around them, or a binary number if the
// first bit is set.
std::optional<int64_t> number_of(std::string_view field) {
  int64_t value = 0;
  if ((static_cast<uint8_t>(field[0]) & 0x80) != 0) {
    for (size_t i = 1; i < field.size(); ++i) {
      if (value >> 54 != 0) return {};
      value = value << 8 | static_cast<uint8_t>(field[i]);
    }
    return value;
  }
  const size_t begin = std::min(field.find_first_not_of(' '), field.size());
  size_t digits = 0;
  for (size_t i = begin; i < field.size() && field[i] >= '0' && field[i] <= '7'; ++i, ++digits) {
    value = value * 8 + (field[i] - '0');
  }
  if (digits == 0) return {};
  return value;
}

bool is_zero(std::string_view header) {
  return std::all_of(header.begin(), header.end(), [](char c) { return c == '\0'; });
}

bool has_checksum(std::string_view header) {
  constexpr size_t kBegin = 148, kBytes = 8;
  int64_t sum = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    sum += i >= kBegin && i < kBegin + kBytes ? ' ' : static_cast<uint8_t>(header[i]);
  }
  return number_of(header.substr(kBegin, kBytes)) == sum;
}

// Values in a pax header (records "LENGTH KEY=VALUE\n"). They replace those in the header of the
// next member.
struct PaxRecords {
  std::string_view path;  // value of "path"; empty: none given
  int64_t bytes = -1;     // value of "size"; -1: none given
};

// Returns nullopt if a record is malformed. If a key is repeated, its last value counts (POSIX.1).
std::optional<PaxRecords> pax_records(std::string_view records) {
  PaxRecords found;
  while (!records.empty()) {
    const size_t blank = records.find(' ');
    if (blank == records.npos) return {};
    const auto length = parse_int(records.substr(0, blank));
    if (!length || *length <= static_cast<int64_t>(blank) + 1 || *length > std::ssize(records)) {
      return {};
    }
    std::string_view record = records.substr(blank + 1, static_cast<size_t>(*length) - blank - 2);
    constexpr std::string_view kPath = "path=", kSize = "size=";
    if (record.starts_with(kPath)) found.path = record.substr(kPath.size());
    if (record.starts_with(kSize)) {
      found.bytes = parse_int(record.substr(kSize.size())).value_or(-1);
      if (found.bytes < 0) return {};
    }
    records.remove_prefix(static_cast<size_t>(*length));
  }
  return found;
}

std::string name_of(std::string_view header) {
  const std::string name(text_of(header, 0, 100));
  // GNU headers have another magic number, and no prefix: they have times at its position.
  if (header.substr(257, 6) != std::string_view("ustar\0", 6)) return name;
  const std::string_view prefix = text_of(header, 345, 155);
  return prefix.empty() ? name : cat(prefix, "/", name);
}

}  // namespace

std::string index_tar(std::span<const std::byte> archive,
                      const std::function<void(const TarMember&)>& visit) {
  const std::string_view all(reinterpret_cast<const char*>(archive.data()), archive.size());
  const int64_t end = std::ssize(all);
  std::string next_name;  // name that an extension entry gives to the next member
  int64_t next_bytes = -1;
  for (int64_t at = 0; at + kBlock <= end;) {
    const std::string_view header = all.substr(static_cast<size_t>(at), kBlock);
    if (is_zero(header)) return {};
    const std::optional<int64_t> own_bytes = number_of(header.substr(124, 12));
    if (!has_checksum(header) || !own_bytes) return cat("no header at byte ", at);
    const char type = header[156];
    const bool is_about_next = type == 'L' || type == 'K' || type == 'x' || type == 'g';
    const int64_t bytes = is_about_next || next_bytes < 0 ? *own_bytes : next_bytes;
    const int64_t begin = at + kBlock;
    const std::string name = next_name.empty() ? name_of(header) : next_name;
    if (bytes > end - begin) {
      return cat(excerpt(name), " has ", bytes, " bytes, but the file ends after ", end - begin,
                 " of them");
    }
    const std::string_view content =
        all.substr(static_cast<size_t>(begin), static_cast<size_t>(bytes));
    if (type == 'L') next_name = text_of(content, 0, content.size());
    if (type == 'x' || type == 'g') {
      const std::optional<PaxRecords> records = pax_records(content);
      if (!records) return cat("malformed pax records at byte ", begin);
      if (type == 'x') {
        if (!records->path.empty()) next_name = records->path;
        next_bytes = records->bytes;
      } else if (!records->path.empty() || records->bytes >= 0) {
        return cat("expected a global pax header without path and size, found them at byte ", at);
      }
    }
    if (type == '0' || type == '\0') visit({.name = name, .begin = begin, .bytes = bytes});
    if (!is_about_next) {
      next_name.clear();
      next_bytes = -1;
    }
    at = begin + (bytes + kBlock - 1) / kBlock * kBlock;
  }
  return "expected a block of zeros at the end, found the end of the file";
}

}  // namespace shale::image_internal
