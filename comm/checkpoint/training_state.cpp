#include "shale/comm/checkpoint/training_state.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/problems.h"
#include "shale/comm/checkpoint/replica_states.h"
#include "shale/comm/parallel/data/flat_layout.h"
#include "shale/comm/parallel/data/local_steps.h"

namespace shale::comm {
namespace {

// Parts on a device are read through host memory, in pieces of kPieceBytes. About kStagedBytes of
// pieces are in that memory at once.
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kStagedBytes = int64_t{64} << 20;

// Index of the element at which a part is split so that at least `bytes` of its bytes come before
// it. It is a multiple of kFlatAlignment or the end of the part.
int64_t boundary(const StatePart& part, int64_t bytes) {
  const int64_t size = dtype_size(part.values.dtype());
  const int64_t unit = size * kFlatAlignment;
  const int64_t units = (std::max<int64_t>(bytes, 0) + unit - 1) / unit;
  return std::min(units * kFlatAlignment, part.count());
}

// Describes how a stored tensor differs from a part: "[2,3], expected [3,3]". Empty if it does not.
std::string difference(const CheckpointTensor& stored, const StatePart& part) {
  if (stored_replicas(stored, part) > 0) return {};
  if (!std::equal(stored.shape.begin(), stored.shape.end(), part.shape.begin(), part.shape.end())) {
    std::string found;  // built by hand, because it may have more dimensions than a Shape
    for (const int64_t size : stored.shape) found += cat(found.empty() ? "" : ",", size);
    return cat("[", found, "], expected ", part.shape);
  }
  if (stored.dtype != part.values.dtype()) {
    return cat(dtype_name(stored.dtype), ", expected ", dtype_name(part.values.dtype()));
  }
  return {};
}

// Lists the first few names, and how many more there are.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) list += cat(" ", names[i]);
  return names.size() > kShown ? cat(list, " and ", names.size() - kShown, " more") : list;
}

// Names of the parts of all pipeline stages.
std::set<std::string, std::less<>> names_of(const std::vector<StatePart>& parts,
                                            const PipelineStages* stages) {
  std::set<std::string, std::less<>> names;
  for (const StatePart& part : parts) names.insert(part.name);
  if (stages == nullptr) return names;
  constexpr char kEnd = '\0';
  std::string mine;
  for (const std::string& name : names) mine += name + kEnd;
  for (const std::string& all : stages->group->all_gather_bytes(mine, "names of states")) {
    size_t end = 0;
    for (size_t begin = 0; (end = all.find(kEnd, begin)) != all.npos; begin = end + 1) {
      names.insert(all.substr(begin, end - begin));
    }
  }
  return names;
}

void check_inventory(const CheckpointReader& checkpoint, const std::vector<StatePart>& parts,
                     const PipelineStages* stages) {
  std::vector<std::string> missing, extra, different;
  const std::set<std::string, std::less<>> wanted = names_of(parts, stages);
  for (const StatePart& part : parts) {
    const CheckpointTensor* stored = checkpoint.find(part.name);
    if (stored == nullptr) {
      missing.push_back(part.name);
    } else if (const std::string what = difference(*stored, part); !what.empty()) {
      different.push_back(cat(part.name, " (", what, ")"));
    }
  }
  for (const auto& [name, stored] : checkpoint.manifest().tensors) {
    if (!wanted.contains(name)) extra.push_back(name);
  }
  std::string problem;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) problem += cat(problem.empty() ? "" : ";", " ", what, listed(names));
  };
  add("without", missing);
  add("unexpected:", extra);
  add("different:", different);
  if (problem.empty()) return;
  throw DataError(cat(checkpoint.path(), ": tensors differ from model and optimizer:", problem));
}

// Destination of a read: a whole part in host memory, or a piece of a part on a device.
struct Target {
  CheckpointReader::Place place;
  const StatePart* part = nullptr;
  int64_t begin = 0;  // index of the first element in the part
  Tensor to;

  // True: reads go directly to `to`. False: they go through host memory.
  bool is_host() const { return to.context().device().type == DeviceType::kCpu; }
};

