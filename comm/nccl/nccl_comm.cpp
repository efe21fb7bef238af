#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "shale/base/clock.h"
#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/comm/nccl/nccl_comm_internal.h"
#include "shale/comm/nccl/nccl_library_internal.h"
#include "shale/comm/sums/slices.h"

namespace shale::comm {
namespace {

using Clock = std::chrono::steady_clock;

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

ncclConfig_t config_with(bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  return config;
}

[[noreturn]] void throw_error(const std::string& group, ncclComm_t comm, ncclResult_t result,
                              const char* what) {
  const char* const detail = comm == nullptr ? nullptr : nccl().get_last_error(comm);
  throw CommError(cat("nccl: group '", group, "': ", what, ": ", nccl().get_error_string(result),
                      ": ",
                      detail == nullptr || *detail == '\0' ? "NCCL_DEBUG=WARN says more" : detail));
}

// Makes the device current. Ignores an error, because the next call reports it.
void use_quietly(const DeviceBackend& device) noexcept {
  try {
    device.use();
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
}

void warn_unless_aborted(ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  log_warning("nccl: ", what, ": ", nccl().get_error_string(result));
}

}  // namespace

// ---- NcclParent: starts and splits ----

ncclUniqueId NcclParent::make_id() {
  ncclUniqueId id;
  const ncclResult_t result = nccl().get_unique_id(&id);
  if (result == ncclSuccess) return id;
  throw CommError(cat("nccl: ncclGetUniqueId: ", nccl().get_error_string(result)));
}

NcclParent::NcclParent(const ncclUniqueId& id, int rank, int ranks, NcclOptions options)
    : options_(std::move(options)) {
  options_.device->use();
  ncclConfig_t config = config_with(/*blocking=*/false);
  const ncclResult_t result = nccl().comm_init_rank_config(&comm_, ranks, id, rank, &config);
  try {
    finish(result, "ncclCommInitRankConfig");
  } catch (...) {
    abort();  // a failed constructor has no destructor call
    throw;
  }
}

// ncclCommAbort is safe here: no collective is in flight, and the call waits for no other rank.
NcclParent::~NcclParent() {
  abort();
}

void NcclParent::abort() noexcept {
  if (comm_ == nullptr) return;
  use_quietly(*options_.device);
  warn_unless_aborted(nccl().comm_abort(std::exchange(comm_, nullptr)), "ncclCommAbort");
}

// The child's configuration decides how it launches; the parent's decides how this call waits.
ncclComm_t NcclParent::split(int color, int key, const NcclOptions& options) {
  options_.device->use();
  ncclConfig_t config = config_with(/*blocking=*/true);
  if (options.max_ctas > 0) config.maxCTAs = options.max_ctas;
  options_.group_name = options.group_name;  // name shown in messages
  child_ = nullptr;
  finish(nccl().comm_split(comm_, color, key, &child_, &config), "ncclCommSplit");
  if (color == kNoColor) return nullptr;
  // An NCCL thread writes the child before the parent is ready.
  return std::atomic_ref<ncclComm_t>(child_).load(std::memory_order_acquire);
}

// Waits until the communicator is ready for another call, even if the previous call returned
// ncclSuccess. ncclCommSplit returns ncclSuccess when an NCCL thread has only started on it, and
// for a rank without a color. A call that follows too early returns ncclInvalidArgument.
void NcclParent::finish(ncclResult_t result, const char* what) {
  const Clock::time_point start = Clock::now();
  if (result == ncclSuccess) result = ncclInProgress;
  while (result == ncclInProgress) {
    const ncclResult_t asked = nccl().comm_get_async_error(comm_, &result);
    if (asked != ncclSuccess) result = asked;
    if (result == ncclInProgress) pause(start, what);
  }
  if (result != ncclSuccess) throw_error(options_.group_name, comm_, result, what);
}

void NcclParent::pause(Clock::time_point start, const char* what) const {
  if (options_.poll) options_.poll();
  const double seconds = seconds_since(start);
  const double limit_s = options_.timeout_s();
  if (limit_s > 0 && seconds > limit_s) {
    throw CommError(cat("nccl: group '", options_.group_name, "': ", what, " is not done after ",
                        limit_s, " s: not all ranks have joined"));
  }
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

// ---- NcclComm: launches ----

// Marks a thread as inside an NCCL call. If the communicator has ended, the constructor throws.
// Otherwise abort() sees the mark, and does not free the communicator while the thread uses it.
class NcclComm::Use {
 public:
  explicit Use(NcclComm& comm) : comm_(comm) {
    comm_.users_.fetch_add(1);
    if (!comm_.ended_.load()) return;
    comm_.users_.fetch_sub(1);
    throw CommError(cat("nccl: group '", comm_.options_.group_name, "' has been aborted"));
  }
  ~Use() { comm_.users_.fetch_sub(1); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  NcclComm& comm_;
};

NcclComm::NcclComm(NcclParent& parent, int color, int key, NcclOptions options)
    : options_(std::move(options)), comm_(parent.split(color, key, options_)) {}

NcclComm::~NcclComm() {
  abort();  // does nothing after close()
}

void NcclComm::close() {
  if (ended_.exchange(true)) return;
  options_.device->use();
  const ncclResult_t result = nccl().comm_destroy(comm_);
  if (result != ncclSuccess) throw_error(options_.group_name, nullptr, result, "ncclCommDestroy");
}

bool NcclComm::unused_within(std::chrono::milliseconds time) const {
  const Clock::time_point end = Clock::now() + time;
  while (users_.load() != 0) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// A launch on another thread returns soon if it needs no other rank. If it waits for a rank,
// ncclCommRevoke ends it and frees nothing. Libraries without ncclCommRevoke have only
// ncclCommAbort, which ends the launch too, but frees the communicator while that thread may still
// use it.
void NcclComm::abort() noexcept {
  if (ended_.exchange(true)) return;
  use_quietly(*options_.device);
  constexpr std::chrono::milliseconds kLaunch{100}, kWayOut{5000};
  if (!unused_within(kLaunch) && nccl().comm_revoke != nullptr) {
    warn_unless_aborted(nccl().comm_revoke(comm_, 0), "ncclCommRevoke");
    unused_within(kWayOut);
  }
  warn_unless_aborted(nccl().comm_abort(comm_), "ncclCommAbort");
}

template <typename Call>
void NcclComm::run(const char* what, Call&& call) {
  const Use use(*this);
  const ncclResult_t result = call(comm_);
  if (result != ncclSuccess) fail(result, what);
}

void NcclComm::fail(ncclResult_t result, const char* what) {
  if (ended_.load()) {
    throw CommError(cat("nccl: group '", options_.group_name, "' was aborted in ", what));
  }
  throw_error(options_.group_name, comm_, result, what);
}

void NcclComm::check_async() {
  if (ended_.load()) return;
  ncclResult_t result = ncclSuccess;
  run("ncclCommGetAsyncError",
      [&](ncclComm_t comm) { return nccl().comm_get_async_error(comm, &result); });
  if (result != ncclSuccess && result != ncclInProgress) fail(result, "a collective");
}

void NcclComm::issue(const CollectiveCall& call, int rank, int ranks, void* stream_handle) {
  const auto stream = static_cast<cudaStream_t>(stream_handle);
  const DType dtype = call.in.dtype;
  const ncclDataType_t type = data_type(dtype);
  const auto count = static_cast<size_t>(call.count());
  if (count == 0 && call.op != CollectiveOp::kAllToAllV) return;  // all ranks skip it
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
  options_.device->use();
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
  // Adds in the order of sharded data parallelism: reduce-scatter, then all-gather. The last
  // elements, fewer than ranks, are all-reduced.
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

void NcclComm::pass(const View& x, bool sends, int peer, void* stream_handle) {
  const auto stream = static_cast<cudaStream_t>(stream_handle);
  const auto count = static_cast<size_t>(x.numel());
  if (count == 0) return;  // both ends skip an empty message
  options_.device->use();
  const ncclDataType_t type = data_type(x.dtype);
  run(sends ? "ncclSend" : "ncclRecv", [&](ncclComm_t comm) {
    return sends ? nccl().send(x.data, count, type, peer, comm, stream)
                 : nccl().receive(x.data, count, type, peer, comm, stream);
  });
}

// Gather and all-to-all, as sends and receives that run as one NCCL group.
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
  if (handle == nullptr || ended_.load()) return;
  try {
    run("ncclCommDeregister",
        [&](ncclComm_t comm) { return nccl().comm_deregister(comm, handle); });
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
}

}  // namespace shale::comm
