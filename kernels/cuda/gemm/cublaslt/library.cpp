#include "shale/kernels/cuda/gemm/cublaslt/library.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/kernels/cuda/gemm/cublaslt/matmul.h"

namespace shale::kernels::cuda::cublaslt {
namespace {

// Returns the file names to try. All these versions of the library have the functions that Shale
// uses, with the same enum values. The version of this build's header comes first.
std::vector<std::string> names() {
  constexpr int kBuiltWith = CUBLAS_VER_MAJOR, kOther = CUBLAS_VER_MAJOR == 13 ? 12 : 13;
  return {cat("libcublasLt.so.", kBuiltWith), cat("libcublasLt.so.", kOther), "libcublasLt.so"};
}

struct Loaded {
  std::optional<Library> library;
  std::string error;  // why there is no library
};

bool find_functions(void* handle, Library& library, std::string& error) {
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && error.empty()) error = cat("it has no function ", name);
  };
  find(library.create, "cublasLtCreate");
  find(library.get_version, "cublasLtGetVersion");
  find(library.get_status_string, "cublasLtGetStatusString");
  find(library.matmul, "cublasLtMatmul");
  find(library.desc_create, "cublasLtMatmulDescCreate");
  find(library.desc_destroy, "cublasLtMatmulDescDestroy");
  find(library.desc_set, "cublasLtMatmulDescSetAttribute");
  find(library.layout_create, "cublasLtMatrixLayoutCreate");
  find(library.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(library.preference_create, "cublasLtMatmulPreferenceCreate");
  find(library.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(library.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(library.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  return error.empty();
}

// Loads the library, which is never unloaded, because its handles exist until the process ends.
Loaded load() {
  Loaded loaded;
  std::vector<std::string> tried = names();
  if (const char* chosen = std::getenv("SHALE_CUBLASLT"); chosen != nullptr && *chosen != '\0') {
    if (std::string(chosen) == "off") return {std::nullopt, "SHALE_CUBLASLT is off"};
    tried = {chosen};
  }
  for (const std::string& name : tried) {
    loaded.error += loaded.error.empty() ? "" : "; ";
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* reason = dlerror();
      loaded.error += reason != nullptr ? reason : name;
      continue;
    }
    Library library{};
    std::string missing;
    if (find_functions(handle, library, missing)) return {library, ""};
    loaded.error += cat(name, ": ", missing);
    dlclose(handle);
  }
  return loaded;
}

const Loaded& loaded() {
  static const Loaded once = [] {
    Loaded result = load();
    if (!result.library) {
      log_info("cuBLASLt is not used, GEMMs run on Shale's own kernels: ", result.error);
    }
    return result;
  }();
  return once;
}

}  // namespace

const Library* library() {
  return loaded().library ? &*loaded().library : nullptr;
}

const Library& required_library(const char* op) {
  if (const Library* found = library()) return *found;
  throw UnavailableError(cat(op, ": cuBLASLt cannot be loaded: ", loaded().error,
                             "; put its folder into LD_LIBRARY_PATH"));
}

std::string version() {
  const Library* found = library();
  if (found == nullptr) return "";
  const size_t number = found->get_version();  // such as 130100; before version 13, such as 120304
  return cat(number / 10000, ".", number / 100 % 100, ".", number % 100);
}

void check(cublasStatus_t result, const char* what) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  const std::string message =
      cat("cublaslt: ", what, ": ", required_library().get_status_string(result));
  switch (result) {
    case CUBLAS_STATUS_ALLOC_FAILED: throw OutOfMemoryError(message);
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_ARCH_MISMATCH: throw UnavailableError(message);
    default: throw InternalError(message);
  }
}

}  // namespace shale::kernels::cuda::cublaslt
