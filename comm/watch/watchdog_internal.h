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

// Start of the message about a lost rank.
inline constexpr std::string_view kNoHeartbeat = "no heartbeat from ";

// Watches the ranks of a World on a separate thread, whatever this rank does. Every rank sends
// heartbeats. If a rank sends none for `lost_s`, it is stopped, or its host is cut off or down;
// then all other ranks end the run. When communication fails in any way, each rank reports what it
// was doing.
class Watchdog {
 public:
  struct Options {
    double timeout_s = 600;             // longest wait for a collective
    double lost_s = 90;                 // longest silence of a rank
    std::function<bool()> ending = {};  // see WatchOptions
    std::string reports = {};           // see WatchOptions
    // Called on the watchdog's thread to end the run; returns only if another thread is ending it.
    std::function<void(const std::string& message, bool caused)> fail = {};
  };

  // Reports show the stack of the calling thread. The context and its failure board belong to the
  // node; both must outlive this object. Collective over `world`.
  Watchdog(WorldContext& context, const MpiComm& world, const MpiComm& node,
           const Options& options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void at_step(int64_t step);
  // Tells the watchdog that the main thread is ending the run, so that its stack says nothing.
  void main_is_failing() { main_failing_.store(true, std::memory_order_relaxed); }
  // Returns true if a lower rank on another node fails by itself too. Waits for such news for a
  // short time.
  bool lower_rank_fails() const;
  // Ends the thread and the heartbeats. Still reports a failure of this node that has just
  // happened.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  void thread_main();
  void look(double elapsed_s);
  void tell_neighbors();
  void keep_stack_of_long_wait();
  void warn_of_unheard();
  void alarm(const std::vector<int>& silent, double silence_s);
  HeartbeatLink::Failure failure_on_node() const;
  HeartbeatLink::Failure known_failure() const;
  void tell_of_failure();
  void report_failure();
  void report(const std::string& reason);
  bool keep(const std::string& text) const;
  void print_if_unlike_others(const std::string& doing);

  WorldContext& context_;
  Options options_;
  std::unique_ptr<NodeMemory> memory_;
  std::unique_ptr<HeartbeatLink> link_;  // null: all ranks are on this node
  std::vector<int> node_ranks_;          // ranks of this node
  int node_index_ = 0;  // index of this node, if nodes are ordered by their lowest rank
  HeartbeatTable table_;
  Silence silence_;
  ThreadStack main_thread_;
  std::atomic<int64_t> step_{-1};
  std::atomic<bool> main_failing_{false};

  // State that only the watchdog's thread uses.
  uint64_t beats_ = 0;
  double awake_s_ = 0;
  HeartbeatLink::Failure told_failure_;  // last failure sent to other nodes
  bool suspended_ = false;               // this process was suspended before the current iteration
  bool alarmed_ = false;                 // this node has lost a rank
  bool warned_ = false;
  bool reported_ = false;
  bool gave_up_ = false;
  double elsewhere_since_s_ = -1;  // value of awake_s_ when a failure on another node became known
  uint64_t kept_id_ = 0;           // number of a collective that was about to time out
  std::vector<std::string> kept_stack_;  // stack of the main thread during that collective

  std::atomic<bool> stop_{false};
  std::thread thread_;  // last member: the thread uses the other members
};

}  // namespace shale::comm
