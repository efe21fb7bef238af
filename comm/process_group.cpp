#include "shale/comm/process_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "shale/base/clock.h"
#include "shale/base/error.h"
#include "shale/comm/sums/slices.h"

namespace shale::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Returns `view` as a vector. Throws ShapeError that names the argument.
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
                         slice, ", expected one dtype"));
  }
  if (whole.numel() != slice.numel() * ranks) {
    throw ShapeError(cat(op_name(op), ": ", whole_name, " is ", whole, ", expected ", ranks,
                         " times ", slice_name, ", which is ", slice));
  }
}

// Checks that `slice` overlaps no slice of `whole` but that of this rank, because transfers of all
// slices run at the same time.
void check_overlap(CollectiveOp op, const View& whole, const View& slice, int rank) {
  if (slice.bytes() == 0) return;
  const auto* begin = static_cast<const std::byte*>(whole.data);
  const auto* part = static_cast<const std::byte*>(slice.data);
  const bool apart = part + slice.bytes() <= begin || begin + whole.bytes() <= part;
  if (apart || part == begin + slice.bytes() * rank) return;
  throw ShapeError(cat(op_name(op), ": in and out overlap, expected an overlap only in slice ",
                       rank, ", the slice of this rank"));
}

void check_root(CollectiveOp op, int root, int ranks) {
  if (root >= 0 && root < ranks) return;
  throw ShapeError(cat(op_name(op), ": root is ", root, ", expected 0 to ", ranks - 1));
}

// Checks that in and out do not overlap, because transfers of all slices run at the same time.
void check_apart(CollectiveOp op, const View& in, const View& out) {
  const auto* given = static_cast<const std::byte*>(in.data);
  const auto* received = static_cast<const std::byte*>(out.data);
  if (in.bytes() == 0 || out.bytes() == 0) return;
  if (given + in.bytes() <= received || received + out.bytes() <= given) return;
  throw ShapeError(cat(op_name(op), ": in and out overlap, expected separate buffers"));
}

void check_counts(const char* argument, const View& view, std::span<const int64_t> counts,
                  int ranks) {
  const auto op = op_name(CollectiveOp::kAllToAllV);
  if (counts.size() != static_cast<size_t>(ranks)) {
    throw ShapeError(cat(op, ": ", argument, "_counts has ", counts.size(),
                         " elements, expected one for each of ", ranks, " ranks"));
  }
  int64_t sum = 0;
  for (const int64_t count : counts) {
    if (count < 0)
      throw ShapeError(cat(op, ": ", argument, "_counts: expected 0 or more, found ", count));
    sum += count;
  }
  if (sum == view.numel()) return;
  throw ShapeError(cat(op, ": ", argument, "_counts add up to ", sum, ", expected ", view.numel(),
                       ", the number of elements of ", argument));
}

// A gather needs slices of equal length. Each slice has the length of its text, then the text.
constexpr size_t kLengthBytes = sizeof(int64_t);

std::vector<uint8_t> with_length(std::string_view text, int64_t longest) {
  std::vector<uint8_t> slice(kLengthBytes + static_cast<size_t>(longest));
  const auto length = static_cast<int64_t>(text.size());
  std::memcpy(slice.data(), &length, kLengthBytes);
  std::copy(text.begin(), text.end(), slice.begin() + kLengthBytes);
  return slice;
}

std::vector<std::string> texts_of(const std::vector<uint8_t>& slices, size_t slice_bytes) {
  std::vector<std::string> texts;
  for (size_t first = 0; first < slices.size(); first += slice_bytes) {
    int64_t length = 0;
    std::memcpy(&length, slices.data() + first, kLengthBytes);
    const auto begin = slices.begin() + static_cast<int64_t>(first + kLengthBytes);
    texts.emplace_back(begin, begin + length);
  }
  return texts;
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
    case CollectiveOp::kGather: return "gather";
    case CollectiveOp::kReduceSum: return "reduce_sum";
    case CollectiveOp::kAllToAll: return "all_to_all";
    case CollectiveOp::kAllToAllV: return "all_to_all_v";
  }
  return "unknown";
}

Work ProcessGroup::issue(CollectiveCall call, const CollectiveOptions& options) {
  call.tag = options.tag;
  call.stream = options.stream;
  call.traffic = options.traffic;
  call.step = options.step;
  if (captures(call.stream)) {
    captured_.push_back(call);
  } else {
    meter_->add_call(options.traffic, sent_bytes(call, rank(), size()));
  }
  if (options.after != nullptr) call.after = options.after->state();
  if (options.async) {
    Work work = submit(call, /*async=*/true);
    work.measure(meter_, options.traffic);
    return work;
  }
  const Clock::time_point start = Clock::now();
  Work work = submit(call, /*async=*/false);
  meter_->add_exposed(options.traffic, seconds_since(start));
  return work;
}

