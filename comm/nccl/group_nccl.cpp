#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>

#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/log.h"
#include "shale/base/trace.h"
#include "shale/comm/collective_slices.h"
#include "shale/comm/nccl/group_nccl_internal.h"
#include "shale/comm/nccl/nccl_library_internal.h"
#include "shale/comm/nccl/nccl_link_internal.h"
#include "shale/comm/work_state.h"
#include "shale/runtime/tensor/stream_clock.h"

namespace shale::comm {
namespace {

// Maximum number of thread blocks of an NCCL kernel, and number of SMs to reserve for it. It is
// enough for the bandwidth of all links. It is also low enough for kernels of both lanes and of
// pipeline links to be resident together.
constexpr int kCtas = 16;

// Name of a GPU, unique over all hosts as for NCCL. NCCL refuses two ranks on one GPU.
std::string place_of(const Device& device, int rank) {
  const char* const host_id = std::getenv("NCCL_HOSTID");
  const std::string gpu = device.type == DeviceType::kEmu
                              ? cat(rank)  // each process emulates a separate GPU
                              : visible_gpus().ids.at(static_cast<size_t>(device.index));
  return cat("GPU ", gpu, " of ", host_id != nullptr ? host_id : host_identity());
}

// Returns rank 0's NCCL id on all ranks. If rank 0 fails, the other ranks throw an error too.
ncclUniqueId share_id(HostGroup& host) {
  std::string mine, problem;
  if (host.rank() == 0) {
    try {
      const ncclUniqueId id = NcclParent::make_id();
      mine.assign(id.internal, sizeof id.internal);
    } catch (const std::exception& error) {
      problem = error.what();
    }
  }
  const std::string theirs = host.all_gather_bytes(mine, "nccl id").front();
  if (!problem.empty()) throw CommError(problem);
  if (theirs.size() != sizeof(ncclUniqueId))
    throw CommError("nccl: rank 0 could not create the id of the communicator");
  ncclUniqueId id;
  std::memcpy(id.internal, theirs.data(), theirs.size());
  return id;
}

}  // namespace

std::string nccl_obstacle(HostGroup& host, const Device& device) {
  std::string mine;
  try {
    const bool emulated = device.type == DeviceType::kEmu;
    if (NcclLibrary::get().emulated != emulated) {
      throw UnavailableError(
          cat("libnccl.so.2 is for ", emulated ? "GPUs" : "emulated GPUs", ", found ", device));
    }
    mine = place_of(device, host.rank());
  } catch (const UnavailableError& error) {
    mine = cat("!", error.what());
  }
  std::map<std::string, int> ranks;  // rank by place_of()
  const std::vector<std::string> all = host.all_gather_bytes(mine, "nccl");
  for (int rank = 0; rank < host.size(); ++rank) {
    const std::string& place = all[static_cast<size_t>(rank)];
    if (place.starts_with("!")) return cat("rank ", rank, ": ", place.substr(1));
    const auto [first, fresh] = ranks.emplace(place, rank);
    if (!fresh) return cat("ranks ", first->second, " and ", rank, " share ", place);
  }
  return {};
}

// Measures, on the device, how long the caller's stream waited. Used on the caller's thread.
class NcclGroup::ExposedTime {
 public:
  ExposedTime(std::shared_ptr<TrafficMeter> meter, const Device& device)
      : meter_(std::move(meter)), clock_(make_stream_clock(device)) {}

  // Makes `stream` wait for the event `finished`, and measures the wait.
  void wait(const DeviceEvent& finished, void* stream, Traffic traffic) {
    collect();
    const size_t before = clock_->mark(stream);
    finished.hold(stream);
    waits_.push_back({.traffic = traffic, .before = before, .after = clock_->mark(stream)});
  }

  // Adds the finished measurements to the traffic statistics.
  void collect() {
    const size_t unread = clock_->read();
    while (!waits_.empty() && waits_.front().after < unread) {
      const Wait wait = waits_.front();
      waits_.pop_front();
      meter_->add_exposed(wait.traffic, clock_->seconds(wait.before, wait.after));
      clock_->forget_before(wait.after + 1);
    }
  }

 private:
  struct Wait {
    Traffic traffic = Traffic::kControl;
    size_t before = 0, after = 0;  // StreamClock marks around the wait
  };

  std::shared_ptr<TrafficMeter> meter_;
  std::unique_ptr<StreamClock> clock_;
  std::deque<Wait> waits_;
};

class NcclGroup::NcclWork final : public WorkState {
 public:
  NcclWork(NcclGroup& group, std::shared_ptr<const DeviceEvent> finished,
           const CollectiveCall& call)
      : watchdog_(group.watchdog_),
        exposed_(group.exposed_),
        finished_(std::move(finished)),
        stream_(call.stream),
        traffic_(call.traffic),
        captured_(group.captures(call.stream)),
        held_(group.device_.held(), kCtas, group.stream_->get()),
        tracer_(group.options().tracer) {}

