#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/comm/groups/simulated_clock.h"
#include "shale/comm/process_group.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::comm {

// Counts of a rank's collectives. They assume the algorithms that send the fewest bytes and
// messages: recursive halving and doubling, and binomial trees.
struct SimulatedCounts {
  int64_t calls = 0;
  int64_t blocking = 0;       // calls for which the caller waits immediately
  int64_t messages = 0;       // messages sent by this rank
  double sent_bytes = 0;      // bytes sent by this rank, ring_bytes()
  double received_bytes = 0;  // bytes received by this rank

  SimulatedCounts& operator+=(const SimulatedCounts& other);
};

// Options of a simulation, besides the rank and the number of ranks.
struct SimulatedOptions {
  GroupOptions group = {};
  // Returns whether the views of a collective, the shorter and the longer one, have values. Views
  // without values are neither read nor written. Empty: all views have values.
  std::function<bool(const View& shorter, const View& longer)> has_values = {};
  // true: queued collectives finish only when waited for, as with slow peers. No effect in a group
  // of one rank.
  bool late = false;
  // Provides the durations of collectives; null: none. Outlives all groups.
  SimulatedClock* clock = nullptr;
};

// A group of any size in one process, of which only one rank runs. The program runs as on that rank
// of a real group, and its communication is counted.
//
// The other ranks contribute the same values as this one, so that comparisons between ranks
// succeed. A gather repeats this rank's slice, a sum is a multiple of its values, and a maximum and
// a broadcast return its own values. An all_to_all_v receives zeros, and links receive nothing. The
// other ranks have no memory. Every collective is done when it returns, unless
// SimulatedOptions::late is set. Data that only another rank can know, such as rank 0's manifest
// text, must be set in advance (set_broadcast).
class SimulatedGroup final : public ProcessGroup {
 public:
  // Views are in memory of `device`, which must outlive the group. It is the CPU, or another device
  // if only views in host-accessible memory have values. Throws ConfigError unless 0 <= rank <
  // size.
  SimulatedGroup(int rank, int size, DeviceBackend& device, const SimulatedOptions& options = {});

  std::string_view backend() const override { return "simulated"; }
  ProcessGroup& host() override;
  // Host memory. Its provider is not the device's, because allocators must distinguish the two.
  MemoryProvider& memory() override { return *memory_; }

  // Sets the text that broadcast_bytes() under this tag receives from another rank.
  void set_broadcast(const std::string& tag, std::string text) { broadcasts_[tag] = text; }

  // Counts since the last reset(), by tag.
  const std::map<std::string, SimulatedCounts, std::less<>>& counts() const { return counts_; }
  SimulatedCounts total() const;
  void reset() { counts_.clear(); }

 protected:
  Work submit(const CollectiveCall& call, bool async) override;
  // Supports only color 0 with each rank's own number as the key, which makes a group of all ranks.
  // Throws UnavailableError for other arguments, because the colors of the other ranks are unknown.
  std::unique_ptr<ProcessGroup> make_split(int color, int key,
                                           const GroupOptions& options) override;
  std::unique_ptr<ProcessGroup> make_known_split(std::span<const int> colors,
                                                 const GroupOptions& options) override;
  std::vector<std::unique_ptr<PipeLink>> open_links(std::span<const LinkSpec> specs) override;

 private:
  Work work_of(const CollectiveCall& call, bool async);
  void move_values(const CollectiveCall& call);
  void receive_text(const CollectiveCall& call);
  SimulatedOptions with(const GroupOptions& group) const;

  // The group for host memory if `device` is not the CPU. It is made on first use.
  struct Host;
  std::shared_ptr<Host> host_;
  DeviceBackend& device_;
  std::function<bool(const View& shorter, const View& longer)> has_values_;
  bool late_;
  SimulatedClock* clock_;
  Members members_;                         // World ranks of the group, also after splits
  std::shared_ptr<MemoryProvider> memory_;  // shared with groups split from it
  std::map<std::string, SimulatedCounts, std::less<>> counts_;
  std::map<std::string, std::string, std::less<>> broadcasts_;  // texts by tag
};

}  // namespace shale::comm
