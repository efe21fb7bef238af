#include "shale/comm/parallel/expert/expert_parallel.h"

#include "shale/base/error.h"
#include "shale/base/rng.h"
#include "shale/comm/same_on_all.h"

namespace shale::comm {
namespace {

// ExpertExchange over the ranks of a process group, in rank order.
class GroupExperts : public ExpertExchange {
 public:
  explicit GroupExperts(ProcessGroup& group)
      : ExpertExchange(group.size(), group.rank()), group_(group) {}

  std::vector<int32_t> gather(const std::vector<int32_t>& mine) override {
    const auto count = static_cast<int64_t>(mine.size());
    std::vector<int32_t> own = mine, all(mine.size() * static_cast<size_t>(group_.size()));
    group_.host().all_gather(make_view(own.data(), {count}),
                             make_view(all.data(), {std::ssize(all)}),
                             {.tag = "rows of experts", .traffic = Traffic::kActivations});
    return all;
  }

  void all_to_all(const Tensor& in, const std::vector<int64_t>& to, const Tensor& out,
                  const std::vector<int64_t>& from) override {
    const auto elements = [width = in.size(1)](std::vector<int64_t> rows) {
      for (int64_t& count : rows) count *= width;
      return rows;
    };
    group_.all_to_all_v(
        in, elements(to), out, elements(from),
        {.tag = "rows of experts", .stream = in.exec().stream, .traffic = Traffic::kActivations});
  }

 private:
  ProcessGroup& group_;
};

}  // namespace

int64_t number_of_experts(Module& model) {
  for (const Parameter* parameter : model.parameters()) {
    if (parameter->split.by_expert) return parameter->whole[0];
  }
  return 1;
}

std::unique_ptr<ExpertExchange> expert_parallel(Module& model, ProcessGroup& group) {
  const Sharding sharding{
      .share = Share::kShard, .ranks = group.size(), .rank = group.rank(), .is_of_experts = true};
  std::vector<Parameter*> experts;
  std::string text;
  for (Parameter* parameter : model.parameters()) {
    if (!parameter->split.by_expert) continue;
    check_sharding(parameter->full_name(), parameter->whole, sharding);
    experts.push_back(parameter);
    text += cat(" ", parameter->full_name(), parameter->whole);
  }
  if (experts.empty()) {
    throw ConfigError(cat("experts: the model has no MoE layers to distribute over ", group.size(),
                          " ranks; use a model with MoE layers, or no expert parallelism"));
  }
  require_same_on_all(group, "expert parallelism", cat("experts ", hash_name(text)));
  for (Parameter* parameter : experts) parameter->shard(sharding);
  return std::make_unique<GroupExperts>(group);
}

}  // namespace shale::comm
