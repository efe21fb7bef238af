#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/collective.h"
#include "shale/kernels/cost.h"
#include "shale/models/plan/time/fitted_links.h"

namespace shale::models {

// Link between two ranks.
struct ClusterLink {
  double bandwidth = 0;  // bytes/s that one device sends while it receives at the same rate
  double latency_s = 0;
};

// Machines of a run, as input of the time planner. Ranks fill one node after the other.
struct Cluster {
  std::string device;  // "NVIDIA H100 SXM 80 GB"
  std::string source;  // where the figures come from
  bool is_gpu = true;
  double memory = 0;                      // bytes of a device; 0: unknown
  double memory_bandwidth = 0;            // bytes/s
  double flops_bf16 = 0, flops_fp32 = 0;  // GEMM FLOP/s, by operand dtype
  double launch_s = 0;                    // overhead of every kernel
  // Shares of the peaks above that the best kernels reach (product: GEMM).
  double product_share = 0.85, attention_share = 0.55, attention_grad_share = 0.45;
  double bandwidth_share = 0.9;
  // Share of its speed that a device loses while a collective runs concurrently.
  double overlap_tax = 0.1;
  int64_t devices_per_node = 8;
  ClusterLink node, network;  // links within a node; links from one device to other nodes
  // Bandwidth of copies between a device and its host, in one direction or both: of one device
  // alone, and of all devices of a node together; then memory bandwidth of a node's host, for
  // kernels that run there (mainly optimizers). Bytes/s. 0: unknown; for the shared bandwidth: the
  // devices do not share one.
  double host_bandwidth = 0, host_shared_bandwidth = 0, host_memory_bandwidth = 0;
  double host_memory = 0;                  // bytes of a node's host; 0: unknown
  bool links_are_fitted = false;           // links come from measured collectives
  std::vector<FittedLink> links;  // links of measured groups; other groups use the figures above
  double power_w = 0, price_per_hour = 0;  // per device, with its host; 0: not reported

  double flops(DType operands) const { return dtype_size(operands) < 4 ? flops_bf16 : flops_fp32; }
  bool is_one_node(std::span<const int> ranks) const;

  // Properties of other frameworks whose runs are planned. Attention scores: fused, or all pairs
  // written to memory with dropout and either kept for backward or recomputed.
  enum class Scores : uint8_t { kFused, kKept, kAgain };
  Scores scores = Scores::kFused;
  // True: tensor ranks shard the rows between their layers. False: each rank processes all rows.
  bool sequence_parallel = true;
  // True: collectives inside layers are split into one piece per rank and overlap adjacent GEMMs.
  bool exchanges_in_pieces = false;
};

// Reads a JSON file with the fields above, in the units of docs/explanation/planning.md. Throws
// MissingInputError if the file does not exist, ConfigError for a missing or unknown field or an
// impossible value.
Cluster read_cluster(const std::string& path);

// Bandwidths of the host available to one device, in bytes/s, while all ranks of its node use the
// host in the same way. `ranks`: number of ranks of the run.
struct HostRates {
  double copies = 0;  // copies between device and host, in one direction
  double memory = 0;  // host memory, for kernels on the host
};
HostRates host_rates(const Cluster& cluster, int64_t ranks);

// Placement of a group on nodes: `members` are ranks of the world, those of a node adjacent.
struct GroupSpread {
  int64_t ranks = 1, nodes = 1;
  int64_t stride = 0;  // distance between consecutive members; 0: not uniform
};
GroupSpread spread_of(const Cluster& cluster, std::span<const int> members);

// Returns the measurement of this operation in a group with such a spread, or null.
const FittedLink* fitted_link(const Cluster& cluster, comm::CollectiveOp op,
                              const GroupSpread& group);
// Returns the duration of a collective in a group with such a spread. Uses the fitted link if there
// is one. Otherwise, whatever the algorithm: the larger of the time to send each device's bytes
// within its node and the time to send its share of the node's traffic to other nodes (a ring and a
// hierarchical algorithm both reach this bound), plus the latency of the steps of a ring or of two
// trees, whichever are fewer.
double collective_seconds(const Cluster& cluster, const comm::CollectiveCall& call,
                          const GroupSpread& group);
// Latency of a collective in seconds; ignores fitted links.
double collective_latency(const Cluster& cluster, const GroupSpread& group);
// Communication steps of a collective among `ranks` ranks.
double steps_among(int64_t ranks);
double message_seconds(const Cluster& cluster, int64_t bytes, int sender, int receiver);

// Returns the duration of a kernel with this cost. Small GEMMs and small memory traffic reach a
// smaller share of the peak than large ones: the steps of Calculon (Isaev et al., SC '23, for the
// A100), interpolated over the logarithm of the size.
enum class KernelKind : uint8_t { kOther, kAttention, kAttentionGrad };
double kernel_seconds(const Cluster& cluster, const kernels::Cost& cost, DType operands,
                      KernelKind kind);

// Duration of attention that writes its scores to memory (Cluster::Scores), forward or backward, as
// a sum over kernels: GEMMs, softmax with its mask, dropout with its mask (Korthikanti et al.,
// arXiv:2205.05198, section 4.1: two bytes per score, one per mask element).
double attention_seconds(const Cluster& cluster, double scores, double head_size, DType operands,
                         bool is_backward);

}  // namespace shale::models