// Describes elements [begin, begin + count) of a part for the checkpoint.
TensorPart stored_part(const StatePart& part, int64_t begin, int64_t count) {
  return {.tensor = part.name,
          .dtype = part.values.dtype(),
          .shape = {part.shape.begin(), part.shape.end()},
          .box = part.box,
          .first = part.first + begin,
          .count = count};
}

// Index in the whole tensor of element `element` of a part.
int64_t index_of(const StatePart& part, int64_t element) {
  int64_t index = 0;
  for_each_run(stored_part(part, element, 1), 0, part.shape.numel(),
               [&](const TensorRun& run) { index = run.in_tensor; });
  return index;
}

// Splits the parts into targets, sorted by their location in the files.
std::vector<Target> targets_of(CheckpointReader& checkpoint, const std::vector<StatePart>& parts) {
  std::vector<Target> targets;
  for (const StatePart& part : parts) {
    const bool is_host = part.values.context().device().type == DeviceType::kCpu;
    const int64_t step = is_host ? part.count() : kPieceBytes / dtype_size(part.values.dtype());
    for (int64_t begin = 0; begin < part.count(); begin += step) {
      targets.push_back(
          {.place = checkpoint.place_of(part.name, index_of(part, begin)),
           .part = &part,
           .begin = begin,
           .to = vector_slice(part.values, begin, std::min(step, part.count() - begin))});
    }
  }
  std::sort(targets.begin(), targets.end(),
            [](const Target& a, const Target& b) { return a.place < b.place; });
  return targets;
}

void read_targets(CheckpointReader& checkpoint, std::span<const Target> targets, bool shared,
                  std::vector<std::byte>& staged) {
  size_t staged_bytes = 0;
  for (const Target& target : targets) {
    if (!target.is_host()) staged_bytes += static_cast<size_t>(target.to.bytes());
  }
  staged.resize(staged_bytes);
  std::byte* next = staged.data();
  std::vector<CheckpointRead> reads;
  for (const Target& target : targets) {
    const auto bytes = static_cast<size_t>(target.to.bytes());
    std::byte* memory = target.is_host() ? static_cast<std::byte*>(target.to.data()) : next;
    if (target.is_host()) target.to.context().will_write(memory, target.to.bytes());
    if (!target.is_host()) next += bytes;
    const int64_t size = dtype_size(target.to.dtype());
    for_each_run(
        stored_part(*target.part, target.begin, target.to.numel()), 0, target.part->shape.numel(),
        [&](const TensorRun& run) {
          reads.push_back({target.part->name,
                           run.in_tensor,
                           {memory + run.in_part * size, static_cast<size_t>(run.count * size)}});
        });
  }
  checkpoint.read_all(reads, shared);
  const std::byte* from = staged.data();
  for (const Target& target : targets) {
    if (target.is_host()) continue;
    target.to.context().copy(target.to.data(), from, target.to.bytes());
    from += target.to.bytes();
  }
}

// Reads in batches, because the host memory for parts on a device is limited.
void read_parts(CheckpointReader& checkpoint, const std::vector<StatePart>& parts, bool shared) {
  const std::vector<Target> targets = targets_of(checkpoint, parts);
  std::vector<std::byte> staged;
  for (size_t begin = 0, end = 0; begin < targets.size(); begin = end) {
    for (int64_t bytes = 0; end < targets.size() && bytes < kStagedBytes; ++end) {
      if (!targets[end].is_host()) bytes += targets[end].to.bytes();
    }
    read_targets(checkpoint, std::span(targets).subspan(begin, end - begin), shared, staged);
  }
}

// Rank 0 reads the parts and broadcasts them. Otherwise each rank would open all ranks' files.
void read_whole_parts(CheckpointReader& checkpoint, const std::vector<StatePart>& parts,
                      DataParallel& parallel) {
  if (parts.empty()) return;
  ProcessGroup& group = *parallel.shared().groups.shard;
  const Context& device = parallel.shared().context();
  throw_problem(problem_of_root(group, "checkpoint is read",
                                [&] { read_parts(checkpoint, parts, /*shared=*/false); }));
  for (const StatePart& part : parts) {
    const bool on_device = &part.values.context() == &device;
    (on_device ? group : group.host())
        .broadcast(part.values, /*root=*/0,
                   {.tag = part.name,
                    .stream = on_device ? device.exec().stream : nullptr,
                    .traffic = Traffic::kParameters});
  }
}

