#include "shale/runtime/kernel_check/operands.h"

#include <algorithm>

#include "shale/kernels/gemm_problem.h"
#include "shale/runtime/kernel_check/fill.h"

namespace shale::kernel_check {
namespace {

// Maximum bytes of values that the host generates for a GPU. Larger operands repeat these values.
constexpr size_t kStagedBytes = size_t{64} << 20;

}  // namespace

View transposed(View matrix) {
  std::swap(matrix.shape[0], matrix.shape[1]);
  std::swap(matrix.strides[0], matrix.strides[1]);
  return matrix;
}

View Operands::add(DType dtype, const Shape& shape) {
  const auto bytes = size_t(shape.numel() * dtype_size(dtype));
  memory_.emplace_back(device_, bytes);
  bytes_ += int64_t(bytes);
  return all_.emplace_back(make_view(memory_.back().data(), dtype, shape));
}

void* Operands::raw(size_t bytes) {
  return add(DType::kU8, {int64_t(bytes)}).data;
}

std::span<void*> Operands::host_pointers(size_t count) {
  return pointers_.emplace_back(count, nullptr);
}

View Operands::zeros(DType dtype, const Shape& shape) {
  return add(dtype, shape);
}

// Makes a view in device memory. fill() writes its values to a dense view in host memory.
template <typename Fill>
View Operands::filled(DType dtype, const Shape& shape, Fill&& fill) {
  const View view = zeros(dtype, shape);
  const auto bytes = size_t(view.bytes());
  // All devices other than CUDA GPUs use host memory.
  if (device_.device().type != DeviceType::kCuda) {
    // Waits, because the device zeroes new memory asynchronously.
    device_.synchronize();
    fill(view);
    return view;
  }
  std::vector<std::byte> staged(std::min(bytes, kStagedBytes));
  if (staged.empty()) return view;
  fill(make_view(staged.data(), dtype, {int64_t(staged.size()) / dtype_size(dtype)}));
  for (size_t at = 0; at < bytes; at += staged.size()) {
    device_.backend().copy(static_cast<std::byte*>(view.data) + at, staged.data(),
                           std::min(staged.size(), bytes - at), device_.stream());
  }
  return view;
}

View Operands::floats(DType dtype, const Shape& shape, double scale) {
  return filled(dtype, shape, [&](const View& view) { fill_uniform(view, scale, ++seed_); });
}

View Operands::integers(const Shape& shape, int64_t bound) {
  return filled(DType::kI32, shape, [&](const View& view) { fill_integers(view, bound, ++seed_); });
}

View Operands::integers(const Shape& shape, const std::function<int32_t(int64_t)>& value) {
  return filled(DType::kI32, shape, [&](const View& view) {
    for (int64_t i = 0; i < view.numel(); ++i) view.as<int32_t>()[i] = value(i);
  });
}

View Operands::codes(const Shape& shape) {
  return filled(DType::kU8, shape, [](const View& view) {
    for (int64_t i = 0; i < view.numel(); ++i) {
      view.as<uint8_t>()[i] = static_cast<uint8_t>((i * 2654435761u >> 13) & 0xbf);
    }
  });
}

View Operands::values(const Shape& shape, const std::function<float(int64_t)>& value) {
  return filled(DType::kF32, shape, [&](const View& view) {
    for (int64_t i = 0; i < view.numel(); ++i) view.as<float>()[i] = value(i);
  });
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

KernelBench::KernelBench(KernelDevice& device, int64_t rotation_bytes)
    : KernelBench(
          device,
          Exec{.device = device.device(), .stream = device.stream(), .threads = device.threads()}) {
  rotation_bytes_ = rotation_bytes > 0 ? rotation_bytes : device.rotation_bytes();
}

KernelBench::KernelBench(KernelDevice& device, const Exec& exec)
    : device_(device),
      workspace_(device),
      step_(device, sizeof(StepState)),
      exec_(exec),
      rotation_bytes_(1) {
  StepState step;
  step.lr = 1e-4f;
  step.grad_scale = 1e-3f;
  step.seed = 1;
  device.backend().copy(step_.data(), &step, sizeof step, device.stream());
  exec_.workspace = &workspace_;
  exec_.step = static_cast<StepState*>(step_.data());
}

int64_t KernelBench::copies(int64_t bytes) const {
  return std::clamp<int64_t>(rotation_bytes_ / std::max<int64_t>(bytes, 1), 1, 4096);
}

KernelCase make_gemm_case(std::string name, DType dtype,
                          std::function<kernels::GemmArgs(Operands&)> make,
                          const CaseOptions& options) {
  const auto vendor = [](KernelDevice& device,
                         const kernels::GemmArgs& first) -> VendorCall<kernels::GemmArgs> {
    const VendorProduct product = device.vendor_product(matmul_spec(first));
    if (!product) return nullptr;
    return [product](const kernels::GemmArgs& args) {
      product(args.a.data, args.b.data, args.c.data);
      if (args.b_up.defined()) product(args.a.data, args.b_up.data, args.aux_up.data);
    };
  };
  return make_case<kernels::GemmArgs>(std::move(name), kernels::gemm, dtype, std::move(make),
                                      vendor, options);
}

kernels::GemmPlan plan_of_family(KernelFamily family, const Device& device,
                                 const kernels::GemmArgs& args) {
  using kernels::GemmEngine;
  using kernels::GemmTile;
  if (family == KernelFamily::kVendor) return {.engine = GemmEngine::kVendor};
  const bool hopper = family == KernelFamily::kHopper;
  kernels::GemmMeans means = kernels::gemm_means(device);
  means.hopper = hopper;
  const kernels::GemmPlan plan = kernels::gemm_plan(kernels::gemm_problem(args), means);
  return !hopper || is_hopper(plan.tile) ? plan
                                         : kernels::GemmPlan{.tile = GemmTile::kHopper128x128};
}

const char* family_name(KernelFamily family) {
  constexpr const char* kNames[kKernelFamilies] = {"device", "portable", "hopper", "vendor"};
  return kNames[size_t(family)];
}

}  // namespace shale::kernel_check
