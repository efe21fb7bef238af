#pragma once

namespace shale::kernels {

// While one lives, the CPU's kernels do all but their work on the thread that made it: they check
// their arguments, plan, and reserve scratch memory as ever, and skip the loops over elements
// (cpu/parallel.h). Results are not written, but for what a kernel does outside of such loops,
// which is little. This is how a step's memory is known without the time and the pages that the
// step takes. It is the thread's and not a context's: a rank has several, and all of them run dry.
class DryRun {
 public:
  DryRun();
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  static bool is_on();  // on this thread

  // While one lives, the thread's kernels do their work all the same.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    int alive_;
  };
};

}  // namespace shale::kernels
