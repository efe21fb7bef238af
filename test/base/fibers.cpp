// Tests fibers: functions that take turns on one thread.
#include "shale/base/fibers.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

// Lets other fibers run.
void yield(Fibers& fibers) {
  bool is_open = false;
  fibers.park("yield", [&] { return std::exchange(is_open, true); });
}

std::string error_of(Fibers& fibers, const Fibers::Body& body) {
  try {
    fibers.run(body);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("fibers take turns in the order of their numbers", "[fibers]") {
  Fibers fibers(3);
  for (int again = 0; again < 2; ++again) {  // The second run reuses the stacks of the first.
    std::vector<int> order;
    fibers.run([&](int i) {
      for (int turn = 0; turn <= i; ++turn) {
        order.push_back(fibers.current());
        CHECK(fibers.current() == i);
        yield(fibers);
      }
    });
    CHECK(order == std::vector<int>{0, 1, 2, 1, 2, 2});
    CHECK(fibers.current() == -1);
  }
}

TEST_CASE("state of the caller is exchanged around each turn", "[fibers]") {
  Fibers fibers(2);
  std::vector<int> states = {10, 20};
  int state = -1;
  fibers.run(
      [&](int i) {
        for (int turn = 0; turn < 3; ++turn) {
          CHECK(state == 10 * (i + 1) + turn);
          ++state;
          yield(fibers);
        }
      },
      [&](int i) { std::swap(state, states[size_t(i)]); });
  CHECK(state == -1);
  CHECK(states == std::vector<int>{13, 23});
}

namespace {

struct ParksInDestructor {
  Fibers& fibers;
  int uncaught;
  ~ParksInDestructor() {
    CHECK(std::uncaught_exceptions() == uncaught);
    yield(fibers);
    CHECK(std::uncaught_exceptions() == uncaught);
  }
};

}  // namespace

TEST_CASE("a fiber that parks while it unwinds leaves no trace in others", "[fibers]") {
  Fibers fibers(3);
  int caught = 0;
  fibers.run([&](int i) {
    for (int round = 0; round < 4; ++round) {
      if (i == 1) {  // only this fiber does not throw
        CHECK(std::uncaught_exceptions() == 0);
        CHECK(std::current_exception() == nullptr);
        yield(fibers);
        continue;
      }
      const std::string mine = cat(i, " ", round);
      try {
        const ParksInDestructor parks{fibers, 1};
        throw std::runtime_error(mine);
      } catch (const std::runtime_error& error) {
        yield(fibers);
        CHECK(error.what() == mine);
        CHECK(std::uncaught_exceptions() == 0);
        try {
          std::rethrow_exception(std::current_exception());
        } catch (const std::runtime_error& again) {
          yield(fibers);
          CHECK(again.what() == mine);
          ++caught;
        }
      }
    }
  });
  CHECK(caught == 8);
}

TEST_CASE("the error of one fiber ends all, and is the one that is told", "[fibers]") {
  Fibers fibers(3);
  int unwound = 0;
  struct Count {
    int& unwound;
    ~Count() { ++unwound; }
  };
  const auto body = [&](int i) {
    const Count count{unwound};
    if (i == 1) throw ConfigError("the second is wrong");
    fibers.park("a sum", [] { return false; });
  };
  CHECK(error_of(fibers, body) == "the second is wrong");
  CHECK(unwound == 2);                          // the third fiber had not started
  CHECK(error_of(fibers, [](int) {}).empty());  // the Fibers object can be used again
}

TEST_CASE("fibers that wait for each other are named", "[fibers]") {
  Fibers fibers(3);
  const std::string message = error_of(fibers, [&](int i) {
    if (i == 2) return;
    fibers.park(i == 0 ? "tensor gather" : "context ring", [] { return false; });
  });
  CHECK(message.find(
            "rank 0 waits in tensor gather, rank 1 waits in context ring, rank 2 has ended") !=
        std::string::npos);
}

TEST_CASE("deep recursion fits on a fiber's stack", "[fibers]") {
  Fibers fibers(2);
  const std::function<int(int)> deep = [&](int left) -> int {
    volatile char some[4096] = {};
    some[0] = 1;
    return left == 0 ? some[0] : deep(left - 1) + some[0];
  };
  fibers.run([&](int) { CHECK(deep(1000) == 1001); });
}

TEST_CASE("run() and park() are refused where they cannot work", "[fibers]") {
  Fibers fibers(1);
  CHECK_THROWS_AS(fibers.park("x", [] { return false; }), InternalError);
  CHECK_THROWS_AS(fibers.run([&](int) { fibers.run([](int) {}); }), InternalError);
}

}  // namespace shale::test
