#include "shale/comm/parallel/context/context_parallel.h"

#include <bit>
#include <numeric>

#include "shale/base/error.h"
#include "shale/comm/parallel/tensor/group_exchange.h"
#include "shale/comm/same_on_all.h"

namespace shale::comm {
namespace {

void make_groups(nn::CutSequence& sequence, ProcessGroup& group, const ContextOptions& options) {
  const int64_t most = std::gcd(options.key_heads, int64_t{group.size()});
  const int size = options.group > 0 ? options.group : static_cast<int>(most);
  if (most % size != 0) {
    throw ConfigError(cat("context: ", group.size(), " ranks in groups of ", size,
                          " that trade ", options.key_heads, " heads of keys, want a divisor of ",
                          most, " (--context-group)"));
  }
  const int rank = group.rank(), leaves = sequence.parts().leaves;
  const auto exchange = [&](int color, const char* name, int of_leaves) {
    auto made = std::make_unique<GroupExchange>(group.split(color, rank, name), of_leaves,
                                                "context");
    made->set_overlap(options.overlap);
    return made;
  };
  auto heads = exchange(rank / size, "tokens of groups", size);
  sequence.set_groups(std::move(heads), exchange(rank % size, "ring of groups", leaves));
}

}  // namespace

std::unique_ptr<nn::CutSequence> context_parallel(Module& model, ProcessGroup& group,
                                                  const ContextOptions& options) {
  const int leaves = options.leaves > 0 ? options.leaves : group.size();
  const bool fits = leaves % group.size() == 0 &&
                    (options.leaves == 0 || std::has_single_bit(static_cast<unsigned>(leaves)));
  if (!fits) {
    throw ConfigError(cat("context: ", leaves, " leaves over ", group.size(),
                          " ranks, want a power of two that the ranks divide"));
  }
  if (options.tokens < 2 * leaves) {
    throw ConfigError(cat("context: sequences of ", options.tokens, " tokens in ", leaves,
                          " parts, want at least ", 2 * leaves, ", two chunks for each"));
  }
  require_same_on_all(group, "context parallelism",
                      cat(leaves, " leaves of sequences of ", options.tokens, " tokens, in ",
                          options.slices, " slices, kind ", static_cast<int>(options.kind),
                          " in groups of ", options.group));
  auto exchange = std::make_unique<GroupExchange>(group, leaves, "context");
  exchange->set_overlap(options.overlap);
  auto sequence = std::make_unique<nn::CutSequence>(std::move(exchange), options.tokens,
                                                    options.kind, options.slices);
  if (options.kind == nn::ContextKind::kUlyssesRing) make_groups(*sequence, group, options);
  const auto parts = static_cast<size_t>(sequence->parts().count);
  if (parts > 1) {
    for (Parameter* parameter : model.parameters()) parameter->split_rows(parts);
    if (model.exchange() != nullptr) model.exchange()->set_row_parts(sequence->parts().count);
  }
  model.set_sequence(sequence.get());
  return sequence;
}

}  // namespace shale::comm
