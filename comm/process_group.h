#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/base/trace.h"
#include "shale/base/view.h"
#include "shale/comm/collective.h"
#include "shale/comm/link/pipe_link.h"
#include "shale/comm/traffic.h"
#include "shale/comm/watch/failure_board.h"
#include "shale/comm/work.h"
#include "shale/runtime/tensor/memory_provider.h"

namespace shale::comm {

// What carries collectives on tensors of a GPU.
enum class Transport : uint8_t {
  kAuto,  // NCCL; an error where it cannot be used
  kMpi,   // pinned host memory
  kNccl,
};

// Which collectives of a process wait for which. Those of one lane run one after another, whatever
// their group; those of two lanes do not wait for each other.
enum class Lane : uint8_t {
  kData,   // gradients, gathered parameters, control: queued while the program computes
  kModel,  // inside a layer, on the critical path: must not wait for the others
};
inline constexpr int kLanes = 2;

// Options of a group. Where ranks differ, rank 0's values count in what matters to all.
struct GroupOptions {
  std::string name = "world";  // for messages
  double timeout_s = 600;      // longest wait for another rank; 0: for ever
  int threads = 1;             // CPU threads that a reduction may use
  Tracer* tracer = nullptr;    // receives "comm/wait", the time that callers spend blocked
  int ranks_per_node = 0;      // for tests: pretend that nodes are this small; 0: ask the machine
  bool share_memory = true;  // for tests: false stages everything, as where peers may not be mapped
  int64_t staging_bytes = 512 << 10;  // chunk in which memory that peers cannot reach is passed on
  Transport transport = Transport::kAuto;
  Lane lane = Lane::kData;
  // NCCL's own all-reduce is faster inside a node, and its order of additions is its own; true: as
  // reduce-scatter and all-gather, which sharded data parallelism uses. Others always are.
  bool deterministic = false;
};

// How a collective is queued, whatever it does.
struct CollectiveOptions {
  std::string_view tag = {};  // who asks, for reports: "blocks.3 gradient"; part of the fingerprint
  bool async = false;         // true: queue it and return; false: as if wait() came at once
  // The caller's compute stream: what is queued on it before the call produces the inputs and may
  // still use the outputs' memory, what is queued after wait() finds the outputs complete. Null on
  // the CPU, where work is done when it has been called.
  void* stream = nullptr;
  Traffic traffic = Traffic::kControl;  // for the accounts
  // An earlier collective of this process whose output is this one's input and which nobody has
  // waited for yet; null: there is none. It may be of another group, for the same device.
  const Work* after = nullptr;
  // Of the optimizer, where it is known, else -1; part of the fingerprint: a rank that leaves out a
  // backward would add up gradients of two steps.
  int64_t step = -1;
};

// Ranks that compute together.
//
// All ranks of a group call the same collectives in the same order, from one thread at a time. The
// order is over all groups of a process that are in one lane: two groups that share ranks are used
// in one order by all of them. Each collective carries a number and a fingerprint (operation,
// dtype, count, root, tag); ranks that disagree all get a CommError that names them, and so do
// ranks that waited longer than the time-out. After that the group is unusable.
//
// Sums are deterministic: a binary tree over the ranks in rank order, ((r0+r1)+(r2+r3))+..., where
// the left part of n ranks has the largest power of two below n. bf16 and f16 are added in f32 and
// rounded once, at the end (NCCL adds as it likes; see GroupOptions::deterministic). The tree is
// the same for every element, so that no bit depends on how a buffer is cut, on its address, or on
// the number of threads; reduce_scatter_sum followed by all_gather gives the bits of
// all_reduce_sum. (Over several nodes: kernels/tree_sum.h per node, then over the nodes; the same
// tree if each node has the same power of two of consecutive ranks.)
//
// Views are contiguous and in memory of the group's device: host memory for the backends "self" and
// "mpi"; for a device's memory there are "staged" and "nccl". Text and barriers are the host's
// business everywhere.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const GroupOptions& options() const { return options_; }
  virtual std::string_view backend() const = 0;

  // The group of the same ranks for views in host memory; this one, unless it is for a device.
  virtual ProcessGroup& host() { return *this; }

  // Memory that peers reach most directly: on one node, collectives on host memory copy nothing. It
  // may be used with every group of the same World and device, and must be freed before those end.
  virtual MemoryProvider& memory() = 0;

