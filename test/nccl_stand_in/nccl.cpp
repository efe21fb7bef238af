// A libnccl.so.2 for machines without GPUs. It moves no data; it proceeds as NCCL does where that
// matters to the host: a communicator that does not block starts a thread for every launch and
// answers ncclInProgress, one that blocks returns when it has launched, and waits for ranks that do
// not come until it is aborted.
#include <dlfcn.h>
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "counts.h"

struct ncclComm {
  bool blocking = false;
  std::atomic<bool> aborted{false};
  std::atomic<int> inside{0};
};

namespace {

shale::test::NcclCounts counts;
thread_local int group_depth = 0;
thread_local ncclComm_t group_comm = nullptr;

int64_t locks_held() {
  static const auto ask =
      reinterpret_cast<shale::test::LocksHeld>(dlsym(RTLD_DEFAULT, "shale_test_locks_held"));
  return ask == nullptr ? 0 : ask();
}

ncclResult_t launch(ncclComm_t comm) {
  if (group_depth > 0) {
    group_comm = comm;
    return ncclSuccess;
  }
  ++counts.launches;
  if (locks_held() > counts.locks_held) counts.locks_held = locks_held();
  if (!comm->blocking) {
    ++counts.launches_on_parents;
    ++counts.threads;
    std::thread([] {}).join();
    return ncclInProgress;
  }
  ++comm->inside;
  while (counts.stall && !comm->aborted) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  --comm->inside;
  return comm->aborted ? ncclSystemError : ncclSuccess;
}

ncclResult_t make(ncclComm_t* comm, const ncclConfig_t* config) {
  *comm = new ncclComm;
  (*comm)->blocking = config->blocking != 0;
  ++((*comm)->blocking ? counts.children : counts.parents);
  return ncclSuccess;
}

ncclResult_t release(ncclComm_t comm) {
  comm->aborted = true;
  ++counts.freed;
  if (comm->inside > 0) {
    ++counts.freed_in_use;
    return ncclSuccess;  // is lost, so that the test can say so
  }
  delete comm;
  return ncclSuccess;
}

}  // namespace

extern "C" {

shale::test::NcclCounts* shale_test_nccl_counts() {
  return &counts;
}

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the stand-in";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int, ncclUniqueId, int,
                                    ncclConfig_t* config) {
  make(comm, config);
  return config->blocking != 0 ? ncclSuccess : ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t parent, int, int, ncclComm_t* comm, ncclConfig_t* config) {
  make(comm, config);
  return parent->blocking ? ncclSuccess : ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return release(comm);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return release(comm);
}
ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
  ++counts.revoked;
  comm->aborted = true;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* result) {
  *result = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(ncclComm_t, void*, size_t, void** handle) {
  *handle = nullptr;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t, void*) {
  return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void**, size_t) {
  return ncclSystemError;
}
ncclResult_t ncclMemFree(void*) {
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t) {
  return launch(comm);
}
ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t) {
  return launch(comm);
}
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t) {
  return launch(comm);
}
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t comm,
                           cudaStream_t) {
  return launch(comm);
}
ncclResult_t ncclReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int,
                        ncclComm_t comm, cudaStream_t) {
  return launch(comm);
}
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t) {
  return launch(comm);
}
ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t) {
  return launch(comm);
}
ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0 || group_comm == nullptr) return ncclSuccess;
  ncclComm_t comm = group_comm;
  group_comm = nullptr;
  return launch(comm);
}

}  // extern "C"
