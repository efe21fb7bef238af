#include "shale/models/training/watch_reading.h"

#include <chrono>
#include <string>
#include <thread>

#include "shale/base/error.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {

TEST_CASE("one rank of a host reads for all") {
  const auto group = world().group({.timeout_s = 60});
  const models::DataReading reading = models::read_once_per_host(*group);
  CHECK(static_cast<bool>(reading.once) == (world().local_size() > 1));
  if (!reading.once) return;
  int calls = 0;
  const auto read = [&] {
    ++calls;
    return std::string("text of rank ") + std::to_string(group->rank());
  };
  for (int i = 1; i < 4; ++i) {
    CHECK(reading.once(read) == "text of rank 0");
    CHECK(calls == (group->rank() == 0 ? i : 0));
  }
}

TEST_CASE("ranks of a host throw the error of the one that reads") {
  const auto group = world().group({.timeout_s = 60});
  const models::DataReading reading = models::read_once_per_host(*group);
  if (!reading.once) return;
  const auto fail = []() -> std::string { throw DataError("a.bin: of rank 0"); };
  CHECK(message_of<DataError>([&] { reading.once(fail); }) == "a.bin: of rank 0");
  CHECK(reading.once([] { return std::string("again"); }) == "again");
}

TEST_CASE("ranks wait longer than the time-out of a group for one that goes on reading") {
  const auto group = world().group({.timeout_s = 2.5});
  const models::DataReading reading = models::read_once_per_host(*group);
  if (!reading.once) return;
  const auto read = [&] {
    for (int i = 0; i < 40; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      reading.on_reading("a.bin");
    }
    return std::string("read");
  };
  CHECK(reading.once(read) == "read");
}

}  // namespace shale::test