  // Sums in place. f32, bf16, f16, f64, i32, i64.
  Work all_reduce_sum(const View& buffer, const CollectiveOptions& options = {});
  // Largest value, in place; any NaN gives NaN. f32, f64, i32, i64.
  Work all_reduce_max(const View& buffer, const CollectiveOptions& options = {});
  // in: size() slices of out's length, in rank order; out: the sum of slice rank() over all ranks.
  // out may be that slice of in itself; in is otherwise unchanged.
  Work reduce_scatter_sum(const View& in, const View& out, const CollectiveOptions& options = {});
  // out: size() slices of in's length, in rank order. in may be slice rank() of out. Any dtype.
  Work all_gather(const View& in, const View& out, const CollectiveOptions& options = {});
  // root's values everywhere. Any dtype.
  Work broadcast(const View& buffer, int root, const CollectiveOptions& options = {});
  // root's buffer becomes the sum of all ranks'; the others' are unchanged. Same dtypes and order
  // of additions as all_reduce_sum.
  Work reduce_sum(const View& buffer, int root, const CollectiveOptions& options = {});
  // out, on root: size() slices of in's length, in rank order; in may be slice root of it. Other
  // ranks receive nothing, and out is not looked at. Any dtype.
  Work gather(const View& in, const View& out, int root, const CollectiveOptions& options = {});
  // in: size() slices of equal length, one for each rank, in rank order; out: one from each. They
  // do not overlap. Any dtype.
  Work all_to_all(const View& in, const View& out, const CollectiveOptions& options = {});
  // The same with slices of any lengths: elements for, and from, each rank, one after another. A
  // rank that gives another what that does not expect is a CommError on all ranks that names both;
  // over NCCL only once all ranks have queued equally many collectives.
  Work all_to_all_v(const View& in, std::span<const int64_t> in_counts, const View& out,
                    std::span<const int64_t> out_counts, const CollectiveOptions& options = {});
  void barrier(std::string_view tag = {});

  // Control data of any length (it may differ between ranks), in rank order. Blocking.
  std::vector<std::string> all_gather_bytes(std::string_view mine, std::string_view tag = {});
  // The same for root alone; nothing on the others. Root's memory: size() times the longest.
  std::vector<std::string> gather_bytes(std::string_view mine, int root, std::string_view tag = {});
  // Control data of any length that root has, on all ranks; what others give does not count.
  // Blocking.
  std::string broadcast_bytes(std::string_view roots, int root, std::string_view tag = {});

  // Calls `listener` once if a rank of the World fails by itself, or is lost, whatever this rank is
  // doing meanwhile: on another thread, and only while a watchdog runs (World::watch). There is one
  // listener in a process; an empty one ends it, and waits for one that is at work. Not collective.
  virtual void on_failure(FailureListener /*listener*/) {}

  // Groups of the ranks that give the same color, ordered by key, then rank; in this group's lane
  // unless another is given. Collective.
  std::unique_ptr<ProcessGroup> split(int color, int key, std::string_view name);
  std::unique_ptr<ProcessGroup> split(int color, int key, std::string_view name, Lane lane);
  // The same where every rank knows what all give: colors[r] is rank r's. Ordered by rank.
  std::unique_ptr<ProcessGroup> split(std::span<const int> colors, std::string_view name);

  // Links between pairs of this group's ranks, for the stages of a pipeline: one for each of
  // `specs`, which all ranks give alike; null where this rank is at neither end. Collective. Throws
  // ConfigError for ranks, slots or capacities that cannot be and for links that are there twice,
  // CommError if ranks differ, UnavailableError where a backend has none.
  std::vector<std::unique_ptr<PipeLink>> make_links(std::span<const LinkSpec> specs);

  // Collectives whose stream is captured (runtime/tensor/graph.h) run when the graph is replayed,
  // if the backend can do that without the host: "nccl", and all of one rank. Others throw
  // CommError. take_captured(): those captured since the last call. replayed(): a graph with these
  // has been queued on `stream`, which is when they count and are watched.
  std::vector<CollectiveCall> take_captured() { return std::exchange(captured_, {}); }
  void replayed(const std::vector<CollectiveCall>& calls, void* stream);

  // What this rank has sent and waited for, in this group and in those split from it.
  const TrafficMeter& traffic() const { return *meter_; }
  void reset_traffic() { meter_->reset(); }  // counts from now on

 protected:
  ProcessGroup(int rank, int size, GroupOptions options)
      : rank_(rank), size_(size), options_(std::move(options)) {}

  // Runs or queues a call whose arguments have been checked.
  virtual Work submit(const CollectiveCall& call, bool async) = 0;
  virtual std::unique_ptr<ProcessGroup> make_split(int color, int key,
                                                   const GroupOptions& options) = 0;
  virtual std::unique_ptr<ProcessGroup> make_known_split(std::span<const int> colors,
                                                         const GroupOptions& options);
  // Of specs that have been checked.
  virtual std::vector<std::unique_ptr<PipeLink>> open_links(std::span<const LinkSpec> specs);
  // Whether what this stream of a device is given is captured.
  virtual bool captures(void* /*stream*/) const { return false; }
  virtual void watch_replay(const std::vector<CollectiveCall>& /*calls*/, void* /*stream*/) {}
  // What `part` counts counts here too.
  void account_for(ProcessGroup& part) { part.meter_->set_parent(meter_); }
  // For times that are known only later.
  std::shared_ptr<TrafficMeter> meter() const { return meter_; }

 private:
  Work issue(CollectiveCall call, const CollectiveOptions& options);

  std::shared_ptr<TrafficMeter> meter_ = std::make_shared<TrafficMeter>();
  std::vector<CollectiveCall> captured_;
  int rank_;
  int size_;
  GroupOptions options_;
};

}  // namespace shale::comm
