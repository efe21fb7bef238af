#include "shale/models/plan/time/cluster.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

constexpr double kTera = 1e12, kGiB = double(1 << 30);
// Minimum fraction of a peak. A smaller value is a mistake in the file, and would give endless
// steps.
constexpr double kLeastShare = 0.001;
// Limits of all other figures, in the units of the file. No machine comes near them, and sums of
// figures within them are finite.
constexpr double kLeastFigure = 1e-6, kMostFigure = 1e9;

void describe(ConfigSpec& spec, Cluster& c) {
  const RealLimits any{.min = 0, .max = kMostFigure};
  const RealLimits share{.min = kLeastShare, .max = 1};
  spec.add("device", c.device, "name of the device", {.required = true});
  spec.add("source", c.source, "source of the figures", {});
  spec.add("gpu", c.is_gpu, "the devices are GPUs");
  spec.add("memory-gib", c.memory, "memory of a device", any);
  spec.add("memory-gbytes-per-s", c.memory_bandwidth, "memory bandwidth of a device", any);
  spec.add("bf16-tflops", c.flops_bf16, "peak throughput of bf16 and fp16 GEMMs", any);
  spec.add("fp32-tflops", c.flops_fp32, "peak throughput of fp32 GEMMs", any);
  spec.add("launch-us", c.launch_s, "time to launch a kernel", any);
  spec.add("product-share", c.product_share, "share of the peak that large GEMMs reach", share);
  spec.add("attention-share", c.attention_share,
           "share of the peak that attention reaches in forward", share);
  spec.add("attention-grad-share", c.attention_grad_share,
           "share of the peak that attention reaches in backward", share);
  spec.add("bandwidth-share", c.bandwidth_share,
           "share of the memory bandwidth that large kernels reach", share);
  spec.add("overlap-tax", c.overlap_tax,
           "share of its speed that a device loses during a collective", {.min = 0, .max = 1});
  spec.add("devices-per-node", c.devices_per_node, "devices per node", {.min = 1});
  spec.add("node-gbytes-per-s", c.node.bandwidth, "bandwidth of a device within its node", any);
  spec.add("node-latency-us", c.node.latency_s, "latency of a collective's step within a node",
           any);
  spec.add("network-gbytes-per-s", c.network.bandwidth, "bandwidth of a device to other nodes",
           any);
  spec.add("network-latency-us", c.network.latency_s,
           "latency of a collective's step between nodes", any);
  spec.add("host-gbytes-per-s", c.host_bandwidth,
           "bandwidth between a device and its host, in each direction", any);
  spec.add("host-shared-gbytes-per-s", c.host_shared_bandwidth,
           "bandwidth between all devices of a node together and their host; 0: not shared", any);
  spec.add("host-memory-gib", c.host_memory, "host memory of a node", any);
  spec.add("host-memory-gbytes-per-s", c.host_memory_bandwidth, "bandwidth of a node's host memory",
           any);
  spec.add("links-fitted", c.links_are_fitted, "the links were measured here");
  using S = Cluster::Scores;
  spec.add_choice(
      "scores", c.scores, {{"fused", S::kFused}, {"kept", S::kKept}, {"again", S::kAgain}},
      "attention scores; fused: never in memory, kept: written to memory, again: recomputed");
  spec.add("sequence-parallel", c.sequence_parallel,
           "tensor parallelism includes sequence parallelism");
  spec.add("exchanges-in-pieces", c.exchanges_in_pieces, "tensor-parallel transfers overlap GEMMs");
  spec.add("power-w", c.power_w, "power of a device, with its share of the node's power", any);
  spec.add("price-per-hour", c.price_per_hour, "price of a device", any);
}

