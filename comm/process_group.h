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

// Backend for collectives on GPU tensors.
enum class Transport : uint8_t {
  kAuto,  // NCCL; an error if NCCL cannot be used
  kMpi,   // through pinned host memory
  kNccl,
};

// Queue in which a process runs collectives. Collectives in one lane run one after another, even if
// they belong to different groups. Collectives in different lanes do not wait for each other.
enum class Lane : uint8_t {
  kData,   // gradients, gathered parameters and control data: queued while the program computes
  kModel,  // inside a layer, on the critical path: must not wait for kData
};
inline constexpr int kLanes = 2;

// Options of a group. If ranks give different values, rank 0's apply to everything that concerns
// all ranks.
struct GroupOptions {
  std::string name = "world";  // shown in messages
  double timeout_s = 600;      // longest wait for another rank; 0: no limit
  int threads = 1;             // maximum number of CPU threads for a reduction
  Tracer* tracer = nullptr;    // records the time for which callers block as "comm/wait"
  int ranks_per_node = 0;  // for tests: number of ranks that count as one node; 0: ask the machine
  // for tests: false copies all data through staging areas, as if ranks could not map memory of
  // peers
  bool share_memory = true;
  int64_t staging_bytes = 512 << 10;  // chunk size for copies of memory that peers cannot map
  Transport transport = Transport::kAuto;
  Lane lane = Lane::kData;
  // true: run each all-reduce as a reduce-scatter and an all-gather, as sharded data parallelism
  // does. Needed for NCCL only: its own all-reduce is faster inside a node, but adds in another
  // order.
  bool deterministic = false;
};

// Options common to all collectives.
struct CollectiveOptions {
  std::string_view tag = {};  // purpose: "blocks.3 gradient"; part of the fingerprint
  bool async = false;  // true: queue the collective and return; false: also wait for it
  // The caller's compute stream. Work queued on it before the call produces the inputs and may
  // still use the memory of the outputs; work queued after wait() finds the outputs complete. Null
  // on the CPU, where the caller has finished its work before the call.
  void* stream = nullptr;
  Traffic traffic = Traffic::kControl;  // class of the data in the traffic statistics
  // A collective whose output is the input of the new one, if nobody has waited for it yet; null:
  // none. It belongs to this process, but may belong to another group on the same device.
  const Work* after = nullptr;
  // The optimizer's step if known, otherwise -1. Part of the fingerprint: without it, a rank that
  // skips a backward would add gradients of two different steps.
  int64_t step = -1;
};

