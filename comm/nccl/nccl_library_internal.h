#pragma once

#include <nccl.h>

namespace shale::comm {

// Functions of libnccl.so.2. It is loaded on first use instead of linked, so that one binary also
// starts on machines without it, and runs without GPUs do not pay for loading it.
struct NcclLibrary {
  // Throws UnavailableError if the library cannot be loaded, or if it is older than 2.26.2; the
  // message has both versions. get() calls it once.
  static NcclLibrary load();
  static const NcclLibrary& get();

  // True for a library whose streams are those of emulated GPUs: a stand-in for tests, which
  // defines shale_nccl_of_emulated_gpus.
  bool emulated = false;

  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommSplit) comm_split = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  // Since 2.28; null in older versions.
  ncclResult_t (*comm_revoke)(ncclComm_t comm, int flags) = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommRegister) comm_register = nullptr;
  decltype(&ncclCommDeregister) comm_deregister = nullptr;
  decltype(&ncclMemAlloc) mem_alloc = nullptr;
  decltype(&ncclMemFree) mem_free = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
};

}  // namespace shale::comm
