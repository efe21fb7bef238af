#include "shale/runtime/io/zip_writer.h"

#include <span>
#include <utility>

#include "shale/runtime/io/crc32c.h"

namespace shale {
namespace {

// APPNOTE.TXT, sections 4.3.7 to 4.3.16, describes the records.
constexpr uint16_t kVersion = 45;  // first format version with 64-bit sizes
constexpr uint16_t kUtf8 = 0x800;  // flag: the name is UTF-8
constexpr uint32_t kSizeInExtra = 0xffffffff;  // the 64-bit size is in the extra field
constexpr uint16_t kExtraOfSizes = 1;
constexpr uint16_t kPadding = 0x4246;  // an extra field that readers skip
constexpr uint64_t kCrcInHeader = 14;

class Bytes {
 public:
  template <typename... Numbers>
  Bytes& add(Numbers... numbers) {
    (text_.append(reinterpret_cast<const char*>(&numbers), sizeof numbers), ...);
    return *this;
  }
  Bytes& add_text(std::string_view text) {
    text_ += text;
    return *this;
  }
  std::string take() { return std::move(text_); }
  size_t size() const { return text_.size(); }

 private:
  std::string text_;
};

// Adds the fields that local and central headers share: flags, method, time, date, checksum, sizes.
void add_common(Bytes& bytes, uint32_t crc) {
  constexpr uint16_t kStored = 0, kTime = 0, kDate = 33;  // 1980-01-01
  bytes.add(kUtf8, kStored, kTime, kDate, crc, kSizeInExtra, kSizeInExtra);
}

}  // namespace

std::string ZipLayout::add(const std::string& name, std::string_view data) {
  std::string text = add_header(name, data.size(), 1);
  const uint32_t crc = zip_crc32(std::as_bytes(std::span(data)));
  text.replace(set_crc(crc) - members_.back().begin, sizeof crc,
               reinterpret_cast<const char*>(&crc), sizeof crc);
  return text.append(data);
}

std::string ZipLayout::add_header(const std::string& name, uint64_t data_bytes,
                                  uint64_t alignment) {
  members_.push_back({name, bytes_, data_bytes, 0});
  constexpr uint64_t kFixed = 30, kSizes = 20, kEmptyPadding = 4;
  const uint64_t unpadded = bytes_ + kFixed + name.size() + kSizes + kEmptyPadding;
  const auto padding = static_cast<uint16_t>((alignment - unpadded % alignment) % alignment);
  Bytes header;
  header.add(uint32_t{0x04034b50}, kVersion);
  add_common(header, 0);
  header.add(static_cast<uint16_t>(name.size()),
             static_cast<uint16_t>(kSizes + kEmptyPadding + padding));
  header.add_text(name).add(kExtraOfSizes, uint16_t{16}, data_bytes, data_bytes);
  header.add(kPadding, padding).add_text(std::string(padding, '\0'));
  bytes_ += header.size() + data_bytes;
  return header.take();
}

uint64_t ZipLayout::set_crc(uint32_t crc) {
  members_.back().crc = crc;
  return members_.back().begin + kCrcInHeader;
}

std::string ZipLayout::directory() const {
  constexpr uint16_t kNone16 = 0xffff;
  Bytes text;
  for (const Member& member : members_) {
    text.add(uint32_t{0x02014b50}, kVersion, kVersion);
    add_common(text, member.crc);
    text.add(static_cast<uint16_t>(member.name.size()), uint16_t{28}, uint16_t{0}, uint16_t{0},
             uint16_t{0}, uint32_t{0}, kSizeInExtra);
    text.add_text(member.name);
    text.add(kExtraOfSizes, uint16_t{24}, member.bytes, member.bytes, member.begin);
  }
  const uint64_t count = members_.size(), size = text.size(), end = bytes_ + size;
  text.add(uint32_t{0x06064b50}, uint64_t{44}, kVersion, kVersion, uint32_t{0}, uint32_t{0}, count,
           count, size, bytes_);
  text.add(uint32_t{0x07064b50}, uint32_t{0}, end, uint32_t{1});
  text.add(uint32_t{0x06054b50}, uint16_t{0}, uint16_t{0}, kNone16, kNone16, kSizeInExtra,
           kSizeInExtra, uint16_t{0});
  return text.take();
}

}  // namespace shale
