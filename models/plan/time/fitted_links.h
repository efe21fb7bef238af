#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/base/json.h"
#include "shale/comm/collective.h"

namespace shale::models {

// What an operation takes the groups of an axis, all of which run it at the same time, as measured
// by `bench_collectives --axes`: a latency, and the bytes of the whole buffer at a bandwidth.
struct FittedLink {
  std::string axis;  // of the mesh, for people
  comm::CollectiveOp op = comm::CollectiveOp::kAllReduceSum;
  int64_t ranks = 0, stride = 0;  // of a group: how many, and how far apart among all
  double latency_s = 0;
  double bandwidth = 0;  // bytes/s

  double seconds(double bytes) const { return latency_s + bytes / bandwidth; }
};

// Operations that are fitted; all-to-alls with lengths of their own go by those without.
std::span<const comm::CollectiveOp> fitted_ops();

struct MeasuredTime {
  double bytes = 0, seconds = 0;
};
// By times of sizes that grow: sets latency and bandwidth so that the relative errors' squares add
// up to least, without a negative latency. Returns the largest relative error. Throws ConfigError
// unless there are two sizes at least, and the longer takes longer.
double fit(FittedLink& link, std::span<const MeasuredTime> times);

// Of the field `links` of a cluster's file: a list of objects. Throws ConfigError, naming `source`,
// for what is none.
std::vector<FittedLink> read_links(const Json& list, const std::string& source);
Json to_json(std::span<const FittedLink> links);

}  // namespace shale::models
