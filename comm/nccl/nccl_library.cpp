#include <dlfcn.h>

#include "shale/base/error.h"
#include "shale/comm/nccl/nccl_library_internal.h"

namespace shale::comm {
namespace {

constexpr const char* kName = "libnccl.so.2";
// First version with ncclMemAlloc and ncclCommRegister.
constexpr int kOldest = NCCL_VERSION(2, 19, 1);

template <typename Function>
void load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw UnavailableError(cat("nccl: ", kName, " lacks ", name));
}

NcclLibrary load_library() {
  // The library is never closed, because it has threads of its own.
  void* const library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    throw UnavailableError(cat("nccl: cannot load ", kName, ": ", reason));
  }
  NcclLibrary nccl;
  load(library, "ncclGetVersion", nccl.get_version);
  int version = 0;
  if (nccl.get_version(&version) != ncclSuccess || version < kOldest) {
    throw UnavailableError(
        cat("nccl: ", kName, " has version ", version, ", expected ", kOldest, " or later"));
  }
  load(library, "ncclGetUniqueId", nccl.get_unique_id);
  load(library, "ncclGetErrorString", nccl.get_error_string);
  load(library, "ncclGetLastError", nccl.get_last_error);
  load(library, "ncclCommInitRankConfig", nccl.comm_init_rank_config);
  load(library, "ncclCommSplit", nccl.comm_split);
  load(library, "ncclCommDestroy", nccl.comm_destroy);
  load(library, "ncclCommAbort", nccl.comm_abort);
  nccl.comm_revoke = reinterpret_cast<decltype(nccl.comm_revoke)>(dlsym(library, "ncclCommRevoke"));
  load(library, "ncclCommGetAsyncError", nccl.comm_get_async_error);
  load(library, "ncclCommRegister", nccl.comm_register);
  load(library, "ncclCommDeregister", nccl.comm_deregister);
  load(library, "ncclMemAlloc", nccl.mem_alloc);
  load(library, "ncclMemFree", nccl.mem_free);
  load(library, "ncclAllReduce", nccl.all_reduce);
  load(library, "ncclReduceScatter", nccl.reduce_scatter);
  load(library, "ncclAllGather", nccl.all_gather);
  load(library, "ncclBroadcast", nccl.broadcast);
  load(library, "ncclReduce", nccl.reduce);
  load(library, "ncclSend", nccl.send);
  load(library, "ncclRecv", nccl.receive);
  load(library, "ncclGroupStart", nccl.group_start);
  load(library, "ncclGroupEnd", nccl.group_end);
  return nccl;
}

}  // namespace

const NcclLibrary& NcclLibrary::get() {
  static const NcclLibrary nccl = load_library();
  return nccl;
}

}  // namespace shale::comm
