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

// What a rank does in collectives, by the algorithms that send least: recursive halving and
// doubling, binomial trees.
struct SimulatedCounts {
  int64_t calls = 0;
  int64_t blocking = 0;       // of these, those for which the caller waits at once
  int64_t messages = 0;       // that this rank sends
  double sent_bytes = 0;      // ring_bytes(), which these algorithms reach too
  double received_bytes = 0;  // into memory of this rank

  SimulatedCounts& operator+=(const SimulatedCounts& other);
};

// What is simulated, besides the rank and the number of ranks.
struct SimulatedOptions {
  GroupOptions group = {};
  // Whether a collective's views have values, the shorter and the longer; where they have none,
  // neither is read or written. Empty: all have.
  std::function<bool(const View& shorter, const View& longer)> has_values = {};
  // Collectives that are queued are done when they are waited for and no earlier, as where peers are
  // slow; in a group of one rank all are done at once, as there.
  bool late = false;
  // Says how long they take; null: nobody asks. It outlives all groups.
  SimulatedClock* clock = nullptr;
};

// A group of any size in one process, of which one rank exists: the code above it runs as it would
// on that rank, and what it asks of its peers is counted.
//
// The other ranks give what this one gives, so that what ranks compare agrees: a gather repeats
// this rank's slice, a sum is a multiple, a largest value and a broadcast are this rank's own, an
// all-to-all of any lengths brings zeros, and links bring nothing at all. No memory of theirs
// exists, and every collective is done when its call returns, unless it is to be late. What only another rank can know, such
// as rank 0's text of a manifest, whoever simulates says beforehand.
class SimulatedGroup final : public ProcessGroup {
 public:
  // Views are in memory of `device`, which outlives the group: the CPU's, or, where none of them has
  // values but in memory that the host may touch, another's. Throws ConfigError unless the rank is
  // one of the group's.
  SimulatedGroup(int rank, int size, DeviceBackend& device, const SimulatedOptions& options = {});

  std::string_view backend() const override { return "simulated"; }
  ProcessGroup& host() override;
  // Host memory, by a provider of its own, as ranks have: an allocator keeps the two apart.
  MemoryProvider& memory() override { return *memory_; }

  // What broadcast_bytes() under this tag brings from another rank.
  void set_broadcast(const std::string& tag, std::string text) { broadcasts_[tag] = text; }

  // Counts since the last reset(), by the tag of the call.
  const std::map<std::string, SimulatedCounts, std::less<>>& counts() const { return counts_; }
  SimulatedCounts total() const;
  void reset() { counts_.clear(); }

 protected:
  Work submit(const CollectiveCall& call, bool async) override;
  // Color 0, with each rank's own number as the key, is a group of all. Throws UnavailableError for
  // others: which ranks give them, one rank does not know.
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

  // The group of host memory, where this is another device's: made when it is asked for.
  struct Host;
  std::shared_ptr<Host> host_;
  DeviceBackend& device_;
  std::function<bool(const View& shorter, const View& longer)> has_values_;
  bool late_;
  SimulatedClock* clock_;
  Members members_;  // of the group that all were split from
  std::shared_ptr<MemoryProvider> memory_;  // of this group and those split from it
  std::map<std::string, SimulatedCounts, std::less<>> counts_;
  std::map<std::string, std::string, std::less<>> broadcasts_;  // by tag
};

}  // namespace shale::comm
