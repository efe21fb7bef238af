#include "bench/support/operands.h"

#include <algorithm>

#include "bench/support/peaks.h"
#include "bench/support/vendor_matmul.h"
#include "kernels/registry.h"
#include "runtime/base/error.h"

namespace shale::bench {
namespace {

constexpr int64_t kFewestRotationBytes = int64_t{128} << 20;
constexpr int64_t kMostRotationBytes = int64_t{1} << 30;

}  // namespace

void* Operands::raw(size_t bytes) {
  buffers_.emplace_back(std::max<size_t>(bytes, 1));
  bytes_ += int64_t(bytes);
  return buffers_.back().data();
}

View Operands::zeros(DType dtype, const Shape& shape) {
  return make_view(raw(size_t(shape.numel() * dtype_size(dtype))), dtype, shape);
}

View Operands::floats(DType dtype, const Shape& shape, double scale) {
  const View view = zeros(dtype, shape);
  fill_uniform(view, scale, ++seed_);
  return view;
}

View Operands::integers(const Shape& shape, int64_t bound) {
  const View view = zeros(DType::kI32, shape);
  fill_integers(view, bound, ++seed_);
  return view;
}

View Operands::shared(const std::string& name, DType dtype, const Shape& shape) {
  const auto found = shared_.find(name);
  if (found != shared_.end()) return found->second;
  const int64_t before = bytes_;
  const View view = floats(dtype, shape);
  bytes_ = before;
  shared_[name] = view;
  return view;
}

KernelBench::KernelBench(int threads, int64_t rotation_bytes) : rotation_bytes_(rotation_bytes) {
  if (rotation_bytes == 0) {
    rotation_bytes_ =
        std::clamp(4 * last_level_cache_bytes(), kFewestRotationBytes, kMostRotationBytes);
  }
  kernels::register_cpu_kernels();
  step_.lr = 1e-4f;
  step_.grad_scale = 1e-3f;
  step_.seed = 1;
  exec_.workspace = &workspace_;
  exec_.step = &step_;
  exec_.threads = threads;
}

int64_t KernelBench::copies(int64_t bytes) const {
  return std::clamp<int64_t>(rotation_bytes_ / std::max<int64_t>(bytes, 1), 1, 4096);
}

KernelCase make_gemm_case(std::string name, DType dtype,
                          std::function<kernels::GemmArgs(Operands&)> make) {
  struct Vendor {
    std::vector<kernels::GemmArgs> args;  // views only: the operands belong to the case
    std::unique_ptr<VendorMatmul> matmul;
    Buffer scratch;
    size_t next = 0;
  };
  // The copies are made by make_case(); this keeps their views for the other side.
  const auto vendor = std::make_shared<Vendor>();
  KernelCase made = make_case<kernels::GemmArgs>(
      std::move(name), kernels::gemm, dtype, [vendor, make = std::move(make)](Operands& operands) {
        vendor->args.push_back(make(operands));
        return vendor->args.back();
      });
  made.prepare = [vendor, prepare = std::move(made.prepare)](const KernelBench& bench) {
    *vendor = {};
    PreparedCase prepared = prepare(bench);
    try {
      vendor->matmul = std::make_unique<VendorMatmul>(matmul_spec(vendor->args.front()));
    } catch (const UnavailableError&) {
      return prepared;  // a row without the other side
    }
    vendor->scratch = Buffer(vendor->matmul->scratch_bytes());
    prepared.vendor = [vendor] {
      const kernels::GemmArgs& args = vendor->args[vendor->next++ % vendor->args.size()];
      vendor->matmul->run(args.a.data, args.b.data, args.c.data, vendor->scratch.data());
    };
    return prepared;
  };
  return made;
}

}  // namespace shale::bench
