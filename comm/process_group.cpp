#include "shale/comm/process_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "shale/base/error.h"

namespace shale::comm {
namespace {

using Clock = std::chrono::steady_clock;

// The call with its views as vectors. Throws ShapeError naming the argument.
View as_vector(CollectiveOp op, const char* argument, const View& view) {
  if (!view.contiguous()) {
    throw ShapeError(cat(op_name(op), ": ", argument, " is ", view, " and not contiguous"));
  }
  return view.flat(0, view.numel());
}

void check_dtype(CollectiveOp op, DType dtype, bool allowed) {
  if (allowed) return;
  throw DTypeError(cat(op_name(op), ": cannot combine elements of ", dtype_name(dtype)));
}

bool can_add(DType dtype) {
  return is_float(dtype) || dtype == DType::kI32 || dtype == DType::kI64;
}

void check_slices(CollectiveOp op, const View& whole, const View& slice, int ranks,
                  const char* whole_name, const char* slice_name) {
  if (whole.dtype != slice.dtype) {
    throw DTypeError(cat(op_name(op), ": ", whole_name, " is ", whole, ", ", slice_name, " is ",
                         slice, ", want one dtype"));
  }
  if (whole.numel() != slice.numel() * ranks) {
    throw ShapeError(cat(op_name(op), ": ", whole_name, " is ", whole, ", want ", ranks, " times ",
                         slice_name, ", which is ", slice));
  }
}

// Only the slice of this rank may be both: the transfers of other slices overlap in time.
void check_overlap(CollectiveOp op, const View& whole, const View& slice, int rank) {
  if (slice.bytes() == 0) return;
  const auto* begin = static_cast<const std::byte*>(whole.data);
  const auto* part = static_cast<const std::byte*>(slice.data);
  const bool apart = part + slice.bytes() <= begin || begin + whole.bytes() <= part;
  if (apart || part == begin + slice.bytes() * rank) return;
  throw ShapeError(
      cat(op_name(op), ": in and out overlap, and not at slice ", rank, ", the one of this rank"));
}

}  // namespace

std::string_view op_name(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::kBarrier: return "barrier";
    case CollectiveOp::kAllReduceSum: return "all_reduce_sum";
    case CollectiveOp::kAllReduceMax: return "all_reduce_max";
    case CollectiveOp::kReduceScatterSum: return "reduce_scatter_sum";
    case CollectiveOp::kAllGather: return "all_gather";
    case CollectiveOp::kBroadcast: return "broadcast";
  }
  return "unknown";
}

Work ProcessGroup::issue(CollectiveCall call, const CollectiveOptions& options) {
  call.tag = options.tag;
  call.stream = options.stream;
  call.traffic = options.traffic;
  if (captures(call.stream)) {
    captured_.push_back(call);
  } else {
    meter_->add_call(options.traffic, ring_bytes(call, size()));
  }
  if (options.after != nullptr) call.after = options.after->state();
  if (options.async) {
    Work work = submit(call, /*async=*/true);
    work.measure(meter_, options.traffic);
    return work;
  }
  const Clock::time_point start = Clock::now();
  Work work = submit(call, /*async=*/false);
  meter_->add_exposed(options.traffic, std::chrono::duration<double>(Clock::now() - start).count());
  return work;
}

void ProcessGroup::replayed(const std::vector<CollectiveCall>& calls, void* stream) {
  for (const CollectiveCall& call : calls) {
    meter_->add_call(call.traffic, ring_bytes(call, size()));
  }
  watch_replay(calls, stream);
}

Work ProcessGroup::all_reduce_sum(const View& buffer, const CollectiveOptions& options) {
  const auto op = CollectiveOp::kAllReduceSum;
  check_dtype(op, buffer.dtype, can_add(buffer.dtype));
  const View flat = as_vector(op, "buffer", buffer);
  return issue({.op = op, .in = flat, .out = flat}, options);
}

Work ProcessGroup::all_reduce_max(const View& buffer, const CollectiveOptions& options) {
  const auto op = CollectiveOp::kAllReduceMax;
  check_dtype(op, buffer.dtype, can_add(buffer.dtype) && dtype_size(buffer.dtype) >= 4);
  const View flat = as_vector(op, "buffer", buffer);
  return issue({.op = op, .in = flat, .out = flat}, options);
}

Work ProcessGroup::reduce_scatter_sum(const View& in, const View& out,
                                      const CollectiveOptions& options) {
  const auto op = CollectiveOp::kReduceScatterSum;
  check_dtype(op, in.dtype, can_add(in.dtype));
  const CollectiveCall call{
      .op = op, .in = as_vector(op, "in", in), .out = as_vector(op, "out", out)};
  check_slices(op, call.in, call.out, size(), "in", "out");
  check_overlap(op, call.in, call.out, rank());
  return issue(call, options);
}

Work ProcessGroup::all_gather(const View& in, const View& out, const CollectiveOptions& options) {
  const auto op = CollectiveOp::kAllGather;
  const CollectiveCall call{
      .op = op, .in = as_vector(op, "in", in), .out = as_vector(op, "out", out)};
  check_slices(op, call.out, call.in, size(), "out", "in");
  check_overlap(op, call.out, call.in, rank());
  return issue(call, options);
}

Work ProcessGroup::broadcast(const View& buffer, int root, const CollectiveOptions& options) {
  const auto op = CollectiveOp::kBroadcast;
  if (root < 0 || root >= size()) {
    throw ShapeError(cat(op_name(op), ": root is ", root, ", want 0 to ", size() - 1));
  }
  const View flat = as_vector(op, "buffer", buffer);
  return issue({.op = op, .in = flat, .out = flat, .root = root}, options);
}

void ProcessGroup::barrier(std::string_view tag) {
  if (&host() != this) return host().barrier(tag);
  const View nothing = make_view(static_cast<uint8_t*>(nullptr), {0});
  issue({.op = CollectiveOp::kBarrier, .in = nothing, .out = nothing}, {.tag = tag});
}

std::vector<std::string> ProcessGroup::all_gather_bytes(std::string_view mine,
                                                        std::string_view tag) {
  if (&host() != this) return host().all_gather_bytes(mine, tag);
  const auto ranks = static_cast<size_t>(size());
  auto length = static_cast<int64_t>(mine.size());
  std::vector<int64_t> lengths(ranks);
  all_gather(make_view(&length, {1}), make_view(lengths.data(), {size()}), {.tag = tag});

  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<uint8_t> padded(static_cast<size_t>(longest));
  std::copy(mine.begin(), mine.end(), padded.begin());
  std::vector<uint8_t> all(padded.size() * ranks);
  all_gather(make_view(padded.data(), {longest}), make_view(all.data(), {longest * size()}),
             {.tag = tag});

  std::vector<std::string> texts;
  for (size_t r = 0; r < ranks; ++r) {
    const auto begin = all.begin() + static_cast<int64_t>(r) * longest;
    texts.emplace_back(begin, begin + lengths[r]);
  }
  return texts;
}

std::unique_ptr<ProcessGroup> ProcessGroup::split(int color, int key, std::string_view name) {
  auto child = make_split(color, key, name);
  account_for(*child);
  return child;
}

}  // namespace shale::comm