  // The event of a captured collective must not be queried, because it is part of a graph.
  bool done() const override { return !captured_ && finished_->done(); }
  void wait() override {
    held_.release();
    watchdog_->check();
    if (captured_) return finished_->hold(stream_);
    const TraceScope scope(tracer_, "comm/wait");  // the stream waits, not the host
    exposed_->wait(*finished_, stream_, traffic_);
  }
  void hold(void* stream) override { finished_->hold(stream); }
  // Ends the kernels, which may be waiting for ranks that never come.
  void give_up() override {
    watchdog_->fail(std::make_exception_ptr(
        CommError("given up, because an exception ended the scope of the operation")));
  }

 private:
  std::shared_ptr<NcclWatchdog> watchdog_;
  std::shared_ptr<ExposedTime> exposed_;
  std::shared_ptr<const DeviceEvent> finished_;
  void* stream_;
  Traffic traffic_;
  bool captured_;
  ReservedSms::Hold held_;
  Tracer* tracer_;
};

void* NcclGroup::RegisteredMemory::allocate(size_t bytes) {
  const NcclLibrary& nccl = NcclLibrary::get();
  ncclResult_t result = ncclSuccess;
  void* const memory = group_.device_.adopt(bytes, [&]() -> void* {
    void* got = nullptr;
    result = nccl.mem_alloc(&got, bytes);
    if (result != ncclSuccess) return nullptr;
    try {
      handles_[got] = group_.comm_->register_memory(got, bytes);
    } catch (...) {
      nccl.mem_free(got);
      throw;
    }
    return got;
  });
  if (memory != nullptr) return memory;
  throw OutOfMemoryError(cat("nccl: ncclMemAlloc of ", format_bytes(static_cast<double>(bytes)),
                             ": ", nccl.get_error_string(result)));
}

void NcclGroup::RegisteredMemory::free(void* memory, size_t) noexcept {
  group_.comm_->deregister_memory(handles_[memory]);
  handles_.erase(memory);
  group_.device_.disown(memory);
  const NcclLibrary& nccl = NcclLibrary::get();
  const ncclResult_t result = nccl.mem_free(memory);
  if (result != ncclSuccess) log_warning("nccl: ncclMemFree: ", nccl.get_error_string(result));
}

NcclGroup::NcclGroup(std::shared_ptr<WorldContext> context, std::unique_ptr<HostGroup> host,
                     DeviceBackend& device)
    : ProcessGroup(host->rank(), host->size(), host->options()),
      context_(std::move(context)),
      host_(std::move(host)),
      device_(device),
      stream_(std::make_shared<DeviceStream>(device)),
      planned_(device.held(), kCtas, stream_->get(), /*planned=*/true) {
  comm_ = std::make_unique<NcclComm>(this->parent(), 0, rank(), nccl_options());
  start();
}

NcclGroup::NcclGroup(NcclGroup& parent, std::unique_ptr<HostGroup> host, int color, int key)
    : ProcessGroup(host->rank(), host->size(), host->options()),
      context_(parent.context_),
      host_(std::move(host)),
      device_(parent.device_),
      stream_(options().lane == parent.options().lane ? parent.stream_
                                                      : std::make_shared<DeviceStream>(device_)),
      planned_(device_.held(), kCtas, stream_->get(), /*planned=*/true) {
  comm_ = std::make_unique<NcclComm>(parent.parent(), color, key, nccl_options());
  start();
}

// Makes the parent on first use: collective over all ranks of the group that is split.
NcclParent& NcclGroup::parent() {
  if (parent_ == nullptr) {
    parent_ = std::make_unique<NcclParent>(share_id(*host_), rank(), size(), nccl_options());
  }
  return *parent_;
}

NcclOptions NcclGroup::nccl_options() const {
  return {
      .group_name = options().name,
      .device = &device_,
      .timeout_s = [context = context_,
                    timeout_s = options().timeout_s] { return context->signs.limit(timeout_s); },
      .deterministic = options().deterministic,
      .max_ctas = kCtas,
      .poll = [context = context_] { context->board.check(); },
      .ask_who_lives =
          [context = context_] { context->signs.wait_for_all([&] { context->board.check(); }); }};
}

void NcclGroup::start() {
  account_for(*host_);
  first_rank_ = context_->rank;
  host_->broadcast(make_view(&first_rank_, {1}), 0, {.tag = "nccl"});
  watchdog_ = std::make_shared<NcclWatchdog>(*comm_, host_->make_progress(), context_->recent);
  exposed_ = std::make_shared<ExposedTime>(meter(), device_.device());
}

NcclGroup::~NcclGroup() {
  bool together = std::uncaught_exceptions() == 0;
  try {
    if (together) {
      device_.synchronize(stream_->get());  // the watchdog ends kernels that would never finish
      watchdog_->check();
    } else {
      watchdog_->fail(std::make_exception_ptr(CommError("given up after an exception")));
    }
  } catch (const std::exception& error) {
    log_warning("nccl: group '", options().name, "': error when it was closed: ", error.what());
    watchdog_->fail(std::current_exception());
    together = false;
  }
  std::shared_ptr<GroupProgress> pending;
  try {
    pending = watchdog_->stop(together);
  } catch (const std::exception& error) {
    log_warning(error.what());
    pending = watchdog_->stop(/*together=*/false);
    together = false;
  }
  try {
    if (together) comm_->close();
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
  if (pending == nullptr) return;
  context_->requests_pending = true;
  context_->kept.push_back(std::move(pending));
}

ProcessGroup& NcclGroup::host() {
  watchdog_->check();
  exposed_->collect();
  return *host_;
}

Work NcclGroup::submit(const CollectiveCall& call, bool async) {
  if (call.op == CollectiveOp::kAllReduceMax && is_float(call.in.dtype)) {
    throw DTypeError(cat("all_reduce_max: buffer is ", call.in,
                         ", expected integers, because NCCL's maximum ignores NaN"));
  }
  watchdog_->check();
  DeviceEvent(device_, call.stream).hold(stream_->get());
  if (call.after != nullptr) call.after->hold(stream_->get());
  const bool captured = captures(call.stream);
  const Fingerprint print = fingerprint(call, sequence_);
  const auto launch = watchdog_->begin(print, call.larger_bytes(), /*counts=*/!captured);
  std::shared_ptr<const DeviceEvent> finished;
  DeviceSlice slice(context_->timeline, stream_->get());
  try {
    comm_->issue(call, rank(), size(), stream_->get());
    finished = std::make_shared<const DeviceEvent>(device_, stream_->get());
  } catch (...) {
    launch->queued(nullptr);
    watchdog_->check();  // throws the reason if the communicator was aborted
    throw;
  }
  slice.end(options().name, print, call.larger_bytes(), first_rank_, context_->rank);
  launch->queued(captured ? nullptr : finished);
  if (!captured) ++sequence_;
  if (async) return Work(std::make_shared<NcclWork>(*this, finished, call));
  if (captured) {
    finished->hold(call.stream);
  } else {
    const TraceScope scope(options().tracer, "comm/wait");
    exposed_->wait(*finished, call.stream, call.traffic);
  }
  return Work();
}

// Records one event for all calls of a replayed graph: the device reports only the graph's end.
void NcclGroup::watch_replay(const std::vector<CollectiveCall>& calls, void* stream) {
  watchdog_->check();
  const auto finished = std::make_shared<const DeviceEvent>(device_, stream);
  for (const CollectiveCall& call : calls) {
    watchdog_->begin(fingerprint(call, sequence_++), call.larger_bytes())->queued(finished);
  }
}

std::unique_ptr<ProcessGroup> NcclGroup::make_split(int color, int key,
                                                    const GroupOptions& options) {
  auto child = host_->split_host(color, key, options);
  return std::make_unique<NcclGroup>(*this, std::move(child), color, key);
}

// Makes one communicator per link, by splits of the parent. Ranks at neither end of a link take
// part in its split too.
std::vector<std::unique_ptr<PipeLink>> NcclGroup::open_links(std::span<const LinkSpec> specs) {
  std::vector<LinkSpec> labels(specs.begin(), specs.end());
  for (LinkSpec& label : labels) {
    label.capacity_bytes = 0;
    label.slots = NcclLink::kAhead;
  }
  std::vector<LinkEnd> ends = host_->open_mailboxes(labels);
  std::vector<std::unique_ptr<PipeLink>> links;
  for (size_t i = 0; i < specs.size(); ++i) {
    NcclOptions options = nccl_options();
    // Kernels of all links and of the group must be resident together, or they may wait for each
    // other for ever.
    options.max_ctas = NcclLink::kCtas;
    if (ends[i].mailbox == nullptr) {
      parent().split(NcclParent::kNoColor, 0, options);
      links.push_back(nullptr);
      continue;
    }
    const bool sends = ends[i].options.sends;
    auto comm = std::make_unique<NcclComm>(parent(), 0, sends ? 0 : 1, options);
    const int peer = sends ? specs[i].receiver : specs[i].sender;
    std::weak_ptr<DeviceStream>& known = link_streams_[{peer, specs[i].direction, sends}];
    std::shared_ptr<DeviceStream> stream = known.lock();
    if (stream == nullptr) known = stream = std::make_shared<DeviceStream>(device_);
    links.push_back(std::make_unique<NcclLink>(context_, std::move(ends[i]), specs[i],
                                               std::move(comm), device_, std::move(stream)));
  }
  return links;
}

}  // namespace shale::comm
