#include "shale/runtime/io/unreadable_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <vector>

namespace shale {

// A mapping: a node of a linked list. Nodes are never removed, because the signal handler walks the
// list while other threads map files.
struct UnreadablePages::Range {
  std::atomic<uintptr_t> begin{0};  // address of the mapping; 0: the node can be reused
  std::atomic<size_t> bytes{0};
  std::atomic<bool> found{false};
  Range* next = nullptr;
};

struct RangeList {
  using Range = UnreadablePages::Range;

  std::atomic<Range*> head{nullptr};
  std::mutex mutex;  // protects `free`, `before` and `page`
  // Nodes to use again. They are never deleted, because a handler may be reading them.
  std::vector<Range*> free;
  struct sigaction before {};
  size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));

  // Returns the list. It is never destroyed, because threads may still read files while the process
  // ends.
  static RangeList& instance() {
    static RangeList& list = *new RangeList;
    return list;
  }
  static void handle(int signal, siginfo_t* info, void* context);
  void install();
  bool replace(uintptr_t address);
};

// Replaces a part of the mapping by zeros, from the page with this address to the end. Returns
// false if no mapping has the address, or if the call fails.
bool RangeList::replace(uintptr_t address) {
  for (Range* range = head.load(); range != nullptr; range = range->next) {
    const uintptr_t begin = range->begin.load();
    const uintptr_t end = begin + range->bytes.load();
    if (begin == 0 || address < begin || address >= end) continue;
    const uintptr_t first = address / page * page;
    range->found.store(true);
    void* const zeros = mmap(reinterpret_cast<void*>(first), end - first, PROT_READ,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return zeros != MAP_FAILED;
  }
  return false;
}

// Handles SIGBUS. May only call async-signal-safe functions.
void RangeList::handle(int signal, siginfo_t* info, void*) {
  const int saved_errno = errno;
  RangeList& list = instance();
  const bool is_fault = info->si_code > 0;  // a real fault, not a signal sent by another process
  if (!is_fault || !list.replace(reinterpret_cast<uintptr_t>(info->si_addr))) {
    // Restores the previous handler. When this one returns, the failed instruction runs again, and
    // its fault goes to the previous handler.
    sigaction(SIGBUS, &list.before, nullptr);
    if (!is_fault) raise(signal);
  }
  errno = saved_errno;
}

// Called for every mapping, because MPI and other libraries may have replaced the handler.
void RangeList::install() {
  struct sigaction now {};
  sigaction(SIGBUS, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == handle) return;
  before = now;
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

UnreadablePages::UnreadablePages(std::span<const std::byte> mapping) {
  RangeList& list = RangeList::instance();
  const std::lock_guard lock(list.mutex);
  list.install();
  if (list.free.empty()) {
    range_ = new Range;
    range_->next = list.head.load();
    list.head.store(range_);
  } else {
    range_ = list.free.back();
    list.free.pop_back();
  }
  range_->found.store(false);
  const size_t pages = (mapping.size() + list.page - 1) / list.page;
  range_->bytes.store(pages * list.page);
  range_->begin.store(reinterpret_cast<uintptr_t>(mapping.data()));
}

UnreadablePages::~UnreadablePages() {
  RangeList& list = RangeList::instance();
  const std::lock_guard lock(list.mutex);
  range_->begin.store(0);
  list.free.push_back(range_);
}

bool UnreadablePages::found() const {
  return range_->found.load();
}

}  // namespace shale
