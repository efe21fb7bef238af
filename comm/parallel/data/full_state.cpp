#include "shale/comm/parallel/data/full_state.h"

#include <algorithm>
#include <span>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"

namespace shale::comm {
namespace {

// Maximum number of elements that are transferred at once, over all ranks.
constexpr int64_t kPieceElements = int64_t{1} << 22;

// Copies values to a tensor. Codes of frozen weights are numbers from 0 to 255 (nn/frozen.h).
Tensor from_numbers(Context& context, std::span<const float> values, DType dtype) {
  if (dtype != DType::kU8) {
    return from_host<float>(context, values, {std::ssize(values)});
  }
  std::vector<uint8_t> codes(values.size());
  std::transform(values.begin(), values.end(), codes.begin(),
                 [](float value) { return static_cast<uint8_t>(value); });
  return from_host<uint8_t>(context, codes, {std::ssize(codes)});
}

void copy_numbers(const Tensor& from, const Tensor& to) {
  if (to.dtype() == DType::kU8) {
    kernels::copy(to.exec(), {.x = from, .y = to});
  } else {
    kernels::axpby(to.exec(), {.a = from, .y = to});
  }
}

// Fills a span of a parameter from the rows of the whole parameter that contain it.
void fill_span(const OptimSpan& span, const DataParallel::FillRows& fill, std::span<float> own) {
  const Parameter& parameter = *span.parameter;
  const Shape& whole = parameter.whole;
  const int64_t row = whole.ndim() > 0 ? whole.numel() / whole[0] : 1;
  std::vector<float> host;
  for_each_rows(whole, parameter.sharding, span.first, span.count, [&](const PartRows& rows) {
    const int64_t last = rows.in_whole + (rows.rows - 1) * rows.stride + rows.run - 1;
    const int64_t first = rows.in_whole / row, end = last / row + 1;
    std::vector<int64_t> sizes(whole.begin(), whole.end());
    if (!sizes.empty()) sizes[0] = end - first;
    float* const to = own.data() + (rows.in_part - span.first);
    const bool is_dense = rows.rows == 1 || rows.stride == rows.run;
    if (is_dense && rows.rows * rows.run == (end - first) * row) {
      return fill(parameter, first, make_view(to, Shape(sizes)));
    }
    host.resize(static_cast<size_t>((end - first) * row));
    fill(parameter, first, make_view(host.data(), Shape(sizes)));
    for (int64_t i = 0; i < rows.rows; ++i) {
      std::copy_n(host.data() + rows.in_whole + i * rows.stride - first * row, rows.run,
                  to + i * rows.run);
    }
  });
}

}  // namespace

FullState::FullState(DataParallel& parallel, std::optional<int> root)
    : parallel_(parallel), root_(root) {
  parallel.shared().context();  // throws if it has ended; then the groups may have ended
}

// Index of the root rank among all ranks of `experts` and `expert_shard`, in mesh order.
int FullState::place_among_experts() const {
  const ShardGroups& groups = parallel_.shared().groups;
  const int tensor = groups.experts->size() * groups.expert_shard->size() / groups.shard->size();
  return *root_ * tensor + (tensor > 1 ? *root_ : 0);
}

// Rank of the root in the group that shares this buffer; nullopt: all ranks receive the values.
std::optional<int> FullState::root_of(const FlatBuffer& buffer) const {
  if (!root_ || !buffer.spec().traits.of_experts) return root_;
  return place_among_experts() / parallel_.shared().groups.experts->size();
}

bool FullState::receives(const FlatBuffer& buffer) const {
  return !root_ || *root_of(buffer) == buffer.ranks().rank();
}

bool FullState::has_all() const {
  const ProcessGroup* const tensor = parallel_.shared().groups.tensor;
  return !root_ || (*root_ == parallel_.shared().groups.shard->rank() &&
                    (tensor == nullptr || *root_ == tensor->rank()));
}

// In a pipeline, the first stage that has the parameter sends it to the ranks that get values.
View FullState::read(const Parameter& parameter) {
  const PipelineStages* stages = parallel_.shared().groups.stages;
  if (stages == nullptr) return read_here(parameter);
  const int owner = stages->first_holder(parameter);
  View values;
  if (owner == stages->group->rank()) {
    values = read_here(parameter);
  } else if (has_all()) {
    gathered_ = nullptr;
    values_.resize(static_cast<size_t>(parameter.whole.numel()));
    values = make_view(values_.data(), parameter.whole);
  }
  if (!has_all()) return {};
  stages->group->host().broadcast(values, owner,
                                  {.tag = "full state", .traffic = Traffic::kParameters});
  return values;
}

View FullState::read_here(const Parameter& parameter) {
  switch (parameter.sharding.share) {
    case Share::kWhole:
    case Share::kReplicate: return read_local(parameter);
    case Share::kShard:
    case Share::kFirst: return join_shards(parameter);
  }
  return {};
}

// Assembles a parameter from the shards of tensor or expert ranks. Only ranks that received the
// values of their shard take part. They have the same rank in each shard group, so they form a
// group.
View FullState::join_shards(const Parameter& parameter) {
  const Sharding& sharding = parameter.sharding;
  const ShardGroups& groups = parallel_.shared().groups;
  ProcessGroup& group = (sharding.is_of_experts ? groups.experts : groups.tensor)->host();
  const bool has_part = receives(*parallel_.place_of(parameter).buffer);
  const bool is_cut = sharding.share == Share::kShard;
  std::vector<float> own;  // shards of the tensor ranks in this process
  const auto count = static_cast<int64_t>(is_cut ? parameter.peers.size() : 1);
  const int64_t numel =
      part_shape(parameter.whole,
                 {.share = sharding.share, .dim = sharding.dim, .ranks = sharding.ranks})
          .numel();
  own.resize(static_cast<size_t>(count * numel));
  for (int64_t i = 0; i < count; ++i) {
    const View values = read_local(is_cut ? *parameter.peers[static_cast<size_t>(i)] : parameter);
    if (has_part) std::copy_n(values.as<float>(), values.numel(), own.data() + i * numel);
  }
  if (!has_part) return {};
  const CollectiveOptions options{.tag = "full state", .traffic = Traffic::kParameters};
  if (!is_cut) {
    group.broadcast(make_view(own.data(), {numel}), /*root=*/0, options);
    whole_ = std::move(own);
    return has_all() ? make_view(whole_.data(), parameter.whole) : View{};
  }
  std::vector<float> all(has_all() ? own.size() * static_cast<size_t>(group.size()) : 0);
  const View mine = make_view(own.data(), {count * numel});
  const View everything =
      has_all() ? make_view(all.data(), {std::ssize(all)}) : make_view(own.data(), {0});
  if (root_) {
    group.gather(mine, everything,
                 sharding.is_of_experts ? place_among_experts() % group.size() : *root_, options);
  } else {
    group.all_gather(mine, everything, options);
  }
  if (!has_all()) return {};
  whole_.resize(static_cast<size_t>(parameter.whole.numel()));
  for (int rank = 0; rank < sharding.ranks; ++rank) {
    Sharding of_rank = sharding;
    of_rank.rank = rank;
    const float* const part = all.data() + rank * numel;
    for_each_rows(parameter.whole, of_rank, 0, numel, [&](const PartRows& rows) {
      for (int64_t row = 0; row < rows.rows; ++row) {
        std::copy_n(part + rows.in_part + row * rows.run, rows.run,
                    whole_.data() + rows.in_whole + row * rows.stride);
      }
    });
  }
  return make_view(whole_.data(), parameter.whole);
}

// Reads the values of the parameter that this rank's flat buffer holds.
View FullState::read_local(const Parameter& parameter) {
  const auto [buffer, entry] = parallel_.place_of(parameter);
  if (!buffer->is_sharded() || buffer->ranks().size() == 1) {
    return read_whole(*buffer, *entry, parameter.shape);
  }
  if (gathered_ != buffer) gather(*buffer);
  if (!receives(*buffer)) return {};
  return make_view(values_.data() + entry->offset, parameter.shape);
}

// Reads a parameter from a buffer that every rank has whole. Returns the f32 masters themselves if
// they are in host memory, otherwise a copy.
View FullState::read_whole(const FlatBuffer& buffer, const FlatEntry& entry, const Shape& shape) {
  gathered_ = nullptr;
  buffer.values().wait_for_step();
  if (!receives(buffer)) return {};
  Tensor part = vector_slice(buffer.master(), entry.offset, entry.numel());
  if (part.dtype() == DType::kF32 && part.context().device().type == DeviceType::kCpu) {
    part.context().synchronize();
    return make_view(static_cast<float*>(part.data()), shape);
  }
  part = piece_of(buffer, entry.offset, entry.numel());
  values_.resize(static_cast<size_t>(entry.numel()));
  part.context().copy(values_.data(), part.data(), part.bytes());
  part.context().synchronize();
  return make_view(values_.data(), shape);
}

void FullState::gather(const FlatBuffer& buffer) {
  const FlatLayout& layout = buffer.layout();
  const int64_t ranks = buffer.ranks().size();
  gathered_ = &buffer;
  buffer.values().wait_for_step();
  if (receives(buffer)) values_.resize(static_cast<size_t>(layout.numel));
  const Tensor& master = buffer.master();
  at_once_ = !layout.owner && master.dtype() == DType::kF32 &&
             &master.context() == &parallel_.shared().context() &&
             master.context().device().type == DeviceType::kCpu;
  const int64_t step = at_once_       ? layout.shard_numel
                       : layout.owner ? kPieceElements
                                      : std::max(kFlatAlignment, kPieceElements / ranks);
  for (int64_t begin = 0; begin < layout.shard_numel; begin += step) {
    gather_piece(buffer, begin, std::min(step, layout.shard_numel - begin));
  }
}

// Gathers elements [begin, begin + count) of every rank's shard, or of the owner's buffer.
void FullState::gather_piece(const FlatBuffer& buffer, int64_t begin, int64_t count) {
  ShardingContext& shared = parallel_.shared();
  ProcessGroup& group = buffer.ranks();
  const CollectiveOptions options{.tag = "full state",
                                  .stream = shared.context().exec().stream,
                                  .traffic = Traffic::kParameters};
  const std::optional<int> owner = buffer.layout().owner;
  const int64_t parts = owner ? 1 : group.size();
  const bool gives = owner.value_or(group.rank()) == group.rank();
  Tensor memory;
  View all;
  if (receives(buffer) && at_once_) {
    all = make_view(values_.data(), {buffer.layout().numel});
  } else if (receives(buffer) || owner) {
    memory = empty(shared.context(), {parts * count}, DType::kF32, MemoryTag::kComm, "full state");
    all = memory.view();
  }
  const Tensor mine = gives ? piece_of(buffer, begin, count) : Tensor();
  if (owner) {
    if (gives) kernels::axpby(memory.exec(), {.a = mine, .y = memory});
    shared.wait(group.broadcast(all, *owner, options));
  } else if (root_) {
    shared.wait(group.gather(mine, all, *root_of(buffer), options));
  } else {
    shared.wait(group.all_gather(mine, all, options));
  }
  if (at_once_) shared.context().synchronize();
  if (!receives(buffer) || at_once_) return;
  const float* from = all.as<float>();
  if (shared.context().device().type != DeviceType::kCpu) {
    staged_.resize(static_cast<size_t>(all.numel()));
    shared.context().copy(staged_.data(), all.data, all.bytes());
    from = staged_.data();
  }
  shared.context().synchronize();
  for (int64_t part = 0; part < parts; ++part) {
    std::copy_n(from + part * count, count,
                values_.begin() + part * buffer.layout().shard_numel + begin);
  }
}

// Returns elements [begin, begin + count) of this rank's master: f32, on the model's device.
Tensor FullState::piece_of(const FlatBuffer& buffer, int64_t begin, int64_t count) const {
  Context& context = parallel_.shared().context();
  const Tensor part = vector_slice(buffer.master(), begin, count);
  const bool is_here = &part.context() == &context;
  if (is_here && part.dtype() == DType::kF32) return part;
  if (part.dtype() == DType::kU8) {
    const std::vector<uint8_t> codes = to_host<uint8_t>(part);
    return from_host<float>(context, std::vector<float>(codes.begin(), codes.end()), {count});
  }
  Tensor piece = empty(context, {count}, DType::kF32, MemoryTag::kComm, "full state");
  if (is_here) {
    kernels::axpby(piece.exec(), {.a = part, .y = piece});
  } else {  // f32 master in host memory
    context.copy(piece.data(), part.data(), piece.bytes());
  }
  return piece;
}

// ---- DataParallel ----

void DataParallel::read(const Parameter& parameter, const View& to) {
  FullState state(*this);
  const View values = state.read(parameter);
  std::copy_n(values.as<float>(), values.numel(), to.as<float>());
}

Tensor DataParallel::full_tensor(const Parameter& parameter) {
  FullState state(*this);
  const View values = state.read(parameter);
  return from_host<float>(shared_.context(),
                          {values.as<float>(), static_cast<size_t>(values.numel())},
                          parameter.whole);
}

void DataParallel::full_state(const std::function<void(const Parameter&, const View&)>& visit) {
  if (shared_.groups.stages != nullptr) {
    throw InternalError("full_state: this rank has one stage's parameters; use a FullState");
  }
  FullState state(*this);
  for (const auto& unit : units_) {
    for (const Parameter* parameter : unit->parameters()) {
      // A process has a copy of a sharded parameter for each tensor-parallel rank that it hosts.
      // Only the copy of the first rank has `peers`; the other copies are skipped.
      const bool is_further =
          parameter->sharding.share != Share::kWhole && parameter->peers.empty();
      if (!is_further) visit(*parameter, state.read(*parameter));
    }
  }
}

void DataParallel::load(const FillRows& fill) {
  std::vector<float> own;
  for (const auto& unit : units_) {
    for (const auto& buffer : unit->buffers()) {
      buffer->values().wait_for_step();
      for (const OptimSpan& span : buffer->spans()) {
        if (span.count == 0) continue;
        const Tensor to = vector_slice(buffer->master(), span.offset, span.count);
        if (to.context().device().type == DeviceType::kCpu && to.dtype() == DType::kF32) {
          to.context().synchronize();
          to.context().will_write(to.data(), to.bytes());
          fill_span(span, fill, {static_cast<float*>(to.data()), static_cast<size_t>(span.count)});
          continue;
        }
        own.resize(static_cast<size_t>(span.count));
        fill_span(span, fill, own);
        copy_numbers(from_numbers(to.context(), own, to.dtype()), to);
      }
      buffer->master().context().synchronize();
      buffer->values().masters_changed();
    }
  }
}

DataParallel::Place DataParallel::place_of(const Parameter& parameter) const {
  for (const auto& unit : units_) {
    for (const auto& buffer : unit->buffers()) {
      const FlatEntry* const entry = buffer->find(parameter);
      if (entry != nullptr) return {.buffer = buffer.get(), .entry = entry};
    }
  }
  throw InternalError(cat("data parallel: ", parameter.full_name(), " is not part of the model"));
}

}  // namespace shale::comm
