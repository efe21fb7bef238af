#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/collective.h"
#include "shale/kernels/cost.h"
#include "shale/models/plan/time/fitted_links.h"

namespace shale::models {

// A way from one rank to another.
struct ClusterLink {
  double bandwidth = 0;  // bytes/s that one device sends, while it receives as many
  double latency_s = 0;
};

// The machines of a run, as a plan of its time sees them. Ranks fill one node after the other.
struct Cluster {
  std::string device;  // "NVIDIA H100 SXM 80 GB"
  std::string source;  // where the figures are from
  bool is_gpu = true;
  double memory = 0;                      // bytes of a device; 0: not known
  double memory_bandwidth = 0;            // bytes/s
  double flops_bf16 = 0, flops_fp32 = 0;  // of matrix products per second, by their operands
  double launch_s = 0;                    // that every kernel takes besides
  // What kernels reach of the above, at their best.
  double product_share = 0.85, attention_share = 0.55, attention_grad_share = 0.45;
  double bandwidth_share = 0.9;
  // The share of its speed that a device loses while a collective runs beside it.
  double overlap_tax = 0.1;
  int64_t devices_per_node = 8;
  ClusterLink node, network;  // within a node; of one device to other nodes
  // Of copies between a device and its host, in one direction at a time or both: what one device
  // reaches, and all of a node together; then what the memory of a node's host has for kernels
  // there, optimizers above all. Bytes/s; 0: not known, or, of all together, that each has its own.
  double host_bandwidth = 0, host_shared_bandwidth = 0, host_memory_bandwidth = 0;
  double host_memory = 0;                  // bytes of a node's host; 0: not known
  bool links_are_fitted = false;           // to measured collectives
  std::vector<FittedLink> links;           // of groups that were measured; others go by the above
  double power_w = 0, price_per_hour = 0;  // of a device and what is with it; 0: nobody asks

  double flops(DType operands) const { return dtype_size(operands) < 4 ? flops_bf16 : flops_fp32; }
  bool is_one_node(std::span<const int> ranks) const;

  // Where another program than this one ran. Scores of attention are in memory, of all pairs with
  // dropout: kept for backward, or computed again there.
  enum class Scores : uint8_t { kFused, kKept, kAgain };
  Scores scores = Scores::kFused;
  // Tensor ranks share the rows between their layers; else each goes over all of them.
  bool sequence_parallel = true;
  // Exchanges inside layers go in pieces, one for each rank, beside the products next to them.
  bool exchanges_in_pieces = false;
};

// Reads a file of JSON: the fields above with their units, as docs/planning.md lists them. Throws
// MissingInputError for a file that is not there, ConfigError for one that lacks a field, has one
// that is unknown, or a value that cannot be.
Cluster read_cluster(const std::string& path);

// What a device has of its host, bytes/s, while all of so many ranks that are in its node do alike.
struct HostRates {
  double copies = 0;  // in one direction
  double memory = 0;  // for kernels on the host
};
HostRates host_rates(const Cluster& cluster, int64_t ranks);

// How a group lies on the nodes: the ranks `members` of the world, those of a node together.
struct GroupSpread {
  int64_t ranks = 1, nodes = 1;
  int64_t stride = 0;  // between one of them and the next; 0: not all alike
};
GroupSpread spread_of(const Cluster& cluster, std::span<const int> members);

// What was measured of this operation in such groups; null: nothing.
const FittedLink* fitted_link(const Cluster& cluster, comm::CollectiveOp op,
                              const GroupSpread& group);
// How long a collective takes such a group: as fitted, or else, whatever the algorithm, what each
// device sends within its node, or, if that is longer, its share of what the node sends to others
// (a ring or a hierarchy reaches both), and the latency of as many steps as a ring or two trees
// need, whichever are fewer.
double collective_seconds(const Cluster& cluster, const comm::CollectiveCall& call,
                          const GroupSpread& group);
double collective_latency(const Cluster& cluster, const GroupSpread& group);  // not of fitted ones
// Steps that data makes among so many.
double steps_among(int64_t ranks);
double message_seconds(const Cluster& cluster, int64_t bytes, int sender, int receiver);

// How long a kernel takes that does this work. Small products reach a smaller share of the peak
// than large ones, and so does small traffic: Calculon's steps (Isaev et al., SC '23, the A100's),
// between which the share goes with the logarithm.
enum class KernelKind : uint8_t { kOther, kAttention, kAttentionGrad };
double kernel_seconds(const Cluster& cluster, const kernels::Cost& cost, DType operands,
                      KernelKind kind);

// Of attention that writes its scores to memory (Cluster::Scores), forward or backward, kernel by
// kernel: products, softmax with its mask, dropout with its own (Korthikanti et al.,
// arXiv:2205.05198, section 4.1: two bytes a score, one of the mask).
double attention_seconds(const Cluster& cluster, double scores, double head_size, DType operands,
                         bool is_backward);

}  // namespace shale::models
