#pragma once

namespace shale::kernels {

// While one lives, the CPU's kernels do all but their work on the thread that made it: they check
// their arguments, plan, and reserve scratch memory as ever, and skip the loops over elements
// (cpu/parallel.h). Results are not written, but for what a kernel does outside of such loops,
// which is little. This is how a step's memory is known without the time and the pages that the
// step takes.
class DryRun {
 public:
  DryRun();
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  static bool is_on();  // on this thread
};

}  // namespace shale::kernels
