#include "shale/base/thread_stack.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "shale/test/support/catch.h"

namespace shale {

// The report finds this function's name in the dynamic symbol table.
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
  // The thread may not have entered the function yet, and frames of a sanitizer may be above it.
  const auto is_function = [](const std::string& name) {
    return name.find("shale::wait_for_flag_in_the_test(") == 0;
  };
  bool found = false;
  for (int tries = 0; tries < 1000 && !found; ++tries) {
    names = stack->sample();
    found = std::any_of(names.begin(), names.end(), is_function);
  }
  CAPTURE(names.size(), names.empty() ? "" : names.front());
  leave = true;
  busy.join();
  CHECK(found);
  CHECK(names.size() > 1);
}

}  // namespace shale
