#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shale {

// The wire format of protocol buffers (protobuf.dev/programming-guides/encoding), for the few
// messages that other programs read of ours. Field numbers are the caller's business.

// A message as it is written, field by field.
class ProtoMessage {
 public:
  // An int32, int64, uint64, bool or enum; a negative number takes ten bytes.
  ProtoMessage& integer(uint32_t field, int64_t value);
  ProtoMessage& fixed64(uint32_t field, uint64_t value);
  ProtoMessage& real(uint32_t field, double value);
  ProtoMessage& real32(uint32_t field, float value);
  // A string, or bytes.
  ProtoMessage& text(uint32_t field, std::string_view bytes);
  ProtoMessage& message(uint32_t field, const ProtoMessage& value);
  // A repeated double.
  ProtoMessage& packed(uint32_t field, std::span<const double> values);

  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value);
  void tag(uint32_t field, uint32_t wire_type);
  void little_endian(uint64_t value, int count);

  std::string bytes_;
};

// A field of a message that is read.
struct ProtoField {
  enum class Kind { kVarint, kFixed64, kBytes, kFixed32 };
  uint32_t number = 0;
  Kind kind = Kind::kVarint;
  uint64_t value = 0;           // of numbers, the bits
  std::string_view bytes = {};  // of strings, messages and packed numbers

  int64_t integer() const { return static_cast<int64_t>(value); }
  double real() const;   // of kFixed64
  float real32() const;  // of kFixed32
};

// Reads the fields of a message, which must outlive it, in the order in which they come.
class ProtoReader {
 public:
  // `source` is what messages call the text.
  ProtoReader(std::string_view message, std::string source)
      : rest_(message), source_(std::move(source)) {}

  // nullopt at the end. Throws DataError for what is no message.
  std::optional<ProtoField> next();

 private:
  uint64_t varint();
  uint64_t little_endian(size_t count);
  std::string_view take(uint64_t count);

  std::string_view rest_;
  const std::string source_;
};

}  // namespace shale