// True if a rank of another pipeline stage writes the same part.
bool is_elsewhere(const StatePart& part, const PipelineStages* stages) {
  if (stages == nullptr) return false;
  if (part.parameter == nullptr) return stages->group->rank() > 0;
  return !stages->is_first_holder(*part.parameter);
}

// True if each rank of the part's shard group has different elements: those of its own experts.
bool is_of_experts(const StatePart& part) {
  return part.parameter != nullptr && part.parameter->sharding.is_of_experts;
}

Tensor as_vector(const Tensor& x) {
  return x.alias({x.numel()}, {1});
}

// Adds a part of this rank's shard of a parameter to `parts`. Its indices count the elements of the
// shard, or the blocks of the shard; they are converted to indices in the whole tensor. Adds one
// part for each box that has some of the elements, but always at least one.
void add_boxes(std::vector<StatePart>& parts, StatePart part) {
  const Parameter& parameter = *part.parameter;
  const Shape whole = state_shape(parameter.whole, part.block);
  const bool is_cut = parameter.sharding.share == Share::kShard;
  // If a shard boundary cuts a block in two, blocks of the shard contain other elements than blocks
  // of the whole tensor. Then the state of such a block cannot be converted.
  const bool follows = !is_cut || part_shape(whole, parameter.sharding) == part.shape;
  if (!follows || !(part.shape == state_shape(parameter.shape, part.block))) {
    // A state of the whole parameter is equal on every tensor rank.
    if (part.of_whole) {
      part.is_copy = parameter.sharding.share != Share::kWhole && parameter.sharding.rank > 0;
      return parts.push_back(std::move(part));
    }
    if (parameter.sharding.share == Share::kWhole) return parts.push_back(std::move(part));
    throw ConfigError(cat(
        "checkpoint: ", part.name, part.shape, " is a state of ", parameter.full_name(),
        ", whose layer is sharded over tensor ranks; expected a state with one value per element"));
  }
  part.shape = whole;
  part.is_copy = !parameter.sharding.counts();
  if (!is_cut) return parts.push_back(std::move(part));
  int64_t end = 0;
  bool any = false;
  const std::vector<TensorBox> boxes = boxes_of(whole, parameter.sharding);
  for (const TensorBox& box : boxes) {
    const int64_t begin = std::exchange(end, end + box.numel());
    const int64_t from = std::max(begin, part.first);
    const int64_t count = std::min(end, part.first + part.count()) - from;
    if (count <= 0 && (any || &box != &boxes.back())) continue;
    StatePart piece = part;
    piece.box = box;
    piece.first = count > 0 ? from - begin : 0;
    piece.values =
        vector_slice(part.values, count > 0 ? from - part.first : 0, std::max(count, int64_t{0}));
    parts.push_back(std::move(piece));
    any = true;
  }
}

// Adds a buffer's parameters by name. With local steps, NAME has the values after the last outer
// step, which are equal on all replicas, and NAME/local has the f32 masters of each replica.
void add_parameters(std::vector<StatePart>& parts, const FlatBuffer& buffer,
                    const LocalSteps::Outer* outer) {
  for (const OptimSpan& span : buffer.spans()) {
    if (span.parameter->whole.numel() == 0) continue;
    const auto add = [&](const char* state, const Tensor& of, OverReplicas replicas) {
      add_boxes(parts, {.name = cat(span.parameter->full_name(), state),
                        .parameter = span.parameter,
                        .shape = span.parameter->shape,
                        .first = span.first,
                        .values = vector_slice(of, span.offset, span.count),
                        .is_whole = !buffer.is_sharded(),
                        .replicas = replicas});
    };
    add("", outer != nullptr ? outer->anchor : buffer.master(), OverReplicas::kSame);
    if (outer == nullptr) continue;
    add("/local", buffer.master(), OverReplicas::kEach);
    add("/outer_momentum", outer->momentum, OverReplicas::kSame);
  }
}

}  // namespace

