#include "shale/kernels/cpu/parallel.h"

#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>

#include "shale/test/support/catch.h"

namespace shale {
namespace {

Exec exec_with(int threads) {
  return {.threads = threads};
}

using Chunks = std::set<std::pair<int64_t, int64_t>>;

Chunks chunks_of(int threads, int64_t n, int64_t grain, kernels::Schedule schedule) {
  Chunks chunks;
  std::mutex mutex;
  kernels::parallel_for(
      exec_with(threads), n, grain,
      [&](int64_t begin, int64_t end) {
        const std::lock_guard<std::mutex> lock(mutex);
        chunks.emplace(begin, end);
      },
      schedule);
  return chunks;
}

}  // namespace

TEST_CASE("parallel_for cuts by n and grain alone, whatever the threads", "[kernels][parallel]") {
  using kernels::Schedule;
  CHECK(chunks_of(3, 0, 4, Schedule::kStatic).empty());
  CHECK(chunks_of(3, 1, 4, Schedule::kStatic) == Chunks{{0, 1}});
  CHECK(chunks_of(3, 10, 4, Schedule::kStatic) == Chunks{{0, 4}, {4, 8}, {8, 10}});
  for (const int threads : {0, 1, 2, 3, 4, 7}) {
    CHECK(chunks_of(threads, 103, 5, Schedule::kStatic) == chunks_of(1, 103, 5, Schedule::kStatic));
    CHECK(chunks_of(threads, 103, 5, Schedule::kDynamic) ==
          chunks_of(1, 103, 5, Schedule::kStatic));
  }
}

TEST_CASE("parallel_for throws the exception of the lowest chunk", "[kernels][parallel]") {
  for (const int threads : {1, 2, 7}) {
    const auto run = [&] {
      kernels::parallel_for(exec_with(threads), 64, 1, [](int64_t begin, int64_t) {
        if (begin >= 13) throw std::runtime_error(std::to_string(begin));
      });
    };
    CHECK(test::message_of<std::runtime_error>(run) == "13");
  }
}

}  // namespace shale
