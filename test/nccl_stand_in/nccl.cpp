// A libnccl.so.2 for machines without GPUs. It moves no data, but behaves as NCCL does where that
// matters to the host. A launch on a blocking communicator returns at once, unless a rank is
// missing: then it waits until the communicator is aborted. A non-blocking one behaves as in NCCL
// 2.28.9 (src/init.cc and src/group.cc; the same in 2.19.3 and in later versions):
//
// - every launch starts a thread and returns ncclInProgress;
// - ncclCommInitRankConfig returns the communicator's state, which is ncclInProgress at first;
// - ncclCommSplit returns ncclSuccess (its NCCLCHECK(ncclGroupEndInternal()) lets ncclInProgress
//   pass, and `res` is still ncclSuccess), sets *newcomm to null, and leaves the parent in
//   progress, also without a color; a thread sets *newcomm (end of ncclCommInitRankFunc) before the
//   parent is ready;
// - any other call on a communicator in progress is ncclInvalidArgument (ncclCommEnsureReady).
#include <dlfcn.h>
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "counts.h"

struct ncclComm {
  bool blocking = false;
  int busy_polls = 0;                 // polls of ncclCommGetAsyncError until the call is done
  std::function<void()> finish = {};  // runs when the pending call is done
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

constexpr int kPolls = 3;

bool is_busy(ncclComm_t comm) {
  if (comm->busy_polls > 0) ++counts.calls_while_busy;
  return comm->busy_polls > 0;
}

ncclResult_t launch(ncclComm_t comm) {
  if (is_busy(comm)) return ncclInvalidArgument;
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
    comm->busy_polls = kPolls;
    return ncclInProgress;
  }
  ++comm->inside;
  while (counts.stall && !comm->aborted) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  --comm->inside;
  return comm->aborted ? ncclSystemError : ncclSuccess;
}

ncclComm_t make(const ncclConfig_t* config) {
  const auto comm = new ncclComm;
  comm->blocking = config->blocking != 0;
  ++(comm->blocking ? counts.children : counts.parents);
  return comm;
}

ncclResult_t release(ncclComm_t comm) {
  comm->aborted = true;
  ++counts.freed;
  if (comm->inside > 0) {
    ++counts.freed_in_use;
    return ncclSuccess;  // `comm` is not freed, so that the test can report its use
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
  *comm = make(config);
  if ((*comm)->blocking) return ncclSuccess;
  (*comm)->busy_polls = kPolls;
  return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int, ncclComm_t* comm,
                           ncclConfig_t* config) {
  if (is_busy(parent)) return ncclInvalidArgument;
  *comm = nullptr;
  const auto finish = [=, config = *config] {
    if (color != NCCL_SPLIT_NOCOLOR) *comm = make(&config);
  };
  if (parent->blocking) {
    finish();
  } else {
    parent->busy_polls = kPolls;
    parent->finish = finish;
  }
  return ncclSuccess;
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
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  if (comm->busy_polls > 0 && --comm->busy_polls == 0 && comm->finish) {
    std::exchange(comm->finish, {})();
  }
  *result = comm->busy_polls > 0 ? ncclInProgress : ncclSuccess;
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