std::vector<StatePart> training_state(const DataParallel& parallel,
                                      const optim::Optimizer& optimizer) {
  return training_state(parallel, std::vector{&optimizer});
}

std::vector<StatePart> training_state(const DataParallel& parallel,
                                      const std::vector<const optim::Optimizer*>& optimizers) {
  std::vector<StatePart> parts;
  std::map<const Parameter*, bool> is_sharded;
  const LocalSteps* const local = parallel.local_steps();
  for (const auto& unit : parallel.units()) {
    for (const auto& buffer : unit->buffers()) {
      for (const OptimSpan& span : buffer->spans()) {
        is_sharded[span.parameter] = buffer->is_sharded();
      }
      const LocalSteps::Outer* const outer = local != nullptr ? local->find(*buffer) : nullptr;
      add_parameters(parts, *buffer, outer);
    }
  }
  std::map<const Parameter*, size_t> stepped_by;
  for (size_t i = 0; i < optimizers.size(); ++i) {
    for (StatePart& part : optimizers[i]->state_parts()) {
      if (part.parameter->whole.numel() == 0) continue;
      if (!is_sharded.contains(part.parameter)) {
        throw ConfigError(cat("checkpoint: an optimizer updates ", part.parameter->full_name(),
                              ", which is not a parameter of this model"));
      }
      if (stepped_by.emplace(part.parameter, i).first->second != i) {
        throw ConfigError(cat("checkpoint: two optimizers update ", part.parameter->full_name(),
                              ", expected one for each parameter"));
      }
      part.is_whole = part.is_whole || !is_sharded.at(part.parameter);
      if (local != nullptr) part.replicas = OverReplicas::kEach;
      add_boxes(parts, std::move(part));
    }
  }
  const ProcessGroup* const replicas = parallel.shared().groups.replicate;
  for (StatePart& part : parts) {
    if (part.replicas != OverReplicas::kEach) continue;
    part = stacked(std::move(part), replicas != nullptr ? replicas->rank() : 0,
                   replicas != nullptr ? replicas->size() : 1);
  }
  if (parallel.units().empty()) return parts;
  // The buffers of all modules of the model, each once.
  const ProcessGroup* const tensor = parallel.shared().groups.tensor;
  for (const Buffer* buffer : root_of(parallel.units().front()->module()).buffers()) {
    const bool has_values = buffer->value.defined() && buffer->value.numel() > 0;
    if (!buffer->persistent || !has_values) continue;
    parts.push_back({.name = buffer->full_name(),
                     .shape = buffer->value.shape(),
                     .values = as_vector(buffer->value),
                     .is_whole = true,
                     .is_copy = tensor != nullptr && tensor->rank() > 0});
  }
  return parts;
}

std::vector<StatePart> even_share(const std::vector<StatePart>& parts, int rank, int ranks) {
  int64_t total = 0;
  for (const StatePart& part : parts) total += part.values.bytes();
  const auto cut_at = [&](int64_t r) { return total / ranks * r + total % ranks * r / ranks; };
  const int64_t begin = cut_at(rank), end = cut_at(rank + 1);
  std::vector<StatePart> share;
  int64_t before = 0;  // bytes of all parts before `part`
  for (const StatePart& part : parts) {
    const int64_t from = boundary(part, begin - before);
    const int64_t to = rank + 1 == ranks ? part.count() : boundary(part, end - before);
    before += part.values.bytes();
    if (from >= to) continue;
    StatePart slice = part;
    slice.first += from;
    slice.values = vector_slice(part.values, from, to - from);
    share.push_back(std::move(slice));
  }
  return share;
}