void ProcessGroup::replayed(const std::vector<CollectiveCall>& calls, void* stream) {
  for (const CollectiveCall& call : calls) {
    meter_->add_call(call.traffic, sent_bytes(call, rank(), size()));
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
  check_root(op, root, size());
  const View flat = as_vector(op, "buffer", buffer);
  return issue({.op = op, .in = flat, .out = flat, .root = root}, options);
}

Work ProcessGroup::reduce_sum(const View& buffer, int root, const CollectiveOptions& options) {
  const auto op = CollectiveOp::kReduceSum;
  check_root(op, root, size());
  check_dtype(op, buffer.dtype, can_add(buffer.dtype));
  const View flat = as_vector(op, "buffer", buffer);
  return issue({.op = op, .in = flat, .out = flat, .root = root}, options);
}

Work ProcessGroup::all_to_all(const View& in, const View& out, const CollectiveOptions& options) {
  const auto op = CollectiveOp::kAllToAll;
  const CollectiveCall call{
      .op = op, .in = as_vector(op, "in", in), .out = as_vector(op, "out", out)};
  check_slices(op, call.in, call.out.flat(0, call.out.numel() / size()), size(), "in",
               "a slice of out");
  check_slices(op, call.out, call.in.flat(0, call.in.numel() / size()), size(), "out",
               "a slice of in");
  check_apart(op, call.in, call.out);
  return issue(call, options);
}

Work ProcessGroup::all_to_all_v(const View& in, std::span<const int64_t> in_counts, const View& out,
                                std::span<const int64_t> out_counts,
                                const CollectiveOptions& options) {
  const auto op = CollectiveOp::kAllToAllV;
  CollectiveCall call{.op = op, .in = as_vector(op, "in", in), .out = as_vector(op, "out", out)};
  if (in.dtype != out.dtype) {
    throw DTypeError(cat(op_name(op), ": in is ", in, ", out is ", out, ", expected one dtype"));
  }
  check_counts("in", call.in, in_counts, size());
  check_counts("out", call.out, out_counts, size());
  check_apart(op, call.in, call.out);
  if (size() == 1 && in.numel() != out.numel()) {
    throw CommError(cat(op_name(op), ": in is ", in, " and out is ", out,
                        ", expected equal sizes in a group of one rank"));
  }
  call.in_counts.assign(in_counts.begin(), in_counts.end());
  call.out_counts.assign(out_counts.begin(), out_counts.end());
  call.balance = pair_balance(rank(), in_counts, out_counts);
  return issue(std::move(call), options);
}

Work ProcessGroup::gather(const View& in, const View& out, int root,
                          const CollectiveOptions& options) {
  const auto op = CollectiveOp::kGather;
  check_root(op, root, size());
  const View own = as_vector(op, "in", in);
  if (rank() != root) {
    return issue({.op = op, .in = own, .out = own.flat(0, 0), .root = root}, options);
  }
  const CollectiveCall call{.op = op, .in = own, .out = as_vector(op, "out", out), .root = root};
  check_slices(op, call.out, call.in, size(), "out", "in");
  check_overlap(op, call.out, call.in, rank());
  return issue(call, options);
}

void ProcessGroup::barrier(std::string_view tag) {
  if (&host() != this) return host().barrier(tag);
  const View nothing = make_view(static_cast<uint8_t*>(nullptr), {0});
  issue({.op = CollectiveOp::kBarrier, .in = nothing, .out = nothing}, {.tag = tag});
}

std::vector<std::string> ProcessGroup::all_gather_bytes(std::string_view mine,
                                                        std::string_view tag) {
  if (&host() != this) return host().all_gather_bytes(mine, tag);
  auto longest = static_cast<int64_t>(mine.size());
  all_reduce_max(make_view(&longest, {1}), {.tag = tag});
  std::vector<uint8_t> slice = with_length(mine, longest);
  std::vector<uint8_t> all(slice.size() * static_cast<size_t>(size()));
  all_gather(make_view(slice.data(), {static_cast<int64_t>(slice.size())}),
             make_view(all.data(), {static_cast<int64_t>(all.size())}), {.tag = tag});
  return texts_of(all, slice.size());
}

std::vector<std::string> ProcessGroup::gather_bytes(std::string_view mine, int root,
                                                    std::string_view tag) {
  if (&host() != this) return host().gather_bytes(mine, root, tag);
  auto longest = static_cast<int64_t>(mine.size());
  all_reduce_max(make_view(&longest, {1}), {.tag = tag});
  std::vector<uint8_t> slice = with_length(mine, longest);
  const auto ranks = static_cast<size_t>(size());
  std::vector<uint8_t> all(rank() == root ? slice.size() * ranks : 0);
  gather(make_view(slice.data(), {static_cast<int64_t>(slice.size())}),
         make_view(all.data(), {static_cast<int64_t>(all.size())}), root, {.tag = tag});
  return texts_of(all, slice.size());
}

std::string ProcessGroup::broadcast_bytes(std::string_view roots, int root, std::string_view tag) {
  if (&host() != this) return host().broadcast_bytes(roots, root, tag);
  auto length = static_cast<int64_t>(roots.size());
  broadcast(make_view(&length, {1}), root, {.tag = tag});
  std::string text(roots);
  text.resize(static_cast<size_t>(length));
  broadcast(make_view(reinterpret_cast<uint8_t*>(text.data()), {length}), root, {.tag = tag});
  return text;
}

std::unique_ptr<ProcessGroup> ProcessGroup::split(int color, int key, std::string_view name) {
  return split(color, key, name, options_.lane);
}

std::unique_ptr<ProcessGroup> ProcessGroup::split(int color, int key, std::string_view name,
                                                  Lane lane) {
  GroupOptions options = options_;
  options.name = name;
  options.lane = lane;
  auto child = make_split(color, key, options);
  account_for(*child);
  return child;
}

std::unique_ptr<ProcessGroup> ProcessGroup::split(std::span<const int> colors,
                                                  std::string_view name) {
  if (std::ssize(colors) != size()) {
    throw InternalError(cat("split: ", colors.size(), " colors for ", name,
                            ", expected one for each of ", size(), " ranks"));
  }
  GroupOptions options = options_;
  options.name = name;
  auto child = make_known_split(colors, options);
  account_for(*child);
  return child;
}

std::unique_ptr<ProcessGroup> ProcessGroup::make_known_split(std::span<const int> colors,
                                                             const GroupOptions& options) {
  return make_split(colors[static_cast<size_t>(rank_)], rank_, options);
}

}  // namespace shale::comm
