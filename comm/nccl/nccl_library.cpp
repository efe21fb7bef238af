#include <dlfcn.h>

#include "shale/base/error.h"
#include "shale/comm/nccl/nccl_library_internal.h"
#include "shale/comm/nccl/nccl_version.h"

namespace shale::comm {
namespace {

constexpr const char* kName = "libnccl.so.2";
static_assert(kOldestNccl == NCCL_VERSION(2, 26, 2));

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw UnavailableError(cat("nccl: ", kName, " lacks ", name));
}

}  // namespace

NcclLibrary NcclLibrary::load() {
  // The library is never closed, because its threads may still run its code.
  void* const library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    throw UnavailableError(cat("nccl: cannot load ", kName, ": ", reason));
  }
  NcclLibrary nccl;
  find(library, "ncclGetVersion", nccl.get_version);
  int version = 0;
  if (nccl.get_version(&version) != ncclSuccess || version < kOldestNccl) {
    throw UnavailableError(cat("nccl: ", kName, " has version ", nccl_version_text(version),
                               ", expected ", nccl_version_text(kOldestNccl), " or later"));
  }
  find(library, "ncclGetUniqueId", nccl.get_unique_id);
  find(library, "ncclGetErrorString", nccl.get_error_string);
  find(library, "ncclGetLastError", nccl.get_last_error);
  find(library, "ncclCommInitRankConfig", nccl.comm_init_rank_config);
  find(library, "ncclCommSplit", nccl.comm_split);
  find(library, "ncclCommDestroy", nccl.comm_destroy);
  find(library, "ncclCommAbort", nccl.comm_abort);
  nccl.comm_revoke = reinterpret_cast<decltype(nccl.comm_revoke)>(dlsym(library, "ncclCommRevoke"));
  find(library, "ncclCommGetAsyncError", nccl.comm_get_async_error);
  find(library, "ncclCommRegister", nccl.comm_register);
  find(library, "ncclCommDeregister", nccl.comm_deregister);
  find(library, "ncclMemAlloc", nccl.mem_alloc);
  find(library, "ncclMemFree", nccl.mem_free);
  find(library, "ncclAllReduce", nccl.all_reduce);
  find(library, "ncclReduceScatter", nccl.reduce_scatter);
  find(library, "ncclAllGather", nccl.all_gather);
  find(library, "ncclBroadcast", nccl.broadcast);
  find(library, "ncclReduce", nccl.reduce);
  find(library, "ncclSend", nccl.send);
  find(library, "ncclRecv", nccl.receive);
  find(library, "ncclGroupStart", nccl.group_start);
  find(library, "ncclGroupEnd", nccl.group_end);
  nccl.emulated = dlsym(library, "shale_nccl_of_emulated_gpus") != nullptr;
  return nccl;
}

const NcclLibrary& NcclLibrary::get() {
  static const NcclLibrary nccl = load();
  return nccl;
}

}  // namespace shale::comm
