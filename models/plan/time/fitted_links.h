#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/base/json.h"
#include "shale/comm/collective.h"

namespace shale::models {

inline constexpr double kMicro = 1e-6, kGiga = 1e9;

// Fitted duration of an operation while all groups of a mesh axis run it at the same time, as
// measured by `bench_collectives --axes`: a latency plus the whole buffer's bytes over a bandwidth.
struct FittedLink {
  std::string axis;  // mesh axis of the groups; for display only
  comm::CollectiveOp op = comm::CollectiveOp::kAllReduceSum;
  int64_t ranks = 0, stride = 0;  // group size, and distance between members in the world
  double latency_s = 0;
  double bandwidth = 0;  // bytes/s

  double seconds(double bytes) const { return latency_s + bytes / bandwidth; }
};

// Operations that can be fitted; all-to-alls with variable counts use the fit of the plain
// all-to-all.
std::span<const comm::CollectiveOp> fitted_ops();

struct MeasuredTime {
  double bytes = 0, seconds = 0;
};
// Fits latency and bandwidth to times of increasing sizes: minimizes the sum of squared relative
// errors, with a latency of at least 0. Returns the largest relative error. Throws ConfigError
// unless there are at least two sizes and the larger ones take longer.
double fit(FittedLink& link, std::span<const MeasuredTime> times);

// Reads the field `links` of a cluster file: a list of objects. Throws ConfigError, naming
// `source`, for anything else.
std::vector<FittedLink> read_links(const Json& list, const std::string& source);
Json to_json(std::span<const FittedLink> links);

}  // namespace shale::models
