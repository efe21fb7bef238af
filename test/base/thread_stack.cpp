#include "runtime/base/thread_stack.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "test/support/catch.h"

namespace shale {

// A name that the dynamic symbol table has.
__attribute__((noinline)) void wait_for_flag_in_the_test(const std::atomic<bool>& flag) {
  while (!flag.load()) {
  }
}

TEST_CASE("another thread's stack names the functions that it is in") {
  std::atomic<bool> made = false, leave = false;
  std::unique_ptr<ThreadStack> stack;
  std::thread busy([&] {
    stack = std::make_unique<ThreadStack>();
    made = true;
    wait_for_flag_in_the_test(leave);
  });
  while (!made) std::this_thread::yield();
  std::vector<std::string> names;
  // The thread may still be on its way into the function.
  for (int tries = 0; tries < 1000; ++tries) {
    names = stack->sample();
    if (!names.empty() && names.front().find("wait_for_flag_in_the_test") != names.front().npos) {
      break;
    }
  }
  CAPTURE(names.size(), names.empty() ? "" : names.front());
  leave = true;
  busy.join();
  REQUIRE_FALSE(names.empty());
  CHECK(names.front().find("shale::wait_for_flag_in_the_test(") == 0);
  CHECK(names.size() > 1);
}

}  // namespace shale
