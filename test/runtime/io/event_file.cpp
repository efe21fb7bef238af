#include "shale/runtime/io/event_file.h"

#include <filesystem>

#include "shale/base/error.h"
#include "shale/base/protobuf.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

std::string record_of_step(int64_t step) {
  return event_record(ProtoMessage().real(1, 1.7e9).integer(2, step).bytes());
}

}  // namespace

TEST_CASE("records have the bytes that TensorBoard has read", "[event_file]") {
  // TensorBoard 2.21 has read each of these records.
  CHECK(
      event_record(ProtoMessage().real(1, 1.7e9).text(3, "brain.Event:2").bytes()) ==
      from_hex("1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d"));
  const auto value = ProtoMessage().text(1, "train/loss").real32(2, 3.5f);
  CHECK(event_record(ProtoMessage()
                         .real(1, 1.7e9 + 1)
                         .integer(2, 10)
                         .message(5, ProtoMessage().message(1, value))
                         .bytes()) ==
        from_hex("200000000000000029eda9500900004040fc54d941100a2a130a110a0a747261696e2f6c6f737315"
                 "00006040b99068d7"));
}

TEST_CASE("records are read up to the first that is not sound", "[event_file]") {
  const std::string first = record_of_step(1), second = record_of_step(2);
  const std::string both = first + second;
  CHECK(read_event_records(both).events.size() == 2);
  CHECK(read_event_records("").events.empty());
  for (size_t bytes = first.size(); bytes < both.size(); ++bytes) {
    const EventRecords records = read_event_records(std::string_view(both).substr(0, bytes));
    CHECK(records.events.size() == 1);
    CHECK(records.sound_bytes == first.size());
  }
  for (size_t i = first.size(); i < both.size(); ++i) {  // damages each byte in turn
    std::string damaged = both;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    CHECK(read_event_records(damaged).sound_bytes == first.size());
  }
}

TEST_CASE("events behind a step are dropped, the others stay byte for byte", "[event_file]") {
  const TempDir dir;
  // An event without a step.
  const std::string start = event_record(ProtoMessage().real(1, 1.7e9).bytes());
  const std::string old = start + record_of_step(1) + record_of_step(2);
  const std::string other = "not of TensorBoard";
  const auto path =
      dir.write("events.out.tfevents.1.host.1.0", old + record_of_step(3) + "cut off");
  const auto sound = dir.write("events.out.tfevents.2.host.1.0", old);
  const auto beside = dir.write("notes", other);
  CHECK(drop_events_after(dir.path(), 2) == 1);
  CHECK(test::read_file(path) == old);
  CHECK(test::read_file(sound) == old);
  CHECK(test::read_file(beside) == other);
  CHECK(drop_events_after(dir.path(), 0) == 4);
  CHECK(test::read_file(path) == start);
  CHECK(drop_events_after(dir.path() / "absent", 0) == 0);
  CHECK_FALSE(std::filesystem::exists(dir.path() / "absent"));
}

TEST_CASE("a record that holds no Event is named, and its file stays", "[event_file]") {
  const TempDir dir;
  const std::string text = event_record("\x12");
  const auto path = dir.write("events.out.tfevents.1.host.1.0", text);
  const std::string message = message_of<DataError>([&] { drop_events_after(dir.path(), 0); });
  CHECK(contains(message, path));
  CHECK(test::read_file(path) == text);
}

}  // namespace shale