// A set of ranks that run collectives together, such as an NCCL communicator.
//
// All ranks of a group call the same collectives in the same order, from one thread at a time. This
// applies to all groups of a process that are in one lane: if two groups share ranks, all these
// ranks must call the collectives of both in the same order. Each collective has a number and a
// fingerprint (operation, dtype, count, root, tag). If ranks disagree about it, all of them get a
// CommError that names the ranks. A rank that has waited longer than the time-out also gets a
// CommError. The group is unusable afterwards.
//
// Sums are deterministic. Ranks are added in rank order as a binary tree, ((r0+r1)+(r2+r3))+..., in
// which the left subtree of n ranks has the largest power of two below n. bf16 and f16 are added in
// f32 and rounded once, at the end. (NCCL uses its own order; see GroupOptions::deterministic.)
// Every element uses the same tree, so bits do not depend on how a buffer is divided, on its
// address, or on the number of threads. reduce_scatter_sum followed by all_gather gives the same
// bits as all_reduce_sum. With several nodes, kernels/tree_sum.h adds inside each node, then over
// the nodes. This is the same tree if each node has the same number of consecutive ranks, a power
// of two.
//
// Views are contiguous and in memory of the group's device: host memory for the backends "self" and
// "mpi", device memory for "staged" and "nccl". Text and barriers always use the host.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const GroupOptions& options() const { return options_; }
  virtual std::string_view backend() const = 0;

  // Group of the same ranks for views in host memory. It is *this unless this group is for a
  // device.
  virtual ProcessGroup& host() { return *this; }

  // Memory that peers can access directly. If it is host memory, collectives between ranks of one
  // node copy nothing. It works with all groups of the same World and device; free it before these
  // groups end.
  virtual MemoryProvider& memory() = 0;

  // Sum over all ranks, in place. f32, bf16, f16, f64, i32, i64.
  Work all_reduce_sum(const View& buffer, const CollectiveOptions& options = {});
  // Maximum over all ranks, in place; any NaN gives NaN. i32, i64; also f32, f64 except with NCCL.
  Work all_reduce_max(const View& buffer, const CollectiveOptions& options = {});
  // in: size() slices of out's length, in rank order. out: the sum of slice rank() over all ranks.
  // out may alias slice rank() of in; the rest of in is unchanged.
  Work reduce_scatter_sum(const View& in, const View& out, const CollectiveOptions& options = {});
  // out: size() slices of in's length, in rank order. in may alias slice rank() of out. Any dtype.
  Work all_gather(const View& in, const View& out, const CollectiveOptions& options = {});
  // Copies root's values to all ranks. Any dtype.
  Work broadcast(const View& buffer, int root, const CollectiveOptions& options = {});
  // Replaces root's buffer by the sum over all ranks; the other buffers are unchanged. Same dtypes
  // and order of additions as all_reduce_sum.
  Work reduce_sum(const View& buffer, int root, const CollectiveOptions& options = {});
  // out, on root: size() slices of in's length, in rank order; in may alias slice root of out.
  // Other ranks receive nothing, and their out is ignored. Any dtype.
  Work gather(const View& in, const View& out, int root, const CollectiveOptions& options = {});
  // in: size() slices of equal length, one for each rank, in rank order; out: one slice from each
  // rank. in and out do not overlap. Any dtype.
  Work all_to_all(const View& in, const View& out, const CollectiveOptions& options = {});
  // all_to_all with slices of any lengths, stored one after another: in_counts[r] elements for rank
  // r, out_counts[r] elements from rank r. If a sender's and a receiver's counts differ, all ranks
  // throw a CommError that names both. With NCCL the error comes only when all ranks have issued as
  // many collectives, and names no rank.
  Work all_to_all_v(const View& in, std::span<const int64_t> in_counts, const View& out,
                    std::span<const int64_t> out_counts, const CollectiveOptions& options = {});
  void barrier(std::string_view tag = {});

  // Gathers control data in rank order. The length may differ between ranks. Blocking.
  std::vector<std::string> all_gather_bytes(std::string_view mine, std::string_view tag = {});
  // Gathers control data on root alone; other ranks get nothing. Root stores size() texts, padded
  // to the longest one. Blocking.
  std::vector<std::string> gather_bytes(std::string_view mine, int root, std::string_view tag = {});
  // Sends root's control data, of any length, to all ranks. Ignores the argument of other ranks.
  // Blocking.
  std::string broadcast_bytes(std::string_view roots, int root, std::string_view tag = {});

  // Sets the process's only listener; an empty one removes it, and waits for a call that is
  // running. If a rank of the World fails by itself or is lost, the listener is called once,
  // whatever this rank is doing at the time. It is called on another thread, and only while a
  // watchdog runs (World::watch). Not collective.
  virtual void on_failure(FailureListener /*listener*/) {}

  // Makes a group of the ranks that give the same color, ordered by key, then rank. It is in this
  // group's lane unless the options say another. Collective.
  std::unique_ptr<ProcessGroup> split(int color, int key, std::string_view name);
  std::unique_ptr<ProcessGroup> split(int color, int key, std::string_view name, Lane lane);
  // Makes the same groups if every rank knows all colors: rank r has color colors[r] and key r.
  // Collective.
  std::unique_ptr<ProcessGroup> split(std::span<const int> colors, std::string_view name);

  // Makes links between pairs of this group's ranks, for pipeline stages. specs: the same on all
  // ranks. Returns one link for each of them, or null if this rank is at neither end. Throws
  // ConfigError for invalid ranks, slots or capacities and for duplicate links, CommError if ranks
  // differ, UnavailableError if the backend has no links. Collective.
  std::vector<std::unique_ptr<PipeLink>> make_links(std::span<const LinkSpec> specs);

  // A collective on a stream that is being captured (runtime/tensor/graph.h) runs when the graph is
  // replayed. Only backends that can do that without the host support it: "nccl", and every group
  // of one rank. Other backends throw CommError. take_captured() returns the collectives captured
  // since its last call. Call replayed() when a graph with these collectives has been queued on
  // `stream`; they are counted and watched from then on.
  std::vector<CollectiveCall> take_captured() { return std::exchange(captured_, {}); }
  void replayed(const std::vector<CollectiveCall>& calls, void* stream);

  // Sent bytes and waiting times of this rank, in this group and in groups split from it.
  const TrafficMeter& traffic() const { return *meter_; }
  void reset_traffic() { meter_->reset(); }  // restarts all counters

 protected:
  ProcessGroup(int rank, int size, GroupOptions options)
      : rank_(rank), size_(size), options_(std::move(options)) {}

  // Runs or queues a call with checked arguments.
  virtual Work submit(const CollectiveCall& call, bool async) = 0;
  virtual std::unique_ptr<ProcessGroup> make_split(int color, int key,
                                                   const GroupOptions& options) = 0;
  virtual std::unique_ptr<ProcessGroup> make_known_split(std::span<const int> colors,
                                                         const GroupOptions& options);
  // Makes links from specs that have been checked.
  virtual std::vector<std::unique_ptr<PipeLink>> open_links(std::span<const LinkSpec> specs);
  // True if this device stream is being captured.
  virtual bool captures(void* /*stream*/) const { return false; }
  virtual void watch_replay(const std::vector<CollectiveCall>& /*calls*/, void* /*stream*/) {}
  // Counts the traffic of `part` in this group's statistics too.
  void account_for(ProcessGroup& part) { part.meter_->set_parent(meter_); }
  // Traffic meter. Works keep it if their waiting time is known only later.
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
