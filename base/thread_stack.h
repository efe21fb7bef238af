#pragma once

#include <string>
#include <vector>

namespace shale {

// Shows what one thread of this process is doing, to another one: for reports about a program that
// hangs. It takes the signal SIGRTMAX - 3 for it, on a stack of the signal's own: code that a
// library makes at run time, as oneDNN's, may keep data below its stack pointer. One per process.
class ThreadStack {
 public:
  ThreadStack();  // of the thread that makes it, which outlives this
  ~ThreadStack();
  ThreadStack(const ThreadStack&) = delete;
  ThreadStack& operator=(const ThreadStack&) = delete;

  // The functions that the thread is in, the innermost first: "shale::Foo::bar(int)", or
  // "libc.so.6+0x1234" where no name is known. Empty if it does not answer within half a second, as
  // when the kernel does not let it. Not from the thread itself.
  std::vector<std::string> sample() const;

 private:
  unsigned long thread_;
  bool owns_signal_stack_ = false;
};

}  // namespace shale
