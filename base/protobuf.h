#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shale {

// The wire format of protocol buffers (protobuf.dev/programming-guides/encoding), for the few
// messages that other programs read. The caller chooses the field numbers.

// Writes a message field by field.
class ProtoMessage {
 public:
  // Appends an int32, int64, uint64, bool or enum. A negative number takes ten bytes.
  ProtoMessage& integer(uint32_t field, int64_t value);
  ProtoMessage& fixed64(uint32_t field, uint64_t value);
  ProtoMessage& real(uint32_t field, double value);
  ProtoMessage& real32(uint32_t field, float value);
  // Appends a string or bytes.
  ProtoMessage& text(uint32_t field, std::string_view bytes);
  ProtoMessage& message(uint32_t field, const ProtoMessage& value);
  // Appends the tag and length of a string, bytes or message of `size` bytes. The caller writes the
  // contents next.
  ProtoMessage& head(uint32_t field, size_t size);

  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value);
  void tag(uint32_t field, uint32_t wire_type);
  void little_endian(uint64_t value, int count);

  std::string bytes_;
};

// A field of a message being read.
struct ProtoField {
  enum class Kind { kVarint, kFixed64, kBytes, kFixed32 };
  uint32_t number = 0;
  Kind kind = Kind::kVarint;
  uint64_t value = 0;           // value of a number, as raw bits
  std::string_view bytes = {};  // contents of strings, messages and packed numbers

  int64_t integer() const { return static_cast<int64_t>(value); }
  double real() const;   // value of a kFixed64 field
  float real32() const;  // value of a kFixed32 field
};

// Reads the fields of a message in order. The message must outlive the reader.
class ProtoReader {
 public:
  // `source` names the text in error messages.
  ProtoReader(std::string_view message, std::string source)
      : rest_(message), source_(std::move(source)) {}

  // Returns nullopt at the end. Throws DataError for invalid messages.
  std::optional<ProtoField> next();

 private:
  uint64_t varint();
  uint64_t little_endian(size_t count);
  std::string_view take(uint64_t count);

  std::string_view rest_;
  const std::string source_;
};

}  // namespace shale
