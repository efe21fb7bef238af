// Values and gradients of a FlatBuffer that travel in a few bits. In codes (ZeRO++,
// arXiv:2306.10209, sections 3.1 and 3.3, in one hop) those are rows of kFlatAlignment elements, so
// that a rank's shard is some of them; in fp8 they are what products read of each matrix.
#include <algorithm>
#include <utility>
#include <vector>

#include "shale/comm/parallel/data/flat_buffer.h"
#include "shale/kernels/block_codes.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/fp8_shard.h"
#include "shale/kernels/tree_sum.h"
#include "shale/runtime/ops/linear_fp8.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::comm {
namespace {

constexpr int64_t kStagedBytes = int64_t{4} << 20;  // of sums, while they are made

Tensor as_rows(const Tensor& vector) {
  const int64_t rows = vector.numel() / kFlatAlignment;
  return vector.alias({rows, kFlatAlignment}, {kFlatAlignment, 1});
}

// Room for the codes of so many elements.
Tensor empty_codes(Context& context, kernels::BlockCode code, int64_t numel) {
  const int64_t bytes = kernels::coded_row_bytes(code, kFlatAlignment);
  return empty(context, {numel / kFlatAlignment, bytes}, DType::kU8, MemoryTag::kComm, "codes");
}

// Rows [first, first + count) of codes.
Tensor rows_of(const Tensor& codes, int64_t first, int64_t count) {
  const int64_t bytes = codes.size(1);
  return codes.alias({count, bytes}, {bytes, 1}, first * bytes);
}

// The blocks of a matrix that have a scale in products of fp8.
Shape blocks_of(Operands operands, const FlatEntry& entry) {
  return kernels::fp8_weight_blocks(fp8_weight_blocks(operands), entry.parameter->shape);
}

// Zeroes what lies between parameters, and after the last.
void zero_gaps(const FlatLayout& layout, const Tensor& buffer) {
  int64_t end = 0;
  const auto zero_to = [&](int64_t begin) {
    if (begin == end) return;
    const Tensor gap = vector_slice(buffer, end, begin - end);
    kernels::fill(gap.exec(), {.y = gap, .value = 0});
  };
  for (const FlatEntry& entry : layout.entries) {
    zero_to(entry.offset);
    end = entry.end();
  }
  zero_to(layout.numel);
}

}  // namespace

bool FlatBuffer::gathers_codes() const {
  return traits_.in_codes && shared_.options.gather_code.has_value() && !layout_.owner;
}

bool FlatBuffer::gathers_fp8() const {
  return traits_.operands != Operands::kPlain && !layout_.owner;
}

bool FlatBuffer::reduces_codes() const {
  return traits_.in_codes && shared_.options.reduce_code.has_value() && !layout_.owner;
}

// All ranks use what the codes say, of their own part too: their values are the same.
Work FlatBuffer::start_coded_gather(const CollectiveOptions& options) {
  const kernels::BlockCode code = *shared_.options.gather_code;
  codes_ = empty_codes(shared_.context, code, layout_.numel);
  const int64_t rows = layout_.shard_numel / kFlatAlignment;
  const Tensor own = rows_of(codes_, ranks().rank() * rows, rows);
  kernels::encode_blocks(own.exec(), {.x = as_rows(shard_.master), .y = own, .code = code});
  return ranks().all_gather(own, codes_, options);
}

// Visits each matrix, by the number of its entry, with its part of largest_.
void FlatBuffer::for_each_matrix(const std::function<void(size_t, const Tensor&)>& visit) const {
  int64_t first = 0;
  for (size_t i = 0; i < layout_.entries.size(); ++i) {
    const Shape blocks = blocks_of(traits_.operands, layout_.entries[i]);
    visit(i, largest_.alias(blocks, contiguous_strides(blocks), first));
    first += blocks.numel();
  }
}

// Starts the exchange of maxima, unless it was started since the masters changed.
void FlatBuffer::start_largest() {
  if (has_largest_) return;
  has_largest_ = true;
  if (!largest_.defined()) {
    int64_t count = 0;
    for (const FlatEntry& entry : layout_.entries) {
      count += blocks_of(traits_.operands, entry).numel();
    }
    largest_ = empty(shared_.context, {count}, DType::kI32, MemoryTag::kParameter, name_);
  }
  kernels::fill(largest_.exec(), {.y = largest_, .value = 0});
  for_each_matrix([&](size_t i, const Tensor& largest) {
    const OptimSpan& span = shard_.spans[i];
    kernels::fp8_largest(largest.exec(), {.x = vector_slice(shard_.master, span.offset, span.count),
                                          .first = span.first,
                                          .columns = span.parameter->shape[1],
                                          .largest = largest});
  });
  exchange_ = ranks().all_reduce_max(largest_, shared_.collective(name_, Traffic::kParameters));
}