std::vector<StatePart> share_to_write(const std::vector<StatePart>& parts,
                                      const ShardGroups& groups) {
  std::vector<StatePart> whole, cut, experts, whole_of_each, share;
  for (const StatePart& part : parts) {
    if (part.is_copy || is_elsewhere(part, groups.stages)) continue;
    if (part.replicas != OverReplicas::kSame) {
      if (part.count() > 0) (part.is_whole ? whole_of_each : share).push_back(part);
      continue;
    }
    (!part.is_whole ? cut : is_of_experts(part) ? experts : whole).push_back(part);
  }
  const int replicas = groups.replicate != nullptr ? groups.replicate->size() : 1;
  const int replica = groups.replicate != nullptr ? groups.replicate->rank() : 0;
  const auto add = [&](const std::vector<StatePart>& some, const ProcessGroup* same) {
    const int ranks = same != nullptr ? same->size() : 1, rank = same != nullptr ? same->rank() : 0;
    for (StatePart& part : even_share(some, replica * ranks + rank, replicas * ranks)) {
      share.push_back(std::move(part));
    }
  };
  add(whole, groups.shard);
  add(experts, groups.expert_shard);
  add(cut, nullptr);
  for (StatePart& part : even_share(whole_of_each, groups.shard->rank(), groups.shard->size())) {
    share.push_back(std::move(part));
  }
  return share;
}

CheckpointReader open_checkpoint(ProcessGroup& group, const std::string& folder) {
  std::string text;
  std::optional<CheckpointReader> reader;
  const std::string problem = problem_of_root(group, "checkpoint is there", [&] {
    text = read_manifest_text(Folder::open(folder));
    const std::string source = cat(folder, "/", kManifestName);
    reader.emplace(folder, parse_checkpoint_manifest(text, source));
    reader->check_files();
  });
  throw_problem(problem);
  text = group.broadcast_bytes(text, /*root=*/0, "manifest");
  if (reader) return std::move(*reader);
  return {folder, parse_checkpoint_manifest(text, cat(folder, "/", kManifestName))};
}

void load_training_state(CheckpointReader& checkpoint, DataParallel& parallel,
                         const optim::Optimizer& optimizer) {
  load_training_state(checkpoint, parallel, std::vector{&optimizer});
}

void load_training_state(CheckpointReader& checkpoint, DataParallel& parallel,
                         const std::vector<const optim::Optimizer*>& optimizers) {
  const std::vector<StatePart> parts = training_state(parallel, optimizers);
  check_inventory(checkpoint, parts, parallel.shared().groups.stages);
  const int ranks = parallel.shared().groups.shard->size();
  // Each tensor rank that this process hosts reads replicated parts for itself. Key: number of the
  // copy; value: parts that rank 0 broadcasts, and parts that each rank reads.
  std::map<size_t, std::pair<std::vector<StatePart>, std::vector<StatePart>>> by_leaf;
  std::map<std::string_view, size_t> copies;
  // key: number of replicas in the checkpoint
  std::map<int64_t, std::vector<StatePart>> of_other_replicas;
  for (const StatePart& part : parts) {
    const int64_t replicas = stored_replicas(*checkpoint.find(part.name), part);
    if (replicas > 0 && replicas != part.shape[0]) {
      of_other_replicas[replicas].push_back(part);
      continue;
    }
    const bool repeats =
        part.parameter != nullptr && part.parameter->sharding.share == Share::kReplicate;
    auto& [whole, cut] = by_leaf[repeats ? copies[part.name]++ : 0];
    (part.is_whole && ranks > 1 && !is_of_experts(part) ? whole : cut).push_back(part);
  }
  for (const auto& [copy, of_copy] : by_leaf) {
    read_whole_parts(checkpoint, of_copy.first, parallel);
    read_parts(checkpoint, of_copy.second, /*shared=*/false);
  }
  for (const auto& [stored, some] : of_other_replicas) {
    read_mean(some, stored, [&](const std::vector<StatePart>& of_one) {
      read_parts(checkpoint, of_one, /*shared=*/false);
    });
  }
  for (const auto& unit : parallel.units()) {
    for (const auto& buffer : unit->buffers()) buffer->values().masters_changed();
  }
  if (parallel.local_steps() != nullptr) parallel.local_steps()->loaded();
}

}  // namespace shale::comm
