#include "shale/comm/node/shared_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "shale/test/support/catch.h"

namespace shale::test {

TEST_CASE("a segment is zero, page-aligned, and seen by whoever attaches it") {
  const auto segment = comm::SharedSegment::create(5000);
  CHECK(segment.bytes() == 8192);
  CHECK(reinterpret_cast<uintptr_t>(segment.data()) % 4096 == 0);
  CHECK(static_cast<char*>(segment.data())[8191] == 0);
  const auto again = comm::SharedSegment::attach(segment.address());
  REQUIRE(again.has_value());
  static_cast<char*>(segment.data())[4097] = 'x';
  CHECK(static_cast<char*>(again->data())[4097] == 'x');
}

TEST_CASE("another process reaches a segment") {
  const auto segment = comm::SharedSegment::create(4096);
  const comm::SegmentAddress address = segment.address();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // The address contains the parent's process id, so the child attaches to the parent's
    // descriptor.
    const auto mine = comm::SharedSegment::attach(address);
    if (mine) std::strcpy(static_cast<char*>(mine->data()), "hello");
    _exit(mine ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(status == 0);
  CHECK(std::string(static_cast<char*>(segment.data())) == "hello");
}

TEST_CASE("a descriptor that names something else is not attached") {
  const auto segment = comm::SharedSegment::create(4096);
  comm::SegmentAddress address = segment.address();
  address.inode += 1;
  CHECK_FALSE(comm::SharedSegment::attach(address).has_value());
  address = segment.address();
  address.fd = 1 << 20;
  CHECK_FALSE(comm::SharedSegment::attach(address).has_value());
}

TEST_CASE("buffers are found by any address inside them") {
  comm::SharedMemory memory;
  auto* const data = static_cast<std::byte*>(memory.allocate(10'000));
  CHECK(memory.find(data, 10'000).shared());
  CHECK(memory.find(data + 100, 50).offset == 100);
  CHECK_FALSE(memory.find(data + 100, 1 << 20).shared());
  int local = 0;
  CHECK_FALSE(memory.find(&local, 4).shared());
  CHECK_FALSE(memory.find(nullptr, 0).shared());
  CHECK(memory.map(memory.find(data + 100, 50)) == data + 100);
  memory.free(data, 10'000);
  CHECK_FALSE(memory.find(data, 1).shared());
  CHECK(memory.allocated_bytes() == 0);
}

TEST_CASE("memory in use is freed after the last use") {
  comm::SharedMemory memory;
  void* const data = memory.allocate(4096);
  memory.begin_use();
  memory.begin_use();
  memory.free(data, 4096);
  CHECK(memory.allocated_bytes() == 4096);
  memory.end_use();
  CHECK(memory.allocated_bytes() == 4096);
  std::memset(data, 1, 4096);  // the memory is still mapped
  memory.end_use();
  CHECK(memory.allocated_bytes() == 0);
}

}  // namespace shale::test
