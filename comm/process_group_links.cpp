// Links of a group: checks that all ranks agree before a backend makes them.
#include <algorithm>

#include "shale/base/error.h"
#include "shale/comm/process_group.h"

namespace shale::comm {
namespace {

std::string describe(const LinkSpec& spec) {
  return cat("link ", spec.sender, " -> ", spec.receiver, ", ", direction_name(spec.direction),
             " of chunk ", spec.chunk);
}

bool same_ends(const LinkSpec& a, const LinkSpec& b) {
  return a.sender == b.sender && a.receiver == b.receiver && a.direction == b.direction &&
         a.chunk == b.chunk;
}

void check_spec(const LinkSpec& spec, int ranks) {
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < ranks; };
  std::string problem;
  if (!is_rank(spec.sender) || !is_rank(spec.receiver)) {
    problem = cat("expected ranks from 0 to ", ranks - 1);
  } else if (spec.sender == spec.receiver) {
    problem = "expected two different ranks";
  } else if (spec.slots < 1 || spec.slots > 1024) {
    problem = cat("slots is ", spec.slots, ", expected 1 to 1024");
  } else if (spec.capacity_bytes < 0) {
    problem = cat("capacity_bytes: expected 0 or more, found ", spec.capacity_bytes);
  }
  if (!problem.empty()) throw ConfigError(cat("make_links: ", describe(spec), ": ", problem));
}

std::string text_of(std::span<const LinkSpec> specs) {
  std::string text;
  for (const LinkSpec& spec : specs) {
    text +=
        cat("\n  ", describe(spec), ", ", spec.slots, " slots of ", spec.capacity_bytes, " bytes");
  }
  return text;
}

}  // namespace

std::vector<std::unique_ptr<PipeLink>> ProcessGroup::make_links(std::span<const LinkSpec> specs) {
  for (const LinkSpec& spec : specs) {
    check_spec(spec, size());
    const auto same = [&](const LinkSpec& other) { return same_ends(spec, other); };
    if (std::count_if(specs.begin(), specs.end(), same) == 1) continue;
    throw ConfigError(cat("make_links: ", describe(spec), ": the link was given twice"));
  }
  const std::string mine = text_of(specs);
  int64_t odd = host().broadcast_bytes(mine, 0, "links") == mine ? -1 : rank();
  host().all_reduce_max(make_view(&odd, {1}), {.tag = "links"});
  if (odd >= 0) {
    throw CommError(cat("make_links: ranks disagree: expected the links of rank 0, but rank ", odd,
                        " of group '", options().name,
                        "' has other links; the links of this rank are", mine));
  }
  auto links = open_links(specs);
  for (const auto& link : links) {
    if (link != nullptr) link->account(meter());
  }
  return links;
}

std::vector<std::unique_ptr<PipeLink>> ProcessGroup::open_links(std::span<const LinkSpec> specs) {
  if (specs.empty()) return {};
  throw UnavailableError(cat("make_links: group '", options().name, "': backend ", backend(),
                             " has no point-to-point links"));
}

}  // namespace shale::comm
