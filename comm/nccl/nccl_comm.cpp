#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/comm/nccl/nccl_comm_internal.h"
#include "shale/comm/nccl/nccl_library_internal.h"
#include "shale/comm/slices.h"
#include "shale/kernels/simt/cuda/cuda_error.h"

namespace shale::comm {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::cuda::check;

const NcclLibrary& nccl() {
  return NcclLibrary::get();
}

ncclDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return ncclFloat32;
    case DType::kBF16: return ncclBfloat16;
    case DType::kF16: return ncclFloat16;
    case DType::kF64: return ncclFloat64;
    case DType::kI32: return ncclInt32;
    case DType::kI64: return ncclInt64;
    case DType::kU8: return ncclUint8;
    default: break;
  }
  throw DTypeError(cat("nccl: cannot send elements of ", dtype_name(dtype)));
}

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

}  // namespace

ncclUniqueId NcclComm::make_id() {
  ncclUniqueId id;
  const ncclResult_t result = nccl().get_unique_id(&id);
  if (result == ncclSuccess) return id;
  throw CommError(cat("nccl: ncclGetUniqueId: ", nccl().get_error_string(result)));
}

NcclComm::NcclComm(const ncclUniqueId& id, int rank, int ranks, NcclOptions options)
    : options_(std::move(options)) {
  check(cudaSetDevice(options_.device), "cudaSetDevice");
  ncclConfig_t config = non_blocking();
  const ncclResult_t result = nccl().comm_init_rank_config(&comm_, ranks, id, rank, &config);
  try {
    finish(result, "ncclCommInitRankConfig");
  } catch (...) {
    abort();  // there is no destructor yet
    throw;
  }
}

NcclComm::NcclComm(NcclComm& parent, int color, int key, NcclOptions options)
    : options_(std::move(options)) {
  check(cudaSetDevice(options_.device), "cudaSetDevice");
  try {
    comm_ = parent.split(color, key);
    finish(ncclInProgress, "ncclCommSplit");
  } catch (...) {
    abort();
    throw;
  }
}

ncclComm_t NcclComm::split(int color, int key) {
  ncclConfig_t config = non_blocking();
  child_ = nullptr;
  run("ncclCommSplit",
      [&](ncclComm_t comm) { return nccl().comm_split(comm, color, key, &child_, &config); });
  // A thread of NCCL writes it.
  const std::atomic_ref<ncclComm_t> child(child_);
  const Clock::time_point start = Clock::now();
  while (child.load(std::memory_order_acquire) == nullptr) pause(start, "ncclCommSplit");
  return child_;
}

NcclComm::~NcclComm() {
  try {
    if (comm_ != nullptr && std::uncaught_exceptions() == 0) close();
  } catch (const std::exception& error) {
    log_warning("nccl: closing group '", options_.group_name, "': ", error.what());
  }
  abort();  // what is still open
}

void NcclComm::close() {
  check(cudaSetDevice(options_.device), "cudaSetDevice");
  run("ncclCommFinalize", [](ncclComm_t comm) { return nccl().comm_finalize(comm); });
  const std::lock_guard lock(mutex_);
  const ncclResult_t result = nccl().comm_destroy(comm_);
  if (result != ncclSuccess) fail(result, "ncclCommDestroy");
  comm_ = nullptr;
}

void NcclComm::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  cudaSetDevice(options_.device);  // of this thread; if it fails, so does what follows, and is told
  const ncclResult_t result = nccl().comm_abort(comm_);
  comm_ = nullptr;
  if (result == ncclSuccess || result == ncclInProgress) return;
  log_warning("nccl: ncclCommAbort: ", nccl().get_error_string(result));
}

// One NCCL call, until it has ended on this rank. Between polls others may look, and abort.
template <typename Call>
void NcclComm::run(const char* what, Call&& call) {
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) {
      throw CommError(cat("nccl: group '", options_.group_name, "' has been aborted"));
    }
    result = call(comm_);
  }
  finish(result, what);
}

void NcclComm::finish(ncclResult_t result, const char* what) {
  const Clock::time_point start = Clock::now();
  while (result == ncclInProgress) {
    pause(start, what);
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) {
      throw CommError(cat("nccl: group '", options_.group_name, "' was aborted in ", what));
    }
    const ncclResult_t asked = nccl().comm_get_async_error(comm_, &result);
    if (asked != ncclSuccess) result = asked;
  }
  if (result == ncclSuccess) return;
  const std::lock_guard lock(mutex_);
  fail(result, what);
}

void NcclComm::pause(Clock::time_point start, const char* what) const {
  if (options_.poll) options_.poll();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (options_.timeout_s > 0 && seconds > options_.timeout_s) {
    throw CommError(cat("nccl: group '", options_.group_name, "': ", what, " not done after ",
                        options_.timeout_s, " s: not all ranks have come to it"));
  }
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void NcclComm::fail(ncclResult_t result, const char* what) {
  const char* const detail = comm_ == nullptr ? nullptr : nccl().get_last_error(comm_);
  throw CommError(cat("nccl: group '", options_.group_name, "': ", what, ": ",
                      nccl().get_error_string(result), ": ",
                      detail == nullptr || *detail == '\0' ? "NCCL_DEBUG=WARN says more" : detail));
}

void NcclComm::check_async() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = nccl().comm_get_async_error(comm_, &result);
  if (asked != ncclSuccess) fail(asked, "ncclCommGetAsyncError");
  if (result != ncclSuccess && result != ncclInProgress) fail(result, "a collective");
}

