#include "comm/training_state.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "comm/flat_layout.h"
#include "runtime/base/error.h"

namespace shale::comm {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;

// A slice boundary inside a part, in elements: the first multiple of kFlatAlignment at which at
// least `bytes` of the part's bytes come before.
int64_t boundary(const StatePart& part, int64_t bytes) {
  const int64_t size = dtype_size(part.values.dtype());
  const int64_t unit = size * kFlatAlignment;
  const int64_t units = (std::max<int64_t>(bytes, 0) + unit - 1) / unit;
  return std::min(units * kFlatAlignment, part.count());
}

// "[2,3], want [3,3]", or empty.
std::string difference(const CheckpointTensor& stored, const StatePart& part) {
  if (!std::equal(stored.shape.begin(), stored.shape.end(), part.shape.begin(), part.shape.end())) {
    std::string found;  // it may have more dimensions than a Shape
    for (const int64_t size : stored.shape) found += cat(found.empty() ? "" : ",", size);
    return cat("[", found, "], want ", part.shape);
  }
  if (stored.dtype != part.values.dtype()) {
    return cat(dtype_name(stored.dtype), ", want ", dtype_name(part.values.dtype()));
  }
  return {};
}

// The names, the first few in full.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) list += cat(" ", names[i]);
  return names.size() > kShown ? cat(list, " and ", names.size() - kShown, " more") : list;
}

void check_inventory(const CheckpointReader& checkpoint, const std::vector<StatePart>& parts) {
  std::vector<std::string> missing, extra, different;
  std::set<std::string_view> wanted;
  for (const StatePart& part : parts) {
    wanted.insert(part.name);
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
  add("with also", extra);
  add("different:", different);
  if (problem.empty()) return;
  throw DataError(cat(checkpoint.path(), ": not the state of this model and optimizer:", problem));
}

Tensor as_vector(const Tensor& x) {
  return x.alias({x.numel()}, {1});
}

}  // namespace

std::vector<StatePart> training_state(const DataParallel& parallel,
                                      const optim::Optimizer& optimizer) {
  std::vector<StatePart> parts;
  std::map<const Parameter*, bool> is_sharded;
  for (const auto& unit : parallel.units()) {
    for (const auto& buffer : unit->buffers()) {
      for (const OptimSpan& span : buffer->spans()) {
        if (span.parameter->numel() == 0) continue;
        is_sharded[span.parameter] = buffer->is_sharded();
        parts.push_back({.name = span.parameter->full_name(),
                         .shape = span.parameter->shape,
                         .first = span.first,
                         .values = vector_slice(buffer->master(), span.offset, span.count),
                         .is_whole = !buffer->is_sharded()});
      }
    }
  }
  for (const optim::OptimStatePart& part : optimizer.state_parts()) {
    if (part.shape.numel() == 0) continue;
    parts.push_back({.name = cat(part.parameter->full_name(), "/", part.name),
                     .shape = part.shape,
                     .first = part.first,
                     .values = part.values,
                     .is_whole = !part.is_cut || !is_sharded.at(part.parameter)});
  }
  // Those of the whole tree, once.
  for (const auto& unit : parallel.units()) {
    if (unit->module().parent() != nullptr) continue;
    for (const Buffer* buffer : unit->module().buffers()) {
      if (!buffer->persistent || buffer->value.numel() == 0) continue;
      parts.push_back({.name = buffer->full_name(),
                       .shape = buffer->value.shape(),
                       .values = as_vector(buffer->value),
                       .is_whole = true});
    }
  }
  return parts;
}

std::vector<StatePart> even_share(const std::vector<StatePart>& parts, int rank, int ranks) {
  int64_t total = 0;
  for (const StatePart& part : parts) total += part.values.bytes();
  const auto cut_at = [&](int64_t r) { return total / ranks * r + total % ranks * r / ranks; };
  const int64_t begin = cut_at(rank), end = cut_at(rank + 1);
  std::vector<StatePart> share;
  int64_t before = 0;  // bytes
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
  std::vector<StatePart> whole, cut;
  for (const StatePart& part : parts) (part.is_whole ? whole : cut).push_back(part);
  const int replicas = groups.replicate != nullptr ? groups.replicate->size() : 1;
  const int replica = groups.replicate != nullptr ? groups.replicate->rank() : 0;
  const ProcessGroup& shard = *groups.shard;
  std::vector<StatePart> share =
      even_share(whole, replica * shard.size() + shard.rank(), replicas * shard.size());
  for (StatePart& part : even_share(cut, replica, replicas)) share.push_back(std::move(part));
  return share;
}

void load_training_state(CheckpointReader& checkpoint, DataParallel& parallel,
                         const optim::Optimizer& optimizer) {
  const std::vector<StatePart> parts = training_state(parallel, optimizer);
  check_inventory(checkpoint, parts);
  std::vector<std::byte> piece;
  for (const StatePart& part : parts) {
    const Tensor& values = part.values;
    Context& context = values.context();
    const int64_t size = dtype_size(values.dtype());
    // On the CPU straight to where it belongs.
    const bool direct = context.device().type == DeviceType::kCpu;
    const int64_t step = direct ? std::max<int64_t>(part.count(), 1) : kPieceBytes / size;
    for (int64_t begin = 0; begin < part.count(); begin += step) {
      const Tensor to = vector_slice(values, begin, std::min(step, part.count() - begin));
      const auto bytes = static_cast<size_t>(to.bytes());
      if (!direct) piece.resize(bytes);
      std::byte* memory = direct ? static_cast<std::byte*>(to.data()) : piece.data();
      checkpoint.read(part.name, part.first + begin, {memory, bytes});
      if (!direct) context.copy(to.data(), memory, to.bytes());
    }
  }
  for (const auto& unit : parallel.units()) {
    for (const auto& buffer : unit->buffers()) buffer->masters_changed();
  }
}

}  // namespace shale::comm
