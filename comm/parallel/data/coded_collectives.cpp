#include "shale/comm/parallel/data/coded_collectives.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "shale/kernels/block_codes.h"
#include "shale/kernels/fp8_shard.h"
#include "shale/kernels/tree_sum.h"
#include "shale/runtime/ops/linear_fp8.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::comm {
namespace {

constexpr int64_t kStagedBytes = int64_t{4} << 20;  // bytes of memory in which sums are computed

Tensor as_rows(const Tensor& vector) {
  const int64_t rows = vector.numel() / kFlatAlignment;
  return vector.alias({rows, kFlatAlignment}, {kFlatAlignment, 1});
}

// Allocates codes for a whole buffer.
Tensor empty_codes(const BufferSpec& spec, kernels::BlockCode code) {
  const int64_t bytes = kernels::coded_row_bytes(code, kFlatAlignment);
  return empty(spec.shared.context(), {spec.layout.numel / kFlatAlignment, bytes}, DType::kU8,
               MemoryTag::kComm, "codes");
}

// View of rows [first, first + count) of codes.
Tensor rows_of(const Tensor& codes, int64_t first, int64_t count) {
  const int64_t bytes = codes.size(1);
  return codes.alias({count, bytes}, {bytes, 1}, first * bytes);
}

// Shape of the grid of a matrix's blocks. Each block has one fp8 scale.
Shape blocks_of(Operands operands, const FlatEntry& entry) {
  return kernels::fp8_weight_blocks(fp8_weight_blocks(operands), entry.parameter->shape);
}

}  // namespace

Work CodedGather::start(const Tensor& master, const CollectiveOptions& options) {
  const kernels::BlockCode code = *spec_.shared.options.gather_code;
  codes_ = empty_codes(spec_, code);
  const int64_t rows = spec_.layout.shard_numel / kFlatAlignment;
  const Tensor own = rows_of(codes_, spec_.ranks().rank() * rows, rows);
  kernels::encode_blocks(own.exec(), {.x = as_rows(master), .y = own, .code = code});
  return spec_.ranks().all_gather(own, codes_, options);
}

void CodedGather::decode(const Tensor& values) {
  const Tensor codes = std::exchange(codes_, Tensor());
  if (!codes.defined()) return;
  kernels::decode_blocks(
      values.exec(), {.x = codes, .y = as_rows(values), .code = *spec_.shared.options.gather_code});
}

Work CodedReduceScatter::start(const Tensor& whole, const CollectiveOptions& options) {
  const kernels::BlockCode code = *spec_.shared.options.reduce_code;
  sent_ = empty_codes(spec_, code);
  received_ = empty_codes(spec_, code);
  kernels::encode_blocks(sent_.exec(), {.x = as_rows(whole), .y = sent_, .code = code});
  return spec_.ranks().all_to_all(sent_, received_, options);
}

void CodedReduceScatter::add_to(const Tensor& sum) {
  sent_ = Tensor();
  const Tensor codes = std::exchange(received_, Tensor());
  if (!codes.defined()) return;
  const int ranks = spec_.ranks().size();
  const int64_t rows = spec_.layout.shard_numel / kFlatAlignment;
  const int64_t most = kStagedBytes / (ranks * kFlatAlignment * int64_t{sizeof(float)});
  const int64_t step = std::clamp<int64_t>(most, 1, std::max<int64_t>(rows, 1));
  const Tensor staged = empty(spec_.shared.context(), {ranks, step, kFlatAlignment}, DType::kF32,
                              MemoryTag::kComm, spec_.name);
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    std::vector<const void*> parts;
    for (int rank = 0; rank < ranks; ++rank) {
      const Tensor part =
          staged.alias({count, kFlatAlignment}, {kFlatAlignment, 1}, rank * step * kFlatAlignment);
      kernels::decode_blocks(part.exec(), {.x = rows_of(codes, rank * rows + first, count),
                                           .y = part,
                                           .code = *spec_.shared.options.reduce_code});
      parts.push_back(part.data());
    }
    const Tensor to = vector_slice(sum, first * kFlatAlignment, count * kFlatAlignment);
    void* const output = to.data();
    kernels::tree_sum(to.exec(), {.inputs = parts,
                                  .outputs = std::span(&output, 1),
                                  .count = to.numel(),
                                  .in_dtype = DType::kF32,
                                  .out_dtype = to.dtype()});
  }
}

