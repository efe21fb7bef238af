#include <array>
#include <memory>

#include "shale/bench/support/kernel_cases.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/reduce.h"

namespace shale::bench {
namespace {

using kernels::Epilogue;
using kernels::GemmArgs;

// Arguments of y = gelu(x w1^T + b1) w2^T + b2, and of its backward from dy. x has T tokens and d
// columns; there are 4 d hidden columns. Weight gradients have the weights' dtype, as in other
// frameworks.
struct FfnArgs {
  // The six GEMMs compute, in order: h and its pre-activation; y; d_pre and db1; dw2; dx; dw1.
  std::array<GemmArgs, 6> products{};
  static constexpr size_t kDPre = 2;  // index of the GEMM that is fused with GELU's derivative
  kernels::ColumnSumArgs db2{};
};

FfnArgs make_args(Operands& o, const FfnSize& size, DType dtype) {
  const int64_t T = size.tokens, d = size.width, hidden = 4 * d;
  const View x = o.floats(dtype, {T, d}), dy = o.floats(dtype, {T, d});
  const View w1 = o.floats(dtype, {hidden, d}, 0.03), w2 = o.floats(dtype, {d, hidden}, 0.03);
  const View pre = o.zeros(dtype, {T, hidden}), h = o.zeros(dtype, {T, hidden});
  const View d_pre = o.zeros(dtype, {T, hidden});
  FfnArgs args;
  args.products = {
      GemmArgs{.a = x,
               .b = transposed(w1),
               .c = h,
               .bias = o.floats(dtype, {hidden}),
               .epilogue = Epilogue::kGeluTanh,
               .aux = pre},
      GemmArgs{
          .a = h, .b = transposed(w2), .c = o.zeros(dtype, {T, d}), .bias = o.floats(dtype, {d})},
      GemmArgs{.a = dy,
               .b = w2,
               .c = d_pre,
               .epilogue = Epilogue::kDGeluTanh,
               .aux = pre,
               .bias_grad = o.zeros(DType::kF32, {hidden})},
      GemmArgs{.a = transposed(dy), .b = h, .c = o.zeros(dtype, {d, hidden})},
      GemmArgs{.a = d_pre, .b = w1, .c = o.zeros(dtype, {T, d})},
      GemmArgs{.a = transposed(d_pre), .b = x, .c = o.zeros(dtype, {hidden, d})}};
  args.db2 = {.x = dy, .y = o.zeros(DType::kF32, {d})};
  return args;
}

kernels::Cost cost_of(const FfnArgs& args) {
  kernels::Cost cost = kernels::cost_of(args.db2);
  for (const GemmArgs& product : args.products) cost += kernels::cost_of(product);
  return cost;
}

void run_fused(const Exec& exec, const FfnArgs& args) {
  for (const GemmArgs& product : args.products) kernels::gemm(exec, product);
  kernels::column_sum(exec, args.db2);
}

// The library has no derivative of GELU that rounds like the slot. Separate kernels therefore
// compute it, and the bias gradient.
void run_separate(const Exec& exec, const FfnArgs& args) {
  for (size_t i = 0; i < args.products.size(); ++i) {
    GemmArgs product = args.products[i];
    if (i != FfnArgs::kDPre) {
      kernels::gemm(exec, product);
      continue;
    }
    product.epilogue = Epilogue::kNone;
    product.aux = product.bias_grad = {};
    kernels::gemm(exec, product);
    const GemmArgs& whole = args.products[i];
    kernels::gelu_bwd(exec, {.x = whole.aux, .dy = whole.c, .dx = whole.c});
    kernels::column_sum(exec, {.x = whole.c, .y = whole.bias_grad});
  }
  kernels::column_sum(exec, args.db2);
}

VendorCall<FfnArgs> vendor_call(KernelDevice& device, const FfnArgs&) {
  const auto gemm = device.vendor_gemm();
  if (!gemm) return nullptr;
  const auto workspace = std::make_shared<DeviceWorkspace>(device);
  const Exec exec{
      .device = device.device(), .stream = device.stream(), .workspace = workspace.get()};
  return [gemm, workspace, exec](const FfnArgs& args) {
    for (const GemmArgs& product : args.products) gemm(product);
    kernels::column_sum(exec, args.db2);
  };
}

}  // namespace

void add_ffn(const FfnSize& size, DType dtype, DeviceType device, std::vector<KernelCase>& out) {
  const auto add = [&](const std::string& name, KernelFamily family) {
    // All copies of the operands use the same plans. The closure that makes the arguments is a part
    // of the case, and owns the plans.
    const auto plans = std::make_shared<std::array<kernels::GemmPlan, 6>>();
    const auto make = [=](Operands& o) {
      FfnArgs args = make_args(o, size, dtype);
      if (family == KernelFamily::kOfDevice) return args;
      for (size_t i = 0; i < plans->size(); ++i) {
        (*plans)[i] = plan_of_family(family, o.device(), args.products[i]);
        args.products[i].plan = &(*plans)[i];
      }
      return args;
    };
    const RunCase<FfnArgs> run = family == KernelFamily::kVendor ? run_separate : run_fused;
    const bool beside = family != KernelFamily::kVendor;
    out.push_back(
        make_case<FfnArgs>(cat(name, "/d", size.width, "/t", size.tokens, "/", dtype_name(dtype)),
                           kernels::gemm.name(), run, dtype, make, beside ? vendor_call : nullptr,
                           {.family = family}));
  };
  add("ffn", KernelFamily::kOfDevice);
  for (const KernelFamily family : {KernelFamily::kPortable, KernelFamily::kHopper}) {
    add(cat(family_name(family), "_ffn"), family);
  }
  // Only cuBLASLt has these epilogues, and it exists only on GPUs.
  if (device == DeviceType::kCuda) add("vendor_ffn", KernelFamily::kVendor);
}

}  // namespace shale::bench