void FlatBuffer::finish_largest() {
  shared_.wait(std::exchange(exchange_, Work()));
}

Work FlatBuffer::start_fp8_gather(const CollectiveOptions& options) {
  codes_ = empty(shared_.context, {layout_.numel}, DType::kU8, MemoryTag::kParameter, name_);
  if (small_shard_.defined()) {
    return shared_.groups.reshard->all_gather(small_shard_, codes_, options);
  }
  start_largest();
  finish_largest();
  const Tensor own = own_part(codes_);
  zero_gaps(layout_, codes_);
  for_each_matrix([&](size_t i, const Tensor& largest) {
    const OptimSpan& span = shard_.spans[i];
    kernels::fp8_encode(own.exec(), {.x = vector_slice(shard_.master, span.offset, span.count),
                                     .first = span.first,
                                     .columns = span.parameter->shape[1],
                                     .largest = largest,
                                     .codes = vector_slice(own, span.offset, span.count)});
  });
  return ranks().all_gather(own, codes_, options);
}

// Products read the codes. Who asks for the values of a weight has them decoded.
void FlatBuffer::bind_codes() {
  for_each_matrix([&](size_t i, const Tensor& largest) {
    const FlatEntry& entry = layout_.entries[i];
    entry.parameter->bind(shared_.context, nullptr, entry.offset, traits_.compute);
    entry.parameter->for_each_value([&](const Tensor& value) {
      set_fp8_codes(value, {.codes = entry.part_of(codes_), .largest = largest});
      leaf_state(value).make_values = [this] { decode_fp8(); };
    });
  });
}

void FlatBuffer::decode_fp8() {
  make_whole_values();
  zero_gaps(layout_, values_);
  for_each_matrix([&](size_t i, const Tensor& largest) {
    const FlatEntry& entry = layout_.entries[i];
    kernels::fp8_decode(
        values_.exec(),
        {.codes = entry.part_of(codes_), .largest = largest, .y = entry.part_of(values_)});
    entry.parameter->bind(shared_.context, values_.storage(), entry.offset, traits_.compute);
  });
}

void FlatBuffer::decode_values() {
  if (gathers_fp8()) return;
  const Tensor codes = std::exchange(codes_, Tensor());
  if (!codes.defined()) return;
  kernels::decode_blocks(values_.exec(),
                         {.x = codes, .y = as_rows(values_), .code = *shared_.options.gather_code});
}

Work FlatBuffer::start_coded_sum(const CollectiveOptions& options) {
  const kernels::BlockCode code = *shared_.options.reduce_code;
  sent_codes_ = empty_codes(shared_.context, code, layout_.numel);
  got_codes_ = empty_codes(shared_.context, code, layout_.numel);
  kernels::encode_blocks(sent_codes_.exec(),
                         {.x = as_rows(whole_grad_), .y = sent_codes_, .code = code});
  return ranks().all_to_all(sent_codes_, got_codes_, options);
}

// To sum_, what the ranks have sent, by the tree of all sums.
void FlatBuffer::add_codes() {
  sent_codes_ = Tensor();
  const Tensor codes = std::exchange(got_codes_, Tensor());
  if (!codes.defined()) return;
  const int ranks = this->ranks().size();
  const int64_t rows = layout_.shard_numel / kFlatAlignment;
  const int64_t most = kStagedBytes / (ranks * kFlatAlignment * int64_t{sizeof(float)});
  const int64_t step = std::clamp<int64_t>(most, 1, std::max<int64_t>(rows, 1));
  const Tensor staged =
      empty(shared_.context, {ranks, step, kFlatAlignment}, DType::kF32, MemoryTag::kComm, name_);
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    std::vector<const void*> parts;
    for (int rank = 0; rank < ranks; ++rank) {
      const Tensor part =
          staged.alias({count, kFlatAlignment}, {kFlatAlignment, 1}, rank * step * kFlatAlignment);
      kernels::decode_blocks(part.exec(), {.x = rows_of(codes, rank * rows + first, count),
                                           .y = part,
                                           .code = *shared_.options.reduce_code});
      parts.push_back(part.data());
    }
    const Tensor to = vector_slice(sum_, first * kFlatAlignment, count * kFlatAlignment);
    void* const output = to.data();
    kernels::tree_sum(to.exec(), {.inputs = parts,
                                  .outputs = std::span(&output, 1),
                                  .count = to.numel(),
                                  .in_dtype = DType::kF32,
                                  .out_dtype = to.dtype()});
  }
}

}  // namespace shale::comm