// Reads the fields of `spec`, and the list of links.
std::vector<FittedLink> take_links(ConfigSpec& spec, std::string_view text,
                                   const std::string& path) {
  Json fields;
  try {
    fields = Json::parse(text, {}, path);
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
  Json links = Json::array();
  if (fields.contains("links")) {
    links = fields["links"];
    fields.erase("links");
  }
  spec.read_json(fields.dump(), path);
  return read_links(links, path);
}

// Fraction of the peak that work of this size reaches.
struct Step {
  double size;
  double share;
};
constexpr std::array<Step, 5> kProducts{
    {{1e6, 0.02}, {1e8, 0.3}, {1e9, 0.6}, {16e9, 0.9}, {128e9, 1}}};
constexpr std::array<Step, 5> kTraffic{
    {{1e4, 0.1}, {1e5, 0.35}, {1e6, 0.65}, {1e7, 0.85}, {1e8, 1}}};

double share_of(const std::array<Step, 5>& steps, double size) {
  if (size <= steps.front().size) return steps.front().share;
  for (size_t i = 1; i < steps.size(); ++i) {
    const Step &low = steps[i - 1], &high = steps[i];
    if (size > high.size) continue;
    const double at = std::log(size / low.size) / std::log(high.size / low.size);
    return low.share + at * (high.share - low.share);
  }
  return steps.back().share;
}

// Returns the bytes that the busiest rank of a collective sends, divided by the bytes of the call.
double sent_share(comm::CollectiveOp op, double ranks) {
  using enum comm::CollectiveOp;
  const double others = (ranks - 1) / ranks;
  switch (op) {
    case kBarrier: return 0;
    case kAllReduceSum:
    case kAllReduceMax: return 2 * others;
    case kBroadcast: return ranks > 1 ? 1 : 0;
    default: return others;
  }
}

}  // namespace

bool Cluster::is_one_node(std::span<const int> ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    return rank / devices_per_node == ranks.front() / devices_per_node;
  });
}

std::string cluster_names() {
  std::string names;
  for (const ClusterFile& file : cluster_files()) {
    names += cat(names.empty() ? "" : ", ", file.name);
  }
  return names;
}

std::vector<Cluster> read_clusters(const std::string& list) {
  std::vector<Cluster> clusters;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    clusters.push_back(read_cluster(list.substr(begin, end - begin)));
    begin = end + 1;
  }
  return clusters;
}

Cluster read_cluster(const std::string& path) {
  Cluster cluster;
  ConfigSpec spec("cluster", "the machines of a planned run");
  describe(spec, cluster);
  const auto known = std::ranges::find(cluster_files(), path, &ClusterFile::name);
  const bool is_name = path.find_first_of("./") == std::string::npos;
  if (known == cluster_files().end() && is_name && !std::filesystem::exists(path)) {
    throw MissingInputError(cat(path, ": expected a file or one of ", cluster_names()));
  }
  std::string json;
  if (known != cluster_files().end()) {
    json = known->text;
  } else {
    json = MappedFile(path).text();
  }
  cluster.links = take_links(spec, json, path);
  for (const auto& [name, text] : spec.values()) {
    const double figure = parse_real(text).value_or(0);
    if (figure <= 0 || figure >= kLeastFigure) continue;
    throw ConfigError(cat(path, ": ", name, " is ", text, ", expected ", format_real(kLeastFigure),
                          " to ", format_real(kMostFigure), ", or 0 for none"));
  }
  const auto want = [&](double value, const char* name) {
    if (value > 0) return;
    throw ConfigError(cat(path, ": ", name, " is 0 or missing, expected a positive number"));
  };
  want(cluster.memory_bandwidth, "memory_gbytes_per_s");
  want(cluster.flops_bf16, "bf16_tflops");
  want(cluster.flops_fp32, "fp32_tflops");
  want(cluster.node.bandwidth, "node_gbytes_per_s");
  want(cluster.network.bandwidth, "network_gbytes_per_s");
  if (cluster.device.empty()) throw ConfigError(cat(path, ": device is missing, expected a name"));
  for (double* value : {&cluster.memory, &cluster.host_memory}) *value *= kGiB;
  for (double* value :
       {&cluster.memory_bandwidth, &cluster.node.bandwidth, &cluster.network.bandwidth,
        &cluster.host_bandwidth, &cluster.host_shared_bandwidth, &cluster.host_memory_bandwidth}) {
    *value *= kGiga;
  }
  for (double* value : {&cluster.flops_bf16, &cluster.flops_fp32}) *value *= kTera;
  for (double* value : {&cluster.launch_s, &cluster.node.latency_s, &cluster.network.latency_s}) {
    *value *= kMicro;
  }
  return cluster;
}

HostRates host_rates(const Cluster& cluster, int64_t ranks) {
  const auto beside = double(std::min(ranks, cluster.devices_per_node));
  HostRates rates{.copies = cluster.host_bandwidth,
                  .memory = cluster.host_memory_bandwidth * cluster.bandwidth_share / beside};
  if (cluster.host_shared_bandwidth > 0) {
    rates.copies = std::min(rates.copies, cluster.host_shared_bandwidth / beside);
  }
  return rates;
}