// ---- fp8 ----

// Calls visit(index of the entry, its part of largest_) for each matrix.
void Fp8Gather::for_each_matrix(const std::function<void(size_t, const Tensor&)>& visit) const {
  int64_t first = 0;
  for (size_t i = 0; i < spec_.layout.entries.size(); ++i) {
    const Shape blocks = blocks_of(spec_.traits.operands, spec_.layout.entries[i]);
    visit(i, largest_.alias(blocks, contiguous_strides(blocks), first));
    first += blocks.numel();
  }
}

void Fp8Gather::start_exchange() {
  if (has_largest_) return;
  has_largest_ = true;
  ShardingContext& shared = spec_.shared;
  if (!largest_.defined()) {
    int64_t count = 0;
    for (const FlatEntry& entry : spec_.layout.entries) {
      count += blocks_of(spec_.traits.operands, entry).numel();
    }
    largest_ = empty(shared.context(), {count}, DType::kI32, MemoryTag::kParameter, spec_.name);
  }
  set_to_zero(largest_);
  for_each_matrix([&](size_t i, const Tensor& largest) {
    const OptimSpan& span = shard_.spans[i];
    kernels::fp8_largest(largest.exec(), {.x = vector_slice(shard_.master, span.offset, span.count),
                                          .first = span.first,
                                          .columns = span.parameter->shape[1],
                                          .largest = largest});
  });
  exchange_ =
      spec_.ranks().all_reduce_max(largest_, shared.collective(spec_.name, Traffic::kParameters));
}

void Fp8Gather::finish_exchange() {
  spec_.shared.wait(std::exchange(exchange_, Work()));
}

void Fp8Gather::masters_changed() {
  finish_exchange();
  has_largest_ = false;
}

Work Fp8Gather::start(const Tensor& small_shard, const CollectiveOptions& options) {
  ShardingContext& shared = spec_.shared;
  codes_ =
      empty(shared.context(), {spec_.layout.numel}, DType::kU8, MemoryTag::kParameter, spec_.name);
  if (small_shard.defined()) return shared.groups.reshard->all_gather(small_shard, codes_, options);
  start_exchange();
  finish_exchange();
  const Tensor own = spec_.own_part(codes_);
  zero_padding(spec_.layout, codes_);
  for_each_matrix([&](size_t i, const Tensor& largest) {
    const OptimSpan& span = shard_.spans[i];
    kernels::fp8_encode(own.exec(), {.x = vector_slice(shard_.master, span.offset, span.count),
                                     .first = span.first,
                                     .columns = span.parameter->shape[1],
                                     .largest = largest,
                                     .codes = vector_slice(own, span.offset, span.count)});
  });
  return spec_.ranks().all_gather(own, codes_, options);
}

void Fp8Gather::bind(const std::function<Tensor()>& values) {
  for_each_matrix([&](size_t i, const Tensor& largest) {
    const FlatEntry& entry = spec_.layout.entries[i];
    entry.parameter->bind(spec_.shared.context(), nullptr, entry.offset, spec_.traits.compute);
    entry.parameter->for_each_value([&](const Tensor& value) {
      set_fp8_codes(value, {.codes = entry.part_of(codes_), .largest = largest});
      leaf_state(value).make_values = [this, values] { decode(values()); };
    });
  });
}

void Fp8Gather::decode(const Tensor& values) {
  zero_padding(spec_.layout, values);
  for_each_matrix([&](size_t i, const Tensor& largest) {
    const FlatEntry& entry = spec_.layout.entries[i];
    kernels::fp8_decode(
        values.exec(),
        {.codes = entry.part_of(codes_), .largest = largest, .y = entry.part_of(values)});
    entry.parameter->bind(spec_.shared.context(), values.storage(), entry.offset,
                          spec_.traits.compute);
  });
}

}  // namespace shale::comm
