#include "shale/kernels/registry.h"

#include <array>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/cuda/gemm/gemm_in_parts.h"
#include "shale/kernels/cuda/hopper.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"
#include "shale/kernels/slots.h"

#ifdef SHALE_HAVE_CUBLASLT
#include "shale/kernels/cuda/gemm/cublaslt/gemm.h"
#endif
#ifdef SHALE_HAVE_NVRTC
#include "shale/kernels/cuda/nvrtc/pointwise.h"
#endif

namespace shale::kernels {
namespace {

#ifdef __CUDACC__
constexpr DeviceType kDevice = DeviceType::kCuda;
constexpr KernelParts kVendorHere = kVendorKernels;
#else
constexpr DeviceType kDevice = DeviceType::kEmu;
constexpr KernelParts kVendorHere = 0;  // the emulator cannot run the vendor's libraries
#endif
#ifdef SHALE_HAVE_CUBLASLT
constexpr KernelParts kBlasHere = kVendorHere;
#else
constexpr KernelParts kBlasHere = 0;
#endif
#ifdef SHALE_HAVE_NVRTC
constexpr KernelParts kNvrtcHere = kVendorHere;
#else
constexpr KernelParts kNvrtcHere = 0;
#endif

template <typename Args>
constexpr bool is_conv =
    std::is_same_v<Args, ConvArgs> || std::is_same_v<Args, ConvInputGradArgs> ||
    std::is_same_v<Args, ConvWeightGradArgs>;

// Optional parts of a slot. Convolutions include those of 1x1, which run as GEMMs.
template <typename Args>
constexpr KernelParts parts =
    std::is_same_v<Args, GemmArgs> ? kHopperKernels | kBlasHere | kFusedKernels
    : std::is_same_v<Args, GroupedGemmArgs> || std::is_same_v<Args, AttentionFwdArgs> ||
            std::is_same_v<Args, AttentionBwdArgs>
        ? kHopperKernels
    : is_conv<Args>                       ? kVendorHere
    : std::is_same_v<Args, PointwiseArgs> ? kNvrtcHere
                                          : 0;

template <KernelParts kOut>
void run_gemm(const Exec& exec, const GemmArgs& args) {
#ifdef SHALE_HAVE_CUBLASLT
  if constexpr ((kOut & kVendorKernels) == 0) return cuda::cublaslt::gemm(exec, args);
#endif
  SHALE_BACKEND::run(exec, args);
}

// Runs a slot without the optional parts in kOut.
template <KernelParts kOut, typename Args>
void run_without(const Exec& exec, const Args& args) {
  Exec inside = exec;
  if constexpr ((kOut & kHopperKernels) != 0) {
    if (is_hopper(exec.device)) {
      inside.device.arch = 80;  // with this number the portable kernels are used
      inside.dependent_launch = false;
    }
  }
  if constexpr (std::is_same_v<Args, GemmArgs>) {
    if constexpr ((kOut & kFusedKernels) != 0) {
      if (args.epilogue != Epilogue::kNone) {
        return SHALE_BACKEND::gemm_in_parts(inside, args, run_gemm<kOut>);
      }
    }
    run_gemm<kOut>(inside, args);
  } else if constexpr (is_conv<Args> && kOut != 0) {
    // requesting a tile avoids cuDNN, which has none
    static constexpr GemmTile kTile = GemmTile::k64x64;
    Args own = args;
    if (own.tile == nullptr) own.tile = &kTile;
    SHALE_BACKEND::run(inside, own);
  } else {
#ifdef SHALE_HAVE_CUBLASLT
    if constexpr (std::is_same_v<Args, Fp8GemmArgs>) {
      if (!is_hopper(exec.device)) return cuda::cublaslt::fp8_gemm(exec, args);
    }
#endif
#ifdef SHALE_HAVE_NVRTC
    if constexpr (std::is_same_v<Args, PointwiseArgs> && kOut == 0) {
      return cuda::nvrtc::pointwise(exec, args);
    }
#endif
    SHALE_BACKEND::run(inside, args);
  }
}

template <typename Args>
void refuse(const Exec& exec, const Args&) {
  const char* name = "";
  std::apply(
      [&](const auto&... slots) {
        const auto take = [&]<typename Other>(const Slot<Other>& slot) {
          if constexpr (std::is_same_v<Args, Other>) name = slot.name();
        };
        (take(slots), ...);
      },
      slots_on_all_devices());
  throw UnavailableError(cat(name, ": its kernel gave wrong results when ", exec.device,
                             " was checked, and no other can replace it; shale doctor shows what "
                             "was found"));
}

template <typename Args>
typename Slot<Args>::Fn function_without(KernelParts out) {
  if ((out & kEveryKernel) != 0) return refuse<Args>;
  return [&]<size_t... kOut>(std::index_sequence<kOut...>) {
    constexpr std::array<typename Slot<Args>::Fn, sizeof...(kOut)> kFunctions = {
        run_without<KernelParts{kOut} & parts<Args>, Args>...};
    return kFunctions[out];
  }
  (std::make_index_sequence<kOptionalParts + 1>());
}

void fill_slots() {
  std::apply(
      [](auto&... slots) {
        const auto fill = []<typename Args>(Slot<Args>& slot) {
          slot.set(kDevice, function_without<Args>(0));
        };
        (fill(slots), ...);
      },
      slots_on_all_devices());
}

#ifdef __CUDACC__
__global__ void probe_kernel() {}  // never launched; kernel_arch() reads its attributes
#endif

}  // namespace

#ifdef __CUDACC__
int cuda::kernel_arch() {
  cudaFuncAttributes attributes{};
  cuda::check(cudaFuncGetAttributes(&attributes, probe_kernel), "cudaFuncGetAttributes");
  return attributes.ptxVersion;
}
#endif

void SHALE_BACKEND::register_kernels() {
  static std::once_flag once;
  std::call_once(once, fill_slots);
}

KernelParts SHALE_BACKEND::parts_of(const Device& device, std::string_view slot) {
  KernelParts found = 0;
  std::apply(
      [&](const auto&... slots) {
        const auto look = [&]<typename Args>(const Slot<Args>& one) {
          if (slot == one.name()) found = parts<Args>;
        };
        (look(slots), ...);
      },
      slots_on_all_devices());
  return is_hopper(device) ? found : found & ~kHopperKernels;
}

void SHALE_BACKEND::leave_out(std::string_view slot, KernelParts out) {
  std::apply(
      [&](auto&... slots) {
        const auto set = [&]<typename Args>(Slot<Args>& one) {
          if (slot == one.name()) one.set(kDevice, function_without<Args>(out));
        };
        (set(slots), ...);
      },
      slots_on_all_devices());
}

}  // namespace shale::kernels
