#include "shale/comm/parallel/data/buffer_spec.h"

#include <algorithm>
#include <utility>

#include "shale/kernels/elementwise.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::comm {

BufferSpec::BufferSpec(ShardingContext& shared_context, std::string its_name,
                       const BufferTraits& its_traits, const std::vector<Parameter*>& parameters)
    : shared(shared_context),
      name(std::move(its_name)),
      traits(its_traits),
      // The two buffers of a tied table must have the same owner. Their owner therefore does not
      // depend on the number of other buffers.
      layout(flat_layout(parameters, ranks().size(),
                         traits.use == TableUse::kOnly ? shared.owned_buffers : 0)) {
  if (layout.owner && traits.use == TableUse::kOnly) ++shared.owned_buffers;
}

OptimSpan BufferSpec::span_of(const FlatEntry& entry, int rank) const {
  OptimSpan span{
      .parameter = entry.parameter, .first = 0, .offset = entry.offset, .count = entry.numel()};
  if (!is_sharded()) return span;
  const int64_t begin = layout.begin_of(rank), end = begin + layout.count_of(rank);
  const int64_t first = std::clamp(begin, entry.offset, entry.end());
  span.first = first - entry.offset;
  span.count = std::clamp(end, entry.offset, entry.end()) - first;
  span.offset = span.count > 0 ? first - begin : 0;
  return span;
}

Tensor BufferSpec::own_part(const Tensor& whole) const {
  const int rank = ranks().rank();
  return vector_slice(whole, layout.begin_of(rank), layout.count_of(rank));
}

LeafState& BufferSpec::leaf(const FlatEntry& entry, size_t part) const {
  const Parameter& parameter = part == 0 ? *entry.parameter : *entry.parameter->copies[part - 1];
  return leaf_state(traits.use == TableUse::kApart ? parameter.tied_value : parameter.value);
}

size_t BufferSpec::row_parts() const {
  return layout.entries.empty() ? 1 : layout.entries.front().parameter->copies.size() + 1;
}

Tensor BufferSpec::zeroed(Context& memory, int64_t numel, DType dtype, MemoryTag tag) const {
  Tensor buffer = empty(memory, {numel}, dtype, tag, name);
  set_to_zero(buffer);
  return buffer;
}

void set_to_zero(const Tensor& x) {
  kernels::fill(x.exec(), {.y = x, .value = 0});
}

}  // namespace shale::comm
