#include "shale/models/plan/time/fitted_links.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "shale/base/error.h"
#include "shale/base/json.h"

namespace shale::models {
namespace {

using enum comm::CollectiveOp;

constexpr double kLeast = 1e-6;  // smaller relative differences are rounding errors
constexpr std::array kOps{kAllReduceSum, kReduceScatterSum, kAllGather, kBroadcast,
                          kReduceSum,    kGather,           kAllToAll};
constexpr std::array kFields{"axis", "op", "ranks", "stride", "latency_us", "gbytes_per_s"};

comm::CollectiveOp op_of(const std::string& name) {
  for (const comm::CollectiveOp op : kOps) {
    if (comm::op_name(op) == name) return op;
  }
  throw ConfigError(cat("op is ", name, ", expected one of all_reduce_sum, reduce_scatter_sum, ",
                        "all_gather, broadcast, reduce_sum, gather, all_to_all"));
}

FittedLink link_of(const Json& entry) {
  for (const auto& [name, value] : entry.items()) {
    if (std::ranges::find(kFields, name) == kFields.end()) {
      throw ConfigError(cat("unknown field ", name));
    }
  }
  const FittedLink link{.axis = entry.contains("axis") ? entry["axis"].text() : "",
                        .op = op_of(entry["op"].text()),
                        .ranks = entry["ranks"].integer(),
                        .stride = entry["stride"].integer(),
                        .latency_s = entry["latency_us"].real() * kMicro,
                        .bandwidth = entry["gbytes_per_s"].real() * kGiga};
  // Limits of figures in the units of the file; the same as in cluster.cpp.
  constexpr double kLeastFigure = 1e-6, kMostFigure = 1e9;
  if (link.ranks > 1 && link.stride > 0 && link.latency_s >= 0 &&
      link.latency_s <= kMostFigure * kMicro && link.bandwidth >= kLeastFigure * kGiga &&
      link.bandwidth <= kMostFigure * kGiga) {
    return link;
  }
  throw ConfigError(
      "expected ranks of 2 or more, a stride of 1 or more, a latency of 0 to 1e9 and a bandwidth "
      "of "
      "1e-6 to 1e9");
}

// Returns the largest relative error of the model "latency + bytes * of_byte".
double worst_error(std::span<const MeasuredTime> times, double latency, double of_byte) {
  double worst = 0;
  for (const auto& [bytes, seconds] : times) {
    worst = std::max(worst, std::abs((latency + bytes * of_byte) / seconds - 1));
  }
  return worst;
}

}  // namespace

std::span<const comm::CollectiveOp> fitted_ops() {
  return kOps;
}

double fit(FittedLink& link, std::span<const MeasuredTime> times) {
  // Minimizes the sum of ((l + c x) / t - 1)^2 for latency l and seconds per byte c, given bytes x
  // and times t. With u = 1 / t and v = x / t, the solution satisfies l sum(uu) + c sum(uv) =
  // sum(u) and l sum(uv) + c sum(vv) = sum(v).
  double uu = 0, uv = 0, vv = 0, u_sum = 0, v_sum = 0;
  for (const auto& [bytes, seconds] : times) {
    const double u = 1 / seconds, v = bytes / seconds;
    uu += u * u;
    uv += u * v;
    vv += v * v;
    u_sum += u;
    v_sum += v;
  }
  const double determinant = uu * vv - uv * uv;
  double latency = (u_sum * vv - v_sum * uv) / determinant;
  double of_byte = (v_sum * uu - u_sum * uv) / determinant;
  if (latency < 0) {
    latency = 0;
    of_byte = v_sum / vv;
  }
  // If all sizes or all times are equal, only rounding errors determine the fit.
  const bool has_sizes = determinant > kLeast * uu * vv;
  if (!has_sizes || !(of_byte * times.back().bytes > kLeast * times.back().seconds)) {
    throw ConfigError(cat("links: ", comm::op_name(link.op), " of ", link.axis,
                          ": the larger message was not slower, so no bandwidth can be fitted; "
                          "measure larger messages"));
  }
  link.latency_s = latency;
  link.bandwidth = 1 / of_byte;
  return worst_error(times, latency, of_byte);
}

std::vector<FittedLink> read_links(const Json& list, const std::string& source) {
  std::vector<FittedLink> links;
  try {
    if (!list.is_array()) throw ConfigError("expected a list");
    for (const Json& entry : list) links.push_back(link_of(entry));
  } catch (const Error& error) {
    throw ConfigError(cat(source, ": links[", links.size(), "]: ", error.what()));
  }
  return links;
}

Json to_json(std::span<const FittedLink> links) {
  Json list = Json::array();
  for (const FittedLink& link : links) {
    list.push_back({{"axis", link.axis},
                    {"op", comm::op_name(link.op)},
                    {"ranks", link.ranks},
                    {"stride", link.stride},
                    {"latency_us", link.latency_s / kMicro},
                    {"gbytes_per_s", link.bandwidth / kGiga}});
  }
  return list;
}

}  // namespace shale::models
