#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace shale::comm {

// Ends this process if it waits too long for other ranks at the start, before ranks can watch each
// other. Otherwise a rank that stops or hangs in MPI_Init would block all others for ever. Create
// it before the World, destroy it after World::watch(). Does nothing without a launcher.
class StartWatch {
 public:
  // timeout_s: longest start; counts only time in which this process was awake. 0: no limit. After
  // that time, prints one line and ends the process with code 76. The launcher then ends the other
  // processes. The line names the ranks of this host that are stopped, if any.
  explicit StartWatch(double timeout_s);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void run(double timeout_s);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;  // last member: the thread uses the other members
};

}  // namespace shale::comm
