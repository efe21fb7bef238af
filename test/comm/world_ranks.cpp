#include <mpi.h>

#include "shale/base/log.h"
#include "shale/comm/node/shared_memory.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {

TEST_CASE("the world knows its ranks") {
  const comm::World& w = world();
  CHECK(w.rank() >= 0);
  CHECK(w.rank() < w.size());
  CHECK(w.local_size() == w.size());
  CHECK(w.local_rank() == w.rank());
  if (!w.uses_mpi()) return;
  int size = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  CHECK(w.size() == size);
  CHECK(w.rank() == rank);
}

TEST_CASE("comm::run has told the log its rank") {
  CHECK(process_log().enabled(LogLevel::kInfo) == (world().rank() == 0));
  CHECK(process_log().enabled(LogLevel::kWarning));
}

TEST_CASE("memory that is freed and made again is reached again") {
  const auto group = world().group({.timeout_s = 60});
  // The segments grow, but all use the same slot. If a rank kept the mapping of a freed segment, it
  // would read wrong memory.
  for (int64_t count = 20'000; count < 400'000; count *= 2) {
    const Buffer buffer(*group, Place::kGroup, count * 4);
    for (int64_t i = 0; i < count; ++i) buffer.as<int32_t>()[i] = static_cast<int32_t>(i + count);
    group->all_reduce_sum(make_view(buffer.as<int32_t>(), {count}));
    const auto want = [&](int64_t i) { return static_cast<int32_t>(group->size() * (i + count)); };
    REQUIRE(first_difference(buffer.as<int32_t>(), count, want) == -1);
  }
}

TEST_CASE("freed memory is given back") {
  auto& memory = dynamic_cast<comm::SharedMemory&>(world().memory());
  const int64_t before = memory.allocated_bytes();
  const auto group = world().group({.timeout_s = 60});
  for (int i = 0; i < 20; ++i) {
    const Buffer buffer(*group, Place::kGroup, 1 << 20);
    CHECK(memory.allocated_bytes() >= before + (1 << 20));
    group->all_reduce_sum(make_view(buffer.as<float>(), {1 << 18}));
  }
  group->barrier();
  CHECK(memory.allocated_bytes() == before);
  // A new mapping of a peer's segment replaces the old one, so mappings do not accumulate.
  CHECK(memory.mapped_segments() <= 8 * world().size());
}

TEST_CASE("memory of one group serves another") {
  const auto a = world().group({.timeout_s = 60});
  const auto b = a->split(0, -a->rank(), "reversed");
  const int64_t count = 30'000;
  const Buffer buffer(*a, Place::kGroup, count * 4);
  for (int64_t i = 0; i < count; ++i) buffer.as<int32_t>()[i] = 1;
  b->all_reduce_sum(make_view(buffer.as<int32_t>(), {count}));
  a->all_reduce_sum(make_view(buffer.as<int32_t>(), {count}));
  CHECK(buffer.as<int32_t>()[count - 1] == a->size() * b->size());
}

}  // namespace shale::test
