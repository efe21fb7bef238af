#include "shale/comm/watch/heartbeat_table.h"

#include <cstring>
#include <memory>

#include "shale/test/support/catch.h"

namespace shale::comm {
namespace {

struct Memory {
  explicit Memory(int ranks)
      : bytes(static_cast<std::byte*>(std::aligned_alloc(64, HeartbeatTable::bytes(ranks)))) {
    std::memset(bytes.get(), 0, HeartbeatTable::bytes(ranks));
  }
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> bytes;
};

}  // namespace

TEST_CASE("a heartbeat table keeps the newest heartbeat, whatever the order of arrival") {
  const Memory memory(3);
  HeartbeatTable table(memory.bytes.get(), 3);
  CHECK(table.get(2).beats == 0);
  CHECK(table.get(2).step == -1);
  table.put(2, {.beats = 7, .step = 100});
  table.put(2, {.beats = 5, .step = 99});
  CHECK(table.get(2).beats == 7);
  CHECK(table.get(2).step == 100);
  CHECK(table.get(1).beats == 0);
  table.set_step(2, 101);
  CHECK(table.get(2).step == 101);
  CHECK(table.failure_elsewhere() == 0);
  CHECK(table.failing_elsewhere() == -1);
  table.set_failure_elsewhere(76, 3);
  CHECK(table.failure_elsewhere() == 76);
  CHECK(table.failing_elsewhere() == 3);
  table.set_failure_elsewhere(76, 5);  // the table keeps the lowest failing rank
  table.set_failure_elsewhere(76, -1);
  CHECK(table.failing_elsewhere() == 3);
  table.set_failure_elsewhere(76, 0);
  CHECK(table.failing_elsewhere() == 0);
}

TEST_CASE("a rank that was heard of and beats no more becomes silent, others do not") {
  const Memory memory(4);
  HeartbeatTable table(memory.bytes.get(), 4);
  Silence silence(4);
  table.put(0, {.beats = 1});
  table.put(1, {.beats = 1});
  table.put(2, {.beats = 1});
  for (uint64_t look = 0; look < 11; ++look) {
    table.put(0, {.beats = 2 + look});
    silence.look(table, 0.5, 1);
  }
  // Rank 3 never sent a beat: never_heard() reports it, silent_for() does not.
  CHECK(silence.never_heard() == std::vector<int>{3});
  CHECK(silence.silent_for(4.9) == std::vector<int>{1, 2});
  CHECK(silence.silent_for(5.1).empty());
  CHECK(silence.longest() == 5);
  table.put(1, {.beats = 2});
  silence.look(table, 0.5, 1);
  CHECK(silence.silent_for(4.9) == std::vector<int>{2});
}

TEST_CASE("time in which this process did not run counts against nobody") {
  const Memory memory(2);
  HeartbeatTable table(memory.bytes.get(), 2);
  Silence silence(2);
  table.put(1, {.beats = 1});
  silence.look(table, 0.05, 1);
  silence.look(table, 3600, 1);  // the whole job was suspended for an hour
  CHECK(silence.silent_for(1.5).empty());
}

}  // namespace shale::comm
