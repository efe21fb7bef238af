// A libnccl.so.2 for machines without GPUs, which behaves as NCCL does where that matters to the
// host. Alone it moves no data; with emulated.cpp it moves them between emulated GPUs. A launch on
// a blocking communicator returns at once, unless a test wants a rank to be missing: then it waits
// until the communicator is aborted.
//
// Lines are those of NCCL's master 5067397c (2.30.7); what they say holds from 2.19.3 on.
//
// - ncclCommInitRankConfig of a non-blocking communicator returns its state, which is
//   ncclInProgress at first (src/init.cc:2512).
// - ncclCommSplit returns ncclSuccess: its NCCLCHECK(ncclGroupEndInternal()), init.cc:2716, lets
//   ncclInProgress pass, and `res` is still ncclSuccess. *newcomm is null (init.cc:3099), and the
//   parent is in progress, also for a rank without a color, which starts the same job
//   (init.cc:3100, 3160). A thread sets *newcomm before the parent is ready.
// - Any other call on a communicator in progress is ncclInvalidArgument; on one with an
// asynchronous
//   error it is that error (ncclCommEnsureReady, init.cc:422-438).
// - ncclCommAbort is allowed at any time (init.cc:3041 ignores the state), and so is
// ncclCommRevoke,
//   since 2.28 (init.cc:2965, 2989).
// - ncclMemAlloc rounds up to the recommended granularity of memory, 2 MiB (src/allocator.cc:55).
//   Before 2.26.2 it rounded to that of multicast objects, 512 MiB on GPUs behind an NVSwitch
//   (src/init.cc of v2.25.1-1, ncclMemAlloc, ALIGN_SIZE(size, mcGran)).
// - Every launch on a non-blocking communicator starts a thread, and returns ncclInProgress
//   (src/group.cc, ncclGroupEndInternal).
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "counts.h"
#include "transfer.h"

using shale::test::NcclCall;
using shale::test::Transfer;
using shale::test::Transmission;

struct ncclComm {
  bool blocking = false;
  // Number of polls of ncclCommGetAsyncError until the call in progress is done.
  int busy_polls = 0;
  // Called after these polls; returns false while other ranks have not called yet.
  std::function<bool()> finish = {};
  int splits = 0;
  std::shared_ptr<Transfer> transfer = {};  // null: this library moves no data
  std::atomic<bool> aborted{false};
  std::atomic<int> inside{0};
};

namespace {

shale::test::NcclCounts counts;
thread_local int group_depth = 0;
thread_local ncclComm_t group_comm = nullptr;
thread_local cudaStream_t group_stream = nullptr;
thread_local std::vector<NcclCall> group_calls;

int64_t locks_held() {
  static const auto ask =
      reinterpret_cast<shale::test::LocksHeld>(dlsym(RTLD_DEFAULT, "shale_test_locks_held"));
  return ask == nullptr ? 0 : ask();
}

constexpr int kPolls = 3;

// Returns what ncclCommEnsureReady returns.
ncclResult_t ready(ncclComm_t comm) {
  if (comm->busy_polls == 0) return static_cast<ncclResult_t>(counts.async_error.load());
  ++counts.calls_while_busy;
  return ncclInvalidArgument;
}

ncclResult_t launch(ncclComm_t comm, const std::vector<NcclCall>& calls, cudaStream_t stream) {
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
  if (comm->transfer != nullptr && !comm->aborted) comm->transfer->launch(calls, stream);
  --comm->inside;
  return comm->aborted ? ncclSystemError : ncclSuccess;
}

ncclResult_t launch(ncclComm_t comm, const NcclCall& call, cudaStream_t stream) {
  const ncclResult_t state = ready(comm);
  if (state != ncclSuccess) return state;
  if (group_depth == 0) return launch(comm, std::vector<NcclCall>{call}, stream);
  group_comm = comm;
  group_stream = stream;
  group_calls.push_back(call);
  return ncclSuccess;
}

ncclComm_t make(const ncclConfig_t& config, const Transfer::Part& part) {
  const auto comm = new ncclComm;
  comm->blocking = config.blocking != 0;
  if (shale::test::open_transfer != nullptr) comm->transfer = shale::test::open_transfer(part);
  ++(comm->blocking ? counts.children : counts.parents);
  if (config.maxCTAs != NCCL_CONFIG_UNDEF_INT) counts.max_ctas = config.maxCTAs;
  return comm;
}

void advance(ncclComm_t comm) {
  if (comm->busy_polls > 1) {
    --comm->busy_polls;
  } else if (comm->busy_polls == 1 && (!comm->finish || comm->finish())) {
    comm->finish = {};
    comm->busy_polls = 0;
  }
}

// Starts a call that needs other ranks. On a blocking communicator, waits for them.
void begin(ncclComm_t comm, std::function<bool()> finish) {
  comm->busy_polls = kPolls;
  comm->finish = std::move(finish);
  while (comm->blocking && comm->busy_polls > 0) {
    advance(comm);
    std::this_thread::yield();
  }
}

ncclResult_t release(ncclComm_t comm) {
  comm->aborted = true;
  if (comm->transfer != nullptr) comm->transfer->abort();
  ++counts.freed;
  if (comm->inside > 0) {
    ++counts.freed_in_use;
    return ncclSuccess;  // leaks `comm`, so that its later use is safe and the test can report it
  }
  delete comm;
  return ncclSuccess;
}

int version() {
  return counts.version != 0 ? counts.version.load() : NCCL_VERSION_CODE;
}

}  // namespace

