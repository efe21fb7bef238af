#pragma once

namespace shale::kernels {

// While an instance exists, CPU kernels on the thread that created it only pretend to run: they
// check their arguments, plan, and reserve scratch memory as usual, but skip the loops over
// elements (cpu/parallel.h). They write no results, except for the little that is written outside
// of such loops. So the memory of a step can be measured without the time and the pages that the
// step takes. The state is per thread and not per context, because a rank has several contexts.
class DryRun {
 public:
  DryRun();
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  static bool is_on();  // true if a dry run is on in this thread

  // While an instance exists, the thread's kernels run normally again.
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
