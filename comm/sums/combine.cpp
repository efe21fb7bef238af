#include "shale/comm/sums/combine.h"

#include <algorithm>
#include <cmath>

#include "shale/kernels/tree_sum.h"

namespace shale::comm {
namespace {

template <typename T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return std::max(a, b);
}

// Maximum of the inputs. A plain loop suffices, because callers pass few values.
template <typename T>
void max_of(const CombineArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) {
    T value = static_cast<const T*>(args.inputs[0])[i];
    for (const void* input : args.inputs.subspan(1)) {
      value = larger(value, static_cast<const T*>(input)[i]);
    }
    for (void* const output : args.outputs) static_cast<T*>(output)[i] = value;
  }
}

}  // namespace

void combine(const Exec& exec, const CombineArgs& args) {
  if (args.count == 0) return;
  if (args.op != CollectiveOp::kAllReduceMax) {
    kernels::tree_sum(exec, {.inputs = args.inputs,
                             .outputs = args.outputs,
                             .count = args.count,
                             .in_dtype = args.in_dtype,
                             .out_dtype = args.out_dtype,
                             .stream = args.stream});
    return;
  }
  switch (args.in_dtype) {
    case DType::kF32: return max_of<float>(args);
    case DType::kF64: return max_of<double>(args);
    case DType::kI32: return max_of<int32_t>(args);
    case DType::kI64: return max_of<int64_t>(args);
    default: break;
  }
  throw DTypeError(cat("all_reduce_max: cannot compare ", dtype_name(args.in_dtype)));
}

void copy_to(const Exec& exec, const void* from, std::span<void* const> to, int64_t bytes,
             bool stream) {
  if (bytes == 0) return;
  kernels::tree_sum(exec, {.inputs = std::span(&from, 1),
                           .outputs = to,
                           .count = bytes,
                           .in_dtype = DType::kU8,
                           .out_dtype = DType::kU8,
                           .stream = stream});
}

Range part_of(int64_t count, int parts, int i, DType dtype) {
  const int64_t line = 64 / dtype_size(dtype);
  const int64_t lines = (count + line - 1) / line;
  const auto start = [&](int part) { return std::min(count, lines * part / parts * line); };
  return {.begin = start(i), .end = start(i + 1)};
}

}  // namespace shale::comm
