#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace shale::comm {

// Ends a process that waits for others before ranks can watch each other: a rank that is stopped,
// or hangs, before or in MPI_Init would else hold up all others for ever. Made before the World,
// until World::watch() has returned. Without a launcher it does nothing.
class StartWatch {
 public:
  // timeout_s: longest start, in time that this process was awake for; 0: for ever. Then one line
  // says which ranks of this host are stopped, if any is, and the process ends with code 76,
  // whereupon the launcher ends the others.
  explicit StartWatch(double timeout_s);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void run(double timeout_s);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace shale::comm