void NcclComm::issue(const CollectiveCall& call, int rank, int ranks, void* stream_handle) {
  const auto stream = static_cast<cudaStream_t>(stream_handle);
  const DType dtype = call.in.dtype;
  const ncclDataType_t type = data_type(dtype);
  const auto count = static_cast<size_t>(call.count());
  if (count == 0 && call.op != CollectiveOp::kAllToAllV) return;  // on all ranks
  const void* const in = call.in.data;
  void* const out = call.out.data;
  const auto all_reduce = [&](void* buffer, size_t n, ncclRedOp_t op) {
    run("ncclAllReduce", [&](ncclComm_t comm) {
      return nccl().all_reduce(buffer, buffer, n, type, op, comm, stream);
    });
  };
  const auto reduce_scatter = [&](const void* from, void* to, size_t n) {
    run("ncclReduceScatter", [&](ncclComm_t comm) {
      return nccl().reduce_scatter(from, to, n, type, ncclSum, comm, stream);
    });
  };
  const auto all_gather = [&](const void* from, void* to, size_t n) {
    run("ncclAllGather",
        [&](ncclComm_t comm) { return nccl().all_gather(from, to, n, type, comm, stream); });
  };
  check(cudaSetDevice(options_.device), "cudaSetDevice");
  switch (call.op) {
    case CollectiveOp::kBarrier: return;
    case CollectiveOp::kAllReduceMax: return all_reduce(out, count, ncclMax);
    case CollectiveOp::kReduceScatterSum: return reduce_scatter(in, out, count);
    case CollectiveOp::kAllGather: return all_gather(in, out, count);
    case CollectiveOp::kBroadcast:
      return run("ncclBroadcast", [&](ncclComm_t comm) {
        return nccl().broadcast(in, out, count, type, call.root, comm, stream);
      });
    case CollectiveOp::kReduceSum:
      return run("ncclReduce", [&](ncclComm_t comm) {
        return nccl().reduce(in, out, count, type, ncclSum, call.root, comm, stream);
      });
    case CollectiveOp::kGather:
    case CollectiveOp::kAllToAll:
    case CollectiveOp::kAllToAllV: return exchange(call, rank, ranks, stream);
    case CollectiveOp::kAllReduceSum: break;
  }
  if (!options_.deterministic) return all_reduce(out, count, ncclSum);
  // As sharded stages add: every rank its slice, then all are gathered. The rest, less than one
  // element per rank, has no slices.
  auto* const bytes = static_cast<std::byte*>(out);
  const auto size = static_cast<size_t>(dtype_size(dtype));
  const size_t slice = count / static_cast<size_t>(ranks);
  const size_t rest = count - slice * static_cast<size_t>(ranks);
  std::byte* const own = bytes + slice * static_cast<size_t>(rank) * size;
  if (slice > 0) {
    reduce_scatter(bytes, own, slice);
    all_gather(own, bytes, slice);
  }
  if (rest > 0) all_reduce(bytes + (count - rest) * size, rest, ncclSum);
}

// Sends and receives that run as one: gather and all-to-all.
void NcclComm::exchange(const CollectiveCall& call, int rank, int ranks, void* stream_handle) {
  const auto stream = static_cast<cudaStream_t>(stream_handle);
  const ncclDataType_t type = data_type(call.in.dtype);
  ncclResult_t failed = ncclSuccess;
  const auto queue = [&](ncclResult_t result) {
    if (failed == ncclSuccess && result != ncclInProgress) failed = result;
  };
  const auto send = [&](ncclComm_t comm, const View& view, int peer) {
    if (view.numel() == 0) return;
    queue(nccl().send(view.data, static_cast<size_t>(view.numel()), type, peer, comm, stream));
  };
  const auto receive = [&](ncclComm_t comm, const View& view, int peer) {
    if (view.numel() == 0) return;
    queue(nccl().receive(view.data, static_cast<size_t>(view.numel()), type, peer, comm, stream));
  };
  run("a group of ncclSend and ncclRecv", [&](ncclComm_t comm) {
    const ncclResult_t started = nccl().group_start();
    if (started != ncclSuccess) return started;
    if (call.op == CollectiveOp::kGather) {
      send(comm, call.in, call.root);
      for (int r = 0; rank == call.root && r < ranks; ++r) {
        receive(comm, call.out.flat(r * call.count(), call.count()), r);
      }
    } else {
      const SliceTable slices = slices_of(call, ranks);
      for (size_t r = 0; r < slices.in_counts.size(); ++r) {
        send(comm, call.in.flat(slices.in_offsets[r], slices.in_counts[r]), static_cast<int>(r));
        receive(comm, call.out.flat(slices.out_offsets[r], slices.out_counts[r]),
                static_cast<int>(r));
      }
    }
    const ncclResult_t ended = nccl().group_end();
    return failed == ncclSuccess ? ended : failed;
  });
}

void* NcclComm::register_memory(void* memory, size_t bytes) {
  void* handle = nullptr;
  run("ncclCommRegister",
      [&](ncclComm_t comm) { return nccl().comm_register(comm, memory, bytes, &handle); });
  return handle;
}

void NcclComm::deregister_memory(void* handle) noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr || handle == nullptr) return;
  const ncclResult_t result = nccl().comm_deregister(comm_, handle);
  if (result != ncclSuccess) {
    log_warning("nccl: ncclCommDeregister: ", nccl().get_error_string(result));
  }
}

}  // namespace shale::comm
