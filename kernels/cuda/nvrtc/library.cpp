#include "shale/kernels/cuda/nvrtc/library.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "shale/base/error.h"

namespace shale::kernels::cuda::nvrtc {
namespace {

std::string wish() {
  const char* value = std::getenv("SHALE_NVRTC");
  return value != nullptr ? value : "";
}

bool find_functions(void* handle, Library& library, std::string& error) {
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && error.empty()) error = cat("it has no function ", name);
  };
  find(library.get_error_string, "nvrtcGetErrorString");
  find(library.create_program, "nvrtcCreateProgram");
  find(library.destroy_program, "nvrtcDestroyProgram");
  find(library.compile_program, "nvrtcCompileProgram");
  find(library.get_cubin_size, "nvrtcGetCUBINSize");
  find(library.get_cubin, "nvrtcGetCUBIN");
  find(library.get_log_size, "nvrtcGetProgramLogSize");
  find(library.get_log, "nvrtcGetProgramLog");
  return error.empty();
}

// Loads the library, which is never unloaded.
Library load() {
  constexpr int kBuiltWith = CUDA_VERSION / 1000, kOther = kBuiltWith == 13 ? 12 : 13;
  std::vector<std::string> names = {cat("libnvrtc.so.", kBuiltWith), cat("libnvrtc.so.", kOther),
                                    "libnvrtc.so"};
  if (!wish().empty()) names = {wish()};
  std::string tried;
  for (const std::string& name : names) {
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    const char* reason = handle == nullptr ? dlerror() : nullptr;
    Library library{};
    std::string missing;
    if (handle != nullptr && find_functions(handle, library, missing)) return library;
    if (handle != nullptr) dlclose(handle);
    tried += cat(tried.empty() ? "" : "; ", reason != nullptr ? std::string(reason) : missing);
  }
  throw UnavailableError(
      cat("fused: NVIDIA's NVRTC, which compiles chains of ops, cannot be loaded: ", tried,
          "; install it (it is part of CUDA), name its file in SHALE_NVRTC, or set SHALE_NVRTC to "
          "\"off\" to interpret chains on the GPU"));
}

}  // namespace

const Library& library() {
  static const Library once = load();
  return once;
}

bool switched_off() {
  static const bool off = wish() == "off";
  return off;
}

}  // namespace shale::kernels::cuda::nvrtc