extern "C" {

shale::test::NcclCounts* shale_test_nccl_counts() {
  return &counts;
}

ncclResult_t ncclGetVersion(int* found) {
  *found = version();
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> ids = 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  std::memset(id, 0, sizeof *id);
  std::strcpy(id->internal, ("/shale_nccl_" + std::to_string(getpid()) + "_" +
                             std::to_string(ids++) + "_" + std::to_string(now))
                                .c_str());
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the stand-in";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *comm = make(*config, {.name = id.internal, .rank = rank, .ranks = ranks});
  const std::shared_ptr<Transfer> transfer = (*comm)->transfer;
  begin(*comm, [transfer] { return transfer == nullptr || transfer->joined(); });
  return (*comm)->blocking ? ncclSuccess : ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* comm,
                           ncclConfig_t* config) {
  const ncclResult_t state = ready(parent);
  if (state != ncclSuccess) return state;
  *comm = nullptr;
  begin(parent, [=, config = *config, number = parent->splits++,
                 made = static_cast<ncclComm_t>(nullptr)]() mutable {
    if (made == nullptr) {
      Transfer::Part part;
      if (parent->transfer != nullptr) {
        const auto found = parent->transfer->split(number, color, key);
        if (!found) return false;
        part = *found;
      }
      if (color == NCCL_SPLIT_NOCOLOR) return true;
      made = make(config, part);
    }
    if (made->transfer != nullptr && !made->transfer->joined()) return false;
    *comm = made;
    return true;
  });
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
  if (comm->transfer != nullptr) comm->transfer->abort();
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  advance(comm);
  *result =
      comm->busy_polls > 0 ? ncclInProgress : static_cast<ncclResult_t>(counts.async_error.load());
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(ncclComm_t, void*, size_t, void** handle) {
  *handle = nullptr;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t, void*) {
  return ncclSuccess;
}

// Sizes of allocated memory by address, after rounding up.
static std::mutex memory_mutex;
static std::map<void*, size_t> memory_sizes;

// NCCL's function calls cudaMalloc or cuMemCreate, which are forbidden during a capture.
ncclResult_t ncclMemAlloc(void** memory, size_t size) {
  static const auto may_allocate =
      reinterpret_cast<bool (*)()>(dlsym(RTLD_DEFAULT, "shale_test_may_allocate"));
  if (may_allocate != nullptr && !may_allocate()) return ncclUnhandledCudaError;
  const size_t unit = size_t{version() < NCCL_VERSION(2, 26, 2) ? 512u : 2u} << 20;
  const size_t bytes = (size + unit - 1) / unit * unit;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return ncclSystemError;
  *memory = mapped;
  counts.memory += static_cast<int64_t>(bytes);
  const std::lock_guard lock(memory_mutex);
  memory_sizes[mapped] = bytes;
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* memory) {
  const std::lock_guard lock(memory_mutex);
  const auto known = memory_sizes.extract(memory);
  if (known.empty()) return ncclInvalidArgument;
  counts.memory -= static_cast<int64_t>(known.mapped());
  munmap(memory, known.mapped());
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return launch(comm, {Transmission::kAllReduce, in, out, count, type, op}, stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return launch(comm, {Transmission::kReduceScatter, in, out, count, type, op}, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return launch(comm, {Transmission::kAllGather, in, out, count, type}, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return launch(comm, {Transmission::kBroadcast, in, out, count, type, ncclSum, root}, stream);
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return launch(comm, {Transmission::kReduce, in, out, count, type, op, root}, stream);
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return launch(comm, {Transmission::kSend, in, nullptr, count, type, ncclSum, peer}, stream);
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return launch(comm, {Transmission::kReceive, nullptr, out, count, type, ncclSum, peer}, stream);
}
ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0 || group_comm == nullptr) return ncclSuccess;
  return launch(std::exchange(group_comm, nullptr), std::exchange(group_calls, {}), group_stream);
}

}  // extern "C"
