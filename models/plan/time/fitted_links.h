#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/base/json.h"
#include "shale/comm/collective.h"

namespace shale::models {

inline constexpr double kMicro = 1e-6, kGiga = 1e9;

// Fitted duration of an operation: a latency, plus the bytes of the whole buffer divided by a
// bandwidth. `bench_collectives --axes` measures it while all groups of a mesh axis run the
// operation.
struct FittedLink {
  std::string axis;  // mesh axis of the groups; for display only
  comm::CollectiveOp op = comm::CollectiveOp::kAllReduceSum;
  int64_t ranks = 0, stride = 0;  // group size; distance between its members in the world
  double latency_s = 0;
  double bandwidth = 0;  // bytes/s

  double seconds(double bytes) const { return latency_s + bytes / bandwidth; }
};

// Returns the operations that can be fitted. All-to-alls with variable counts use the fit of the
// all-to-all with equal counts.
std::span<const comm::CollectiveOp> fitted_ops();

struct MeasuredTime {
  double bytes = 0, seconds = 0;
};
// Fits latency and bandwidth to times of increasing sizes. Minimizes the sum of squared relative
// errors; the latency is at least 0. Returns the largest relative error. Throws ConfigError unless
// there are at least two sizes and larger sizes take longer.
double fit(FittedLink& link, std::span<const MeasuredTime> times);

// Reads the field `links` of a cluster file, a list of objects. Throws ConfigError, which names
// `source`, if it is malformed.
std::vector<FittedLink> read_links(const Json& list, const std::string& source);
Json to_json(std::span<const FittedLink> links);

}  // namespace shale::models
