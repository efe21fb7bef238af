#pragma once

#include <string>
#include <vector>

namespace shale {

// Samples the stack of one thread of this process from another one, for reports about programs that
// hang. Uses the signal SIGRTMAX - 3, with a separate signal stack, because JIT-compiled code of
// libraries such as oneDNN may keep data below its stack pointer. One instance per process.
class ThreadStack {
 public:
  ThreadStack();  // samples the calling thread, which must outlive this object
  ~ThreadStack();
  ThreadStack(const ThreadStack&) = delete;
  ThreadStack& operator=(const ThreadStack&) = delete;

  // Returns the functions on the thread's stack, innermost first: "shale::Foo::bar(int)", or
  // "libc.so.6+0x1234" if the name is unknown. Returns an empty list if the thread does not answer
  // within half a second, for example in an uninterruptible system call. Must not be called by the
  // sampled thread.
  std::vector<std::string> sample() const;

 private:
  unsigned long thread_;
  bool owns_signal_stack_ = false;
};

}  // namespace shale
