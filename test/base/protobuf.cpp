#include "shale/base/protobuf.h"

#include <limits>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale {

using test::contains;
using test::message_of;

TEST_CASE("a message has the bytes of the encoding's specification", "[protobuf]") {
  // Examples from protobuf.dev/programming-guides/encoding.
  CHECK(ProtoMessage().integer(1, 150).bytes() == "\x08\x96\x01");
  CHECK(ProtoMessage().text(2, "testing").bytes() == "\x12\x07testing");
  CHECK(ProtoMessage().message(3, ProtoMessage().integer(1, 150)).bytes() ==
        "\x1a\x03\x08\x96\x01");
  CHECK(ProtoMessage().integer(2, -2).bytes() == "\x10\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  CHECK(ProtoMessage().real32(15, 1).bytes() == std::string("\x7d\0\0\x80\x3f", 5));
  CHECK(ProtoMessage().real(16, 1).bytes() == std::string("\x81\x01\0\0\0\0\0\0\xf0\x3f", 10));
}

TEST_CASE("fields come back as they were written", "[protobuf]") {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const std::string bytes = ProtoMessage()
                                .integer(1, kLeast)
                                .real(2, -0.1)
                                .text(536870911, "")
                                .real32(4, 3.5f)
                                .fixed64(5, ~uint64_t{0})
                                .bytes();
  ProtoReader reader(bytes, "message");
  CHECK(reader.next()->integer() == kLeast);
  CHECK(reader.next()->real() == -0.1);
  const auto text = reader.next();
  CHECK(text->number == 536870911);
  CHECK(text->kind == ProtoField::Kind::kBytes);
  CHECK(reader.next()->real32() == 3.5f);
  CHECK(reader.next()->value == ~uint64_t{0});
  CHECK_FALSE(reader.next());
}

TEST_CASE("what is no message is a DataError that names its source", "[protobuf]") {
  const auto problem = [](std::string_view bytes) {
    return message_of<DataError>([&] {
      ProtoReader reader(bytes, "m");
      while (reader.next()) {
      }
    });
  };
  CHECK(problem("\x12\x07test") == "m: a field has 7 bytes, but only 4 bytes are left");
  CHECK(contains(problem("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "more than ten"));
  CHECK(contains(problem("\x08\x96"), "but only 0 bytes are left"));
  CHECK(contains(problem(std::string_view("\0", 1)), "expected a field number of at least 1"));
  CHECK(problem("\x0b") == "m: field 1 has wire type 3, expected 0, 1, 2 or 5");
}

}  // namespace shale