GroupSpread spread_of(const Cluster& cluster, std::span<const int> members) {
  int64_t nodes = 0, last = -1;
  for (const int rank : members) {
    const int64_t node = rank / cluster.devices_per_node;
    nodes += node != last;
    last = node;
  }
  int64_t stride = members.size() > 1 ? members[1] - members[0] : 0;
  for (size_t i = 2; i < members.size(); ++i) {
    if (members[i] - members[i - 1] != stride) stride = 0;
  }
  return {.ranks = std::ssize(members), .nodes = nodes, .stride = stride};
}

const FittedLink* fitted_link(const Cluster& cluster, comm::CollectiveOp op,
                              const GroupSpread& group) {
  if (comm::is_all_to_all(op)) op = comm::CollectiveOp::kAllToAll;
  for (const FittedLink& link : cluster.links) {
    if (link.op == op && link.ranks == group.ranks && link.stride == group.stride) return &link;
  }
  return nullptr;
}

namespace {

// Returns true if the rank sends all its data to a single other rank, as in a ring.
bool is_pass(const comm::CollectiveCall& call) {
  const auto gives = [](int64_t count) { return count > 0; };
  return call.op == comm::CollectiveOp::kAllToAllV &&
         std::ranges::count_if(call.in_counts, gives) == 1;
}

}  // namespace

double collective_seconds(const Cluster& cluster, const comm::CollectiveCall& call,
                          const GroupSpread& group) {
  const double bytes = double(call.larger_bytes());
  const auto [ranks, groups, stride] = group;
  if (is_pass(call) && ranks > 1) {  // every rank waits for the slowest link
    const ClusterLink& link = groups > 1 ? cluster.network : cluster.node;
    return link.latency_s + bytes / link.bandwidth;
  }
  if (const FittedLink* link = fitted_link(cluster, call.op, group)) return link->seconds(bytes);
  // If nodes hold different numbers of the group's ranks, the fullest node determines the time.
  const double beside = std::ceil(double(ranks) / double(groups));
  double inside = sent_share(call.op, beside) * bytes / cluster.node.bandwidth;
  double outside = sent_share(call.op, double(groups)) * bytes / cluster.network.bandwidth;
  // The links of all ranks of a node share its outgoing traffic. In an all-to-all, each rank sends
  // its own data.
  if (!comm::is_all_to_all(call.op)) outside /= beside;
  return collective_latency(cluster, group) + std::max(inside, outside);
}

double collective_latency(const Cluster& cluster, const GroupSpread& group) {
  const int64_t beside = (group.ranks + group.nodes - 1) / group.nodes;
  double latency = 0;
  if (beside > 1) latency += steps_among(beside) * cluster.node.latency_s;
  if (group.nodes > 1) latency += steps_among(group.nodes) * cluster.network.latency_s;
  return latency;
}

double steps_among(int64_t ranks) {
  return std::min(double(ranks - 1), 2 * std::ceil(std::log2(double(ranks))));
}

double message_seconds(const Cluster& cluster, int64_t bytes, int sender, int receiver) {
  const std::array<int, 2> ends{sender, receiver};
  const ClusterLink& link = cluster.is_one_node(ends) ? cluster.node : cluster.network;
  return link.latency_s + double(bytes) / link.bandwidth;
}

double attention_seconds(const Cluster& cluster, double scores, double head_size, DType operands,
                         bool is_backward) {
  const auto kernel = [&](double flops, double bytes) {
    return kernel_seconds(cluster, {.flops = flops, .read_bytes = bytes}, operands,
                          KernelKind::kOther);
  };
  const double product = kernel(2 * scores * head_size, 2 * scores);
  const double dropout = kernel(0, 5 * scores);
  const double forward = 2 * product + kernel(0, 4 * scores) + dropout;
  if (!is_backward) return forward;
  const double again = cluster.scores == Cluster::Scores::kAgain ? forward : 0;
  return 4 * product + kernel(0, 6 * scores) + dropout + again;
}

double kernel_seconds(const Cluster& cluster, const kernels::Cost& cost, DType operands,
                      KernelKind kind) {
  const double traffic = cost.bytes();
  const double memory = traffic == 0
                            ? 0
                            : traffic / (cluster.memory_bandwidth * cluster.bandwidth_share *
                                         share_of(kTraffic, traffic));
  double share = cluster.product_share;
  if (kind == KernelKind::kAttention) share = cluster.attention_share;
  if (kind == KernelKind::kAttentionGrad) share = cluster.attention_grad_share;
  const double compute =
      cost.flops == 0
          ? 0
          : cost.flops / (cluster.flops(operands) * share * share_of(kProducts, cost.flops));
  return cluster.launch_s + std::max(memory, compute);
}

}  // namespace shale::models
