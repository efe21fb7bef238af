#include "shale/base/fibers.h"

#include <sys/mman.h>

#include <cxxabi.h>
#include <cstring>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/machine_context.h"

#if defined(__SANITIZE_THREAD__)
#define SHALE_HAVE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHALE_HAVE_TSAN 1
#endif
#endif

#ifdef SHALE_HAVE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace shale {
namespace {

// Large enough for kernels, oneDNN and recursive graph traversal. Only touched pages use memory.
constexpr size_t kStackBytes = 8 << 20;
constexpr size_t kGuardBytes = 64 << 10;

// Memory of a stack, with a guard page below it.
class Stack {
 public:
  Stack() {
    base_ = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (base_ == MAP_FAILED) throw OutOfMemoryError("no memory for the stack of a fiber");
    mprotect(base_, kGuardBytes, PROT_NONE);
  }
  ~Stack() { munmap(base_, kGuardBytes + kStackBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(base_) + kGuardBytes; }

 private:
  void* base_;
};

// State that the C++ runtime keeps per thread: the exceptions being handled, and the number of
// exceptions that unwind (Itanium C++ ABI, Exception Handling, section 2.2.2).
struct ExceptionState {
  void* caught = nullptr;
  unsigned uncaught = 0;
};

void exchange_exceptions(ExceptionState& with) {
  void* const globals = abi::__cxa_get_globals();
  ExceptionState mine;
  std::memcpy(&mine, globals, sizeof(mine));
  std::memcpy(globals, &with, sizeof(with));
  with = mine;
}

// Tells ThreadSanitizer to treat a fiber as a thread.
struct SanitizerFiber {
#ifdef SHALE_HAVE_TSAN
  void* fiber = __tsan_create_fiber(0);
  void* outside = nullptr;
  ~SanitizerFiber() {
    __tsan_destroy_fiber(fiber);
  }
  void enter() {
    outside = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber, 0);
  }
  void leave() const {
    __tsan_switch_to_fiber(outside, 0);
  }
#else
  void enter() {}
  void leave() const {}
#endif
};

// Thrown in a waiting fiber to unwind it after another fiber has failed.
class Stopped : public CommError {
  using CommError::CommError;
};

}  // namespace

struct Fibers::Fiber {
  int number = 0;
  Stack stack = {};
  MachineContext context = {};
  ExceptionState exceptions = {};
  SanitizerFiber sanitizer = {};
  bool has_begun = false, has_ended = true;
  std::string waits_for = {};
  const std::function<bool()>* is_open = nullptr;  // condition that park() waits for
};

struct Fibers::Run {
  std::vector<std::unique_ptr<Fiber>> fibers;
  MachineContext outside = {};
  const Body* body = nullptr;
  Fiber* current = nullptr;
  int last = -1;  // the fiber that ran last
  std::exception_ptr error = nullptr;
};

namespace {
// The Fibers object that is starting a fiber on this thread. main() has no parameter to receive it.
constinit thread_local void* t_beginning = nullptr;
}  // namespace

Fibers::Fibers(int count) : run_(std::make_unique<Run>()) {
  for (int i = 0; i < count; ++i) {
    run_->fibers.push_back(std::make_unique<Fiber>());
    run_->fibers.back()->number = i;
  }
}

Fibers::~Fibers() = default;

int Fibers::count() const {
  return static_cast<int>(run_->fibers.size());
}

int Fibers::current() const {
  return run_->current != nullptr ? run_->current->number : -1;
}

void Fibers::main() {
  Run& run = *static_cast<Fibers*>(t_beginning)->run_;
  Fiber& self = *run.current;
  try {
    (*run.body)(self.number);
  } catch (...) {
    if (run.error == nullptr) run.error = std::current_exception();
  }
  self.has_ended = true;
  self.sanitizer.leave();
  switch_context(self.context, run.outside, /*last=*/true);
}

// Returns the next fiber, in order, that can continue. After an error every waiting fiber can
// continue.
Fibers::Fiber* Fibers::next() {
  for (int i = 1; i <= count(); ++i) {
    Fiber& fiber = *run_->fibers[static_cast<size_t>((run_->last + i) % count())];
    if (fiber.has_ended) continue;
    if (fiber.is_open == nullptr || run_->error != nullptr || (*fiber.is_open)()) return &fiber;
  }
  return nullptr;
}

void Fibers::enter(Fiber& fiber) {
  if (!fiber.has_begun) {
    fiber.has_begun = true;
    if (run_->error != nullptr) {  // another fiber has failed
      fiber.has_ended = true;
      return;
    }
    make_context(fiber.context, fiber.stack.data(), kStackBytes, &Fibers::main);
  }
  run_->current = &fiber;
  run_->last = fiber.number;
  t_beginning = this;
  exchange_exceptions(fiber.exceptions);
  fiber.sanitizer.enter();
  switch_context(run_->outside, fiber.context);
  exchange_exceptions(fiber.exceptions);
  run_->current = nullptr;
}

std::string Fibers::waiting() const {
  std::string text;
  for (const auto& fiber : run_->fibers) {
    text += cat(text.empty() ? "rank " : ", rank ", fiber->number,
                fiber->has_ended ? " has ended" : cat(" waits in ", fiber->waits_for));
  }
  return text;
}

void Fibers::run(const Body& body, const Body& swap) {
  if (run_->current != nullptr)
    throw InternalError("fibers: run() was called inside the body of a fiber, expected outside");
  run_->body = &body;
  run_->last = -1;
  run_->error = nullptr;
  for (const auto& fiber : run_->fibers) {
    fiber->has_begun = fiber->has_ended = false;
    fiber->is_open = nullptr;
    fiber->exceptions = {};
  }
  const auto all_ended = [&] {
    for (const auto& fiber : run_->fibers) {
      if (!fiber->has_ended) return false;
    }
    return true;
  };
  while (!all_ended()) {
    Fiber* const fiber = next();
    if (fiber == nullptr) {
      run_->error = std::make_exception_ptr(
          CommError(cat("ranks of one process wait for each other: ", waiting(),
                        "; expected the same collectives in the same order on all of them")));
      continue;
    }
    if (swap) swap(fiber->number);
    enter(*fiber);
    if (swap) swap(fiber->number);
  }
  if (run_->error != nullptr) std::rethrow_exception(std::exchange(run_->error, nullptr));
}

void Fibers::park(std::string_view what, const std::function<bool()>& is_open) {
  Fiber* const self = run_->current;
  if (self == nullptr)
    throw InternalError(cat("fibers: ", what, " was called outside a fiber, expected inside"));
  if (run_->error == nullptr && is_open()) return;
  if (run_->error == nullptr) {
    self->waits_for = what;
    self->is_open = &is_open;
    self->sanitizer.leave();
    switch_context(self->context, run_->outside);
    self->is_open = nullptr;
  }
  if (run_->error != nullptr) throw Stopped(cat(what, ": another rank of this process has failed"));
}

}  // namespace shale
