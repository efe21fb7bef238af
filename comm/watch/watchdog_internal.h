#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "shale/base/thread_stack.h"
#include "shale/comm/node/node_memory.h"
#include "shale/comm/watch/heartbeat_link_internal.h"
#include "shale/comm/watch/heartbeat_table.h"
#include "shale/comm/world_context.h"

namespace shale::comm {

// What the message of a rank that is lost begins with.
inline constexpr std::string_view kNoSignOfLife = "no sign of life of ";

// Watches the ranks of a World from a thread of its own, whatever this rank is doing: every rank
// gives signs of life, and one that gives none for the time-out (it is stopped, its host is cut off
// or gone) ends the run on all others. When ranks fail each other in any way, each of them reports
// what it was doing.
class Watchdog {
 public:
  struct Options {
    double timeout_s = 600;
    // Called on the watchdog's thread to end the run; returns only if somebody else is ending it.
    std::function<void(const std::string& message, bool caused)> fail = {};
  };

  // To be made by the thread whose stack reports show. Collective over `world`. context, which
  // outlives this, and its board are the node's.
  Watchdog(WorldContext& context, const MpiComm& world, const MpiComm& node,
           const Options& options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void at_step(int64_t step);
  // The main thread is about to end the run itself: its stack says nothing any more.
  void main_is_failing() { main_failing_.store(true, std::memory_order_relaxed); }
  // Ends the thread; after that nobody hears of this rank. Reports a failure of this node that
  // happened a moment ago.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  void thread_main();
  void look(double elapsed_s);
  void tell_neighbors();
  void keep_stack_of_long_wait();
  void warn_of_unheard();
  void alarm(const std::vector<int>& silent, double silence_s);
  int failure_on_node() const;
  void tell_of_failure();
  void report_failure();
  void report(const std::string& reason);

  WorldContext& context_;
  Options options_;
  std::unique_ptr<NodeMemory> memory_;
  std::unique_ptr<HeartbeatLink> link_;  // null: all ranks are on this node
  HeartbeatTable table_;
  Silence silence_;
  ThreadStack main_thread_;
  std::atomic<int64_t> step_{-1};
  std::atomic<bool> main_failing_{false};

  // State of the thread.
  uint64_t beats_ = 0;
  double awake_s_ = 0;
  int told_failure_ = 0;  // to other nodes
  bool warned_ = false;
  bool reported_ = false;
  bool gave_up_ = false;
  double elsewhere_since_s_ = -1;        // when others were first known to fail
  uint64_t kept_id_ = 0;                 // of a collective that runs for long,
  std::vector<std::string> kept_stack_;  // and where the main thread is meanwhile

  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses the rest
};

}  // namespace shale::comm
