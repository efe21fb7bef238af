#include "shale/base/protobuf.h"

#include <bit>

#include "shale/base/error.h"

namespace shale {
namespace {

constexpr uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;  // wire types

}  // namespace

void ProtoMessage::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
  bytes_ += static_cast<char>(value);
}

void ProtoMessage::tag(uint32_t field, uint32_t wire_type) {
  varint(uint64_t{field} << 3 | wire_type);
}

void ProtoMessage::little_endian(uint64_t value, int count) {
  for (int i = 0; i < count; ++i) bytes_ += static_cast<char>(value >> (8 * i));
}

ProtoMessage& ProtoMessage::integer(uint32_t field, int64_t value) {
  tag(field, kVarint);
  varint(static_cast<uint64_t>(value));
  return *this;
}

ProtoMessage& ProtoMessage::fixed64(uint32_t field, uint64_t value) {
  tag(field, kFixed64);
  little_endian(value, 8);
  return *this;
}

ProtoMessage& ProtoMessage::real(uint32_t field, double value) {
  return fixed64(field, std::bit_cast<uint64_t>(value));
}

ProtoMessage& ProtoMessage::real32(uint32_t field, float value) {
  tag(field, kFixed32);
  little_endian(std::bit_cast<uint32_t>(value), 4);
  return *this;
}

ProtoMessage& ProtoMessage::head(uint32_t field, size_t size) {
  tag(field, kBytes);
  varint(size);
  return *this;
}

ProtoMessage& ProtoMessage::text(uint32_t field, std::string_view bytes) {
  head(field, bytes.size()).bytes_ += bytes;
  return *this;
}

ProtoMessage& ProtoMessage::message(uint32_t field, const ProtoMessage& value) {
  return text(field, value.bytes_);
}

double ProtoField::real() const {
  return std::bit_cast<double>(value);
}

float ProtoField::real32() const {
  return std::bit_cast<float>(static_cast<uint32_t>(value));
}

std::string_view ProtoReader::take(uint64_t count) {
  if (count > rest_.size()) {
    throw DataError(cat(source_, ": a field has ", count, " bytes, but only ", rest_.size(),
                        " bytes are left"));
  }
  const std::string_view taken = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return taken;
}

uint64_t ProtoReader::little_endian(size_t count) {
  uint64_t value = 0;
  const std::string_view bytes = take(count);
  for (size_t i = 0; i < count; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

uint64_t ProtoReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1).front());
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  throw DataError(cat(source_, ": an integer of more than ten bytes"));
}

std::optional<ProtoField> ProtoReader::next() {
  using Kind = ProtoField::Kind;
  if (rest_.empty()) return std::nullopt;
  const uint64_t key = varint();
  ProtoField field{.number = static_cast<uint32_t>(key >> 3)};
  if (field.number == 0 || key >> 32 != 0) {
    throw DataError(cat(source_, ": expected a field number of at least 1, found ", key >> 3));
  }
  switch (key & 7) {
    case kVarint: field.value = varint(); break;
    case kFixed64: field.kind = Kind::kFixed64, field.value = little_endian(8); break;
    case kBytes: field.kind = Kind::kBytes, field.bytes = take(varint()); break;
    case kFixed32: field.kind = Kind::kFixed32, field.value = little_endian(4); break;
    default:
      throw DataError(cat(source_, ": field ", field.number, " has wire type ", key & 7,
                          ", expected 0, 1, 2 or 5"));
  }
  return field;
}

}  // namespace shale
