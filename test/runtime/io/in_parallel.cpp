#include "shale/runtime/io/in_parallel.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale {

TEST_CASE("in_parallel does everything once, in order if it is alone", "[io]") {
  for (const size_t count : {0, 1, 3, 1000}) {
    for (const size_t workers : {1, 4}) {
      std::vector<std::atomic<int>> done(count);
      std::vector<size_t> order;
      std::atomic<size_t> highest = 0;
      in_parallel(count, workers, [&](size_t i, size_t worker) {
        ++done[i];
        if (worker > highest) highest = worker;
        if (workers == 1) order.push_back(i);
      });
      for (const std::atomic<int>& times : done) REQUIRE(times == 1);
      CHECK(highest < workers);
      CHECK(std::is_sorted(order.begin(), order.end()));
    }
  }
}

TEST_CASE("in_parallel throws what a loop would have thrown, and begins no more", "[io]") {
  for (const size_t workers : {1, 2, 4}) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::atomic<int> begun = 0;
      std::string thrown;
      try {
        in_parallel(100'000, workers, [&](size_t i, size_t) {
          ++begun;
          if (i == 20) std::this_thread::yield();  // lets later items finish first
          if (i >= 20) throw DataError(std::to_string(i));
        });
      } catch (const DataError& error) {
        thrown = error.what();
      }
      CHECK(thrown == "20");
      CHECK(begun <= 20 + int(workers));
    }
  }
}

}  // namespace shale
