#include "shale/kernels/cuda/cudnn/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <type_traits>

#include "shale/base/error.h"
#include "shale/base/log.h"

namespace shale::kernels::cudnn {
namespace {

constexpr const char* kName = "libcudnn.so.9";
// oldest supported version, 9.0.0; first unsupported version, 10.0.0
constexpr size_t kOldest = 90000, kNext = 100000;

const char* chosen() {
  const char* const name = std::getenv("SHALE_CUDNN");
  return name == nullptr || *name == '\0' ? nullptr : name;
}
bool is_off() {
  return chosen() != nullptr && std::string(chosen()) == "off";
}

struct Loaded {
  Library library;
  std::string error;  // why there is no library, else empty
};

// Loads the library, which is never unloaded, because its handles exist until the process ends.
Loaded load() {
  if (is_off()) return {{}, "SHALE_CUDNN is off"};
  const std::string name = chosen() != nullptr ? chosen() : kName;
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    return {{}, reason != nullptr ? reason : name};
  }
  Loaded loaded;
  Library& found = loaded.library;
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (function == nullptr && loaded.error.empty()) {
      loaded.error = cat(name, " has no function ", symbol);
    }
  };
  find(found.get_version, "cudnnGetVersion");
  find(found.get_error_string, "cudnnGetErrorString");
  find(found.create, "cudnnCreate");
  find(found.set_stream, "cudnnSetStream");
  find(found.create_descriptor, "cudnnBackendCreateDescriptor");
  find(found.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  find(found.finalize, "cudnnBackendFinalize");
  find(found.set_attribute, "cudnnBackendSetAttribute");
  find(found.get_attribute, "cudnnBackendGetAttribute");
  find(found.execute, "cudnnBackendExecute");
  if (!loaded.error.empty()) return loaded;
  const size_t number = found.get_version();
  if (number < kOldest || number >= kNext) {
    loaded.error =
        cat(name, " has version ", number, ", expected one of ", kOldest, " to ", kNext - 1);
  }
  return loaded;
}

const Loaded& loaded() {
  static const Loaded once = [] {
    Loaded result = load();
    if (!result.error.empty() && !is_asked_for()) {
      log_info("cuDNN is not used, convolutions run on Shale's own kernels: ", result.error);
    }
    return result;
  }();
  return once;
}

}  // namespace

bool is_asked_for() {
  return chosen() != nullptr && !is_off();
}

const Library* library() {
  const Loaded& all = loaded();
  if (all.error.empty()) return &all.library;
  if (!is_asked_for()) return nullptr;
  throw UnavailableError(
      cat("conv: cuDNN, which SHALE_CUDNN requests, cannot be used: ", all.error));
}

std::string version() {
  const Library* const found = library();
  if (found == nullptr) return "";
  const size_t number = found->get_version();  // such as 91002
  return cat(number / 10000, ".", number / 100 % 100, ".", number % 100);
}

}  // namespace shale::kernels::cudnn
