#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace shale::models {

// Default number of plans that are computed at the same time.
inline constexpr size_t kPlanThreads = 2;

// Returns `work(item)` for every item, computed by up to `threads` threads. If calls throw,
// rethrows the exception of the first item whose call threw.
template <typename Item, typename Work>
auto at_once(const std::vector<Item>& items, const Work& work, size_t threads = kPlanThreads) {
  std::vector<decltype(work(items.front()))> results(items.size());
  std::vector<std::exception_ptr> errors(items.size());
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    for (size_t i = next++; i < items.size(); i = next++) {
      try {
        results[i] = work(items[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> others(std::min(threads, items.size()) - (items.empty() ? 0 : 1));
  for (std::jthread& other : others) other = std::jthread(run);
  run();
  others.clear();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
  return results;
}

}  // namespace shale::models
