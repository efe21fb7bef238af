#include "shale/comm/parallel/parallel.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/parallel/expert/expert_parallel.h"
#include "shale/comm/parallel/tensor/tensor_parallel.h"
#include "shale/comm/same_on_all.h"
#include "shale/runtime/ops/shape.h"

namespace shale::comm {
namespace {

Degrees filled(Degrees degrees, int processes) {
  for (const auto& [name, size, here] :
       {std::tuple("replica", degrees.replica, 1), std::tuple("pipeline", degrees.pipeline, 1),
        std::tuple("expert", degrees.expert, 1),
        std::tuple("context", degrees.context, degrees.context_here),
        std::tuple("tensor", degrees.tensor, degrees.tensor_here)}) {
    if (size < 1) throw ConfigError(cat("parallel: ", name, " ", size, ", expected 1 or more"));
    // Sums over mesh ranks are binary trees, and each process must have whole subtrees.
    if (here >= 1 && size % here == 0 && std::has_single_bit(static_cast<unsigned>(here))) continue;
    throw ConfigError(cat("parallel: a process has ", here, " of ", size, " ranks of the axis ",
                          name, ", expected a divisor that is a power of two"));
  }
  const int64_t others = degrees.model_processes() * degrees.replica;
  if (degrees.shard == 0 && processes % others == 0) {
    degrees.shard = static_cast<int>(processes / others);
  }
  if (degrees.shard * others != processes) {
    throw ConfigError(cat("parallel: replica ", degrees.replica, ", pipeline ", degrees.pipeline,
                          ", shard ", degrees.shard, ", context ", degrees.context, " and tensor ",
                          degrees.tensor, " do not fit ", processes, " processes with ",
                          degrees.here(), " mesh ranks each; use degrees whose product is ",
                          int64_t{processes} * degrees.here()));
  }
  if (degrees.expert > 1 && degrees.here() > 1) {
    throw ConfigError(cat("parallel: expert ", degrees.expert, " with ", degrees.here(),
                          " mesh ranks per process: rounding in experts would depend on the number "
                          "of ranks; use one mesh rank per process"));
  }
  const int stage = processes / degrees.replica / degrees.pipeline;
  if (stage % degrees.expert == 0) return degrees;
  throw ConfigError(cat("parallel: expert is ", degrees.expert, ", expected a divisor of ", stage,
                        ", the product of shard, context and tensor"));
}

std::shared_ptr<ProcessGroup> for_layers(ProcessGroup& group, const char* name) {
  return group.split(0, group.rank(), name, Lane::kModel);
}

}  // namespace

// Sums over tensor and context ranks are binary trees, and a process has whole subtrees. Tensor
// ranks are put into one process first, because they share rows.
Degrees fit_degrees(const Degrees& wanted, int processes) {
  // Parallel's constructor refuses these values with an error that names them.
  if (std::min({wanted.replica, wanted.pipeline, wanted.context, wanted.tensor}) < 1) return wanted;
  Degrees fit = wanted;
  fit.pipeline = std::gcd(wanted.pipeline, processes);
  const int stage = processes / fit.pipeline;
  const int64_t ranks = int64_t{wanted.tensor} * wanted.context;
  const auto of_layers = static_cast<int>(std::gcd(ranks, int64_t{stage}));
  const int64_t here = ranks / of_layers;
  fit.tensor_here = static_cast<int>(std::gcd(here, int64_t{wanted.tensor}));
  fit.context_here = static_cast<int>(here / fit.tensor_here);
  const int data = stage / of_layers;
  fit.replica = std::gcd(wanted.replica, data);
  fit.shard = data / fit.replica;
  const bool is_whole =
      std::has_single_bit(static_cast<uint64_t>(here)) && wanted.context % fit.context_here == 0;
  const bool shards_fit = wanted.shard == 0 || fit.shard <= wanted.shard;
  if (is_whole && shards_fit) return fit;
  throw ConfigError(cat("parallel: replica ", wanted.replica, ", pipeline ", wanted.pipeline,
                        ", shard ", wanted.shard, ", context ", wanted.context, " and tensor ",
                        wanted.tensor, " do not fit ", processes,
                        " processes; expected as many processes as their product, or fewer if "
                        "each then runs 2, 4, 8, ... context and tensor ranks"));
}

ParallelSizes process_sizes(const Degrees& degrees) {
  return {.replica = degrees.replica,
          .pipeline = degrees.pipeline,
          .shard = degrees.shard,
          .context = degrees.context / degrees.context_here,
          .tensor = degrees.tensor / degrees.tensor_here};
}

Parallel::Parallel(ProcessGroup& all, Context& context, const Degrees& degrees,
                   const ParallelOptions& options)
    : context_(context),
      degrees_(filled(degrees, all.size())),
      options_(options),
      rank_(all.rank()),
      mesh_(all, parallel_axes(process_sizes(degrees_), all.size())),
      hosted_(context, degrees_.here()) {
  // Context ranks have gradients of different tokens; like data-parallel ranks, they shard states.
  groups_.shard = &mesh_.flatten({"shard", "context"});
  groups_.context = degrees_.context;
  if (degrees_.replica > 1) groups_.replicate = &mesh_.group("replica");
  if (options_.reshard > 0) {
    if (groups_.shard->size() % options_.reshard != 0) {
      throw ConfigError(cat("parallel: reshard is ", options_.reshard,
                            ", expected a divisor of the ", groups_.shard->size(),
                            " ranks of shard and context"));
    }
    reshard_ = std::make_unique<Mesh>(
        *groups_.shard, std::vector<MeshAxis>{{"outer", 0}, {"inner", options_.reshard}});
    groups_.reshard = &reshard_->group("inner");
  }
  const auto add_layers = [&](std::shared_ptr<ProcessGroup>& group, ProcessGroup& of,
                              const char* name) {
    group = for_layers(of, name);
    groups_.layers.push_back(group.get());
  };
  if (degrees_.expert > 1) {
    ProcessGroup& stage =
        degrees_.tensor > 1 ? mesh_.flatten({"shard", "context", "tensor"}) : *groups_.shard;
    expert_ = std::make_unique<Mesh>(
        stage, std::vector<MeshAxis>{{"same", 0}, {"expert", degrees_.expert}});
    groups_.expert_shard = &expert_->group("same");
    groups_.experts = &expert_->group("expert");
    add_layers(rows_, *groups_.experts, "rows");
  }
  if (degrees_.tensor > 1) {
    groups_.tensor = &mesh_.group("tensor");
    if (options_.joins_matrices && groups_.tensor->size() > 1) {
      groups_.shard_and_tensor = &mesh_.flatten({"shard", "context", "tensor"});
    }
    add_layers(layers_, *groups_.tensor, "layers");
  }
}

Parallel::~Parallel() = default;

void Parallel::cut(const std::vector<Module*>& models, const ModelPlan& plan) {
  tokens_of_sequences_ = plan.tokens;
  if (degrees_.expert > 1) experts_ = expert_parallel(*models.front(), *rows_);
  if (degrees_.tensor > 1) cut_layers(models, plan);
  cut_sequences(models, plan);
  for (size_t rank = 0; rank < models.size(); ++rank) {
    distributions_.push_back(std::make_unique<MeshDistribution>(
        tensor_.empty() ? nullptr : tensor_[rank].get(),
        sequences_.empty() ? nullptr : sequences_[rank].get(), experts_.get()));
    models[rank]->set_distribution(distributions_.back().get());
  }
  if (hosted_.count() == 1) return;
  models_ = std::make_unique<HostedModels>(hosted_, models, degrees_.tensor_here);
  groups_.hosted = models_.get();
}

void Parallel::cut_layers(const std::vector<Module*>& models, const ModelPlan& plan) {
  const MeshLine::Options options{.name = "tensor", .overlap = options_.overlap};
  for (int context = 0; context < degrees_.context_here; ++context) {
    const auto line = std::make_shared<MeshLine>(layers_, &hosted_, degrees_.tensor_here, options);
    for (int member = 0; member < degrees_.tensor_here; ++member) {
      tensor_.push_back(std::make_unique<HostedExchange>(line, member));
      tensor_.back()->set_row_pieces(options_.row_pieces);
      if (plan.has_whole_samples) tensor_.back()->set_whole_samples();
      tensor_parallel(*models[tensor_.size() - 1], *layers_, *tensor_.back());
    }
  }
}

SequenceParts Parallel::sequence_parts() const {
  return {.shards = degrees_.context,
          .first = mesh_.layout().coordinate("context", rank_) * degrees_.context_here,
          .count = degrees_.context_here,
          .slices = degrees_.tensor};
}

Tensor Parallel::own_rows(const Tensor& field) const {
  if (!field.defined() || degrees_.context_here == 1 || hosted_.current() < 0) return field;
  const int64_t rows = field.size(0) / degrees_.context_here;
  const int64_t part = hosted_.current() / degrees_.tensor_here;
  return slice(field, 0, part * rows, (part + 1) * rows);
}

int Parallel::data_rank() const {
  return mesh_.coordinate("replica") * degrees_.shard + mesh_.coordinate("shard");
}

int64_t Parallel::own_tokens() const {
  const int64_t tokens = tokens_of_sequences_;
  return cuts_sequences() ? 2 * sequence_parts().chunk_tokens(tokens) : tokens;
}

Tensor Parallel::own_part(std::span<const int32_t> tokens, int64_t sequences,
                          int32_t padding) const {
  const int64_t whole = sequences > 0 ? std::ssize(tokens) / sequences : 0;
  const bool has_length = !cuts_sequences() || whole == tokens_of_sequences_;
  if (whole * sequences != std::ssize(tokens) || !has_length) {
    throw ShapeError(cat("own_part: ", tokens.size(), " tokens in ", sequences,
                         " sequences, expected ", tokens_of_sequences_,
                         " tokens in each sequence"));
  }
  if (!cuts_sequences()) return from_host<int32_t>(context_, tokens, {sequences, whole});
  const SequenceParts parts = sequence_parts();
  const int shard = parts.first + std::max(hosted_.current(), 0) / degrees_.tensor_here;
  const int64_t chunk = parts.chunk_tokens(whole);
  std::vector<int32_t> own(static_cast<size_t>(sequences * 2 * chunk));
  int32_t* next = own.data();
  for (int64_t row = 0; row < sequences; ++row) {
    const auto sequence = tokens.subspan(size_t(row * whole), size_t(whole));
    next = parts.copy_shard(sequence, shard, padding, next);
  }
  return from_host<int32_t>(context_, own, {sequences, 2 * chunk});
}

// Shards sequences over the context ranks. With one context rank, pads sequences that cannot be
// divided evenly over the tensor ranks.
void Parallel::cut_sequences(const std::vector<Module*>& models, const ModelPlan& plan) {
  const SequenceParts parts = sequence_parts();
  if (degrees_.context == 1 && plan.tokens % parts.slices == 0) return;
  check_sequences(*models.front(), plan.tokens);
  tokens_ = for_layers(mesh_.group("context"), "tokens");
  groups_.layers.push_back(tokens_.get());
  require_same_on_all(*tokens_, "context parallelism",
                      cat(parts.shards, " parts of sequences of ", plan.tokens, " tokens, in ",
                          parts.slices, " slices, kind ", static_cast<int>(options_.context_kind),
                          " in groups of ", options_.context_group));
  const SequenceLines lines = sequence_lines(plan.key_heads);
  for (size_t rank = 0; rank < models.size(); ++rank) {
    const auto exchange = [&](const std::vector<Place>& places) {
      return std::make_unique<HostedExchange>(places[rank].line, places[rank].member);
    };
    sequences_.push_back(std::make_unique<CutSequence>(exchange(lines.all), plan.tokens,
                                                       options_.context_kind, parts.slices));
    if (!lines.ring.empty()) {
      sequences_.back()->set_groups(exchange(lines.heads), exchange(lines.ring));
    }
  }
}

void Parallel::check_sequences(Module& model, int64_t tokens) const {
  const SequenceParts parts = sequence_parts();
  if (tokens == 0) {
    throw ConfigError(cat("parallel: context ", degrees_.context,
                          ", but the model does not support context parallelism; use context 1"));
  }
  if (tokens < 2 * parts.shards) {
    throw ConfigError(cat("parallel: context ", parts.shards, " with sequences of ", tokens,
                          " tokens, expected at least ", 2 * parts.shards,
                          " tokens, two for each rank"));
  }
  const int64_t padded = parts.chunk_tokens(tokens) * parts.chunks();
  if (padded == tokens || number_of_experts(model) == 1) return;
  throw ConfigError(
      cat("parallel: sequences of ", tokens, " tokens need padding to fit ", parts.chunks(),
          " chunks and ", parts.slices,
          " tensor slices, but MoE routers would count the padding; expected a multiple of ",
          parts.chunk_tokens(1) * parts.chunks(), " tokens"));
}

// Makes the MeshLines of each mesh rank in this process along the context axis. `all` has all
// context ranks. For kUlyssesRing, `heads` has the neighbouring ranks that exchange tokens for
// heads, and `ring` the ranks with the same number in every such group.
Parallel::SequenceLines Parallel::sequence_lines(int64_t key_heads) {
  const int here = degrees_.context_here;
  SequenceLines lines;
  const auto line = [&](std::shared_ptr<ProcessGroup> group, int members) {
    return std::make_shared<MeshLine>(
        std::move(group), &hosted_, members,
        MeshLine::Options{.name = "context", .overlap = options_.overlap});
  };
  // Makes lines with `members` members per process, and adds each mesh rank's position in them to
  // `places`. Each tensor rank has its own lines.
  const auto add = [&](std::vector<Place>& places, const std::shared_ptr<ProcessGroup>& group,
                       int members, const auto& number_of, const auto& member_of) {
    places.resize(static_cast<size_t>(hosted_.count()));
    std::map<std::pair<int, int>, std::shared_ptr<MeshLine>> made;
    for (int rank = 0; rank < hosted_.count(); ++rank) {
      const int context = rank / degrees_.tensor_here, tensor = rank % degrees_.tensor_here;
      std::shared_ptr<MeshLine>& of = made[{tensor, number_of(context)}];
      if (of == nullptr) of = line(group, members);
      places[static_cast<size_t>(rank)] = {of, member_of(context)};
    }
  };
  const auto first = [](int) { return 0; };
  add(lines.all, tokens_, here, first, [](int context) { return context; });
  if (options_.context_kind != ContextKind::kUlyssesRing) return lines;

  const int size = context_group(key_heads);
  const auto split = [&](const char* name, const auto& color_of) -> std::shared_ptr<ProcessGroup> {
    std::vector<int> colors(static_cast<size_t>(tokens_->size()));
    for (int process = 0; process < tokens_->size(); ++process) {
      colors[static_cast<size_t>(process)] = color_of(process);
    }
    return tokens_->split(colors, name);
  };
  if (here % size == 0) {
    const auto group = [size](int context) { return context / size; };
    const auto place = [size](int context) { return context % size; };
    const auto alone = split("tokens of groups", [](int process) { return process; });
    add(lines.heads, alone, size, group, place);
    add(lines.ring, tokens_, here / size, place, group);
  } else {
    const int processes = size / here;  // number of processes per group of ranks
    const auto itself = [](int context) { return context; };
    const auto near = split("tokens of groups", [&](int process) { return process / processes; });
    const auto ring = split("ring of groups", [&](int process) { return process % processes; });
    add(lines.heads, near, here, first, itself);
    add(lines.ring, ring, 1, itself, first);
  }
  return lines;
}

int Parallel::context_group(int64_t key_heads) const {
  const int64_t most = std::gcd(key_heads / degrees_.tensor, int64_t{degrees_.context});
  const int size = options_.context_group > 0 ? options_.context_group : static_cast<int>(most);
  const int here = degrees_.context_here;
  if (most % size == 0 && (here % size == 0 || size % here == 0)) return size;
  throw ConfigError(
      cat("parallel: context ", degrees_.context, " in groups of ", size, " ranks that exchange ",
          key_heads / degrees_.tensor, " key heads, expected a group size that divides ", most,
          here > 1 ? cat(", and is a divisor or multiple of the ", here, " mesh ranks of a process")
                   : std::string()));
}

void Parallel::stage(std::span<const nn::Piece> pieces, const StagePlan& plan, bool shards_states) {
  ProcessGroup& pipeline = mesh_.group("pipeline");
  ProcessGroup& whole = shards_states || degrees_.expert > 1
                            ? mesh_.flatten({"pipeline", "shard", "context"})
                            : pipeline;
  stages_ = std::make_unique<StageGroups>(pipeline, whole, pieces, plan);
  if (models_ != nullptr) stages_->add_models(models_->models());
  groups_.stages = &stages_->stages();
}

}  // namespace shale::comm
