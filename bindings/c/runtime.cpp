// Runtime of a process: its rank, its device and the device's memory.
#include <mpi.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/base/version.h"
#include "shale/bindings/c/session.h"
#include "shale/comm/mpi_communicator.h"
#include "shale/models/training/run_config.h"
#include "shale/runtime/tensor/autograd_state.h"

namespace shale::c {
namespace {

constexpr double kDefaultTimeout = 600;
constexpr int kMostThreads = 4096;

struct MpiState {
  bool initialised = false, finalised = false;
};

MpiState mpi_state() {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return {initialised != 0, finalised != 0};
}

std::unique_ptr<comm::World> make_world(const shale_runtime_options& options) {
  const MpiState mpi = mpi_state();
  if (mpi.finalised) {
    throw CallError(SHALE_ERROR_STATE,
                    "MPI was finalised, and cannot be started a second time in a process");
  }
  if (!mpi.initialised) {
    if (options.has_communicator != 0) {
      throw CallError(SHALE_ERROR_STATE, "options->communicator is given, but MPI is not running");
    }
    return std::make_unique<comm::World>(0, nullptr);
  }
  MPI_Comm communicator = MPI_COMM_WORLD;
  if (options.has_communicator != 0) communicator = MPI_Comm_f2c(options.communicator);
  return std::make_unique<comm::World>(comm::MpiCommunicator{communicator});
}

Device device_of(const char* name, comm::World& world) {
  models::RunConfig config;
  if (name != nullptr) config.device = name;
  std::string choices;
  for (const std::string& known : device_choices()) {
    if (config.device == known) return models::device_of(config, world);
    choices += cat(choices.empty() ? "" : ", ", known);
  }
  throw ConfigError(
      cat("options->device is \"", excerpt(config.device), "\", expected one of ", choices));
}

double timeout_of(double given) {
  if (std::isnan(given)) throw ConfigError("options->timeout_s is not a number");
  if (given < 0) return 0;
  return given == 0 ? kDefaultTimeout : given;
}

std::unique_ptr<Session> make_session(const shale_runtime_options& options) {
  if (options.threads < 0 || options.threads > kMostThreads) {
    throw ConfigError(
        cat("options->threads is ", options.threads, ", expected 0 to ", kMostThreads));
  }
  if (options.device_memory < 0) {
    throw ConfigError(
        cat("options->device_memory is ", options.device_memory, ", expected 0 or more"));
  }
  const double timeout_s = timeout_of(options.timeout_s);
  auto session = std::make_unique<Session>();
  session->process = getpid();
  session->world = make_world(options);
  comm::World& world = *session->world;
  process_log().set_rank(world.rank());
  world.watch({.timeout_s = timeout_s});
  session->context =
      std::make_shared<Context>(ContextOptions{.device = device_of(options.device, world),
                                               .threads = std::max(1, options.threads),
                                               .device_memory = options.device_memory,
                                               .deterministic = options.deterministic != 0,
                                               .seed = options.seed});
  // Makes dropout masks differ between ranks, even before a model is sharded.
  const uint64_t first_sample = static_cast<uint64_t>(world.rank()) << 18;
  session->context->autograd().first_sample = first_sample;
  session->context->update_step([&](StepState& step) { step.sample = first_sample; });
  const comm::GroupOptions group{.timeout_s = timeout_s, .threads = std::max(1, options.threads)};
  session->group = world.group(group, session->context->backend());
  return session;
}

}  // namespace
}  // namespace shale::c

using namespace shale::c;

int32_t shale_api_version(void) {
  return SHALE_API_MAJOR * 1000 + SHALE_API_MINOR;
}

const char* shale_version(void) {
  return shale::shale_version().data();  // a string literal
}

const char* shale_last_error(void) {
  return last_error();
}

const char* shale_status_name(shale_status status) {
  switch (status) {
    case SHALE_OK: return "SHALE_OK";
    case SHALE_ERROR_ARGUMENT: return "SHALE_ERROR_ARGUMENT";
    case SHALE_ERROR_STATE: return "SHALE_ERROR_STATE";
    case SHALE_ERROR_CALLBACK: return "SHALE_ERROR_CALLBACK";
    case SHALE_ERROR_CONFIG: return "SHALE_ERROR_CONFIG";
    case SHALE_ERROR_DATA: return "SHALE_ERROR_DATA";
    case SHALE_ERROR_MISSING: return "SHALE_ERROR_MISSING";
    case SHALE_ERROR_UNAVAILABLE: return "SHALE_ERROR_UNAVAILABLE";
    case SHALE_ERROR_INTERNAL: return "SHALE_ERROR_INTERNAL";
    case SHALE_ERROR_MEMORY: return "SHALE_ERROR_MEMORY";
    case SHALE_ERROR_DISK: return "SHALE_ERROR_DISK";
    case SHALE_ERROR_COMM: return "SHALE_ERROR_COMM";
    case SHALE_ERROR_NON_FINITE: return "SHALE_ERROR_NON_FINITE";
    default: return "a status of another version";
  }
}

shale_status shale_runtime_create(const shale_runtime_options* options, shale_runtime* out) {
  return call("shale_runtime_create", [&] {
    wanted(out, "out");
    if (has_session()) {
      throw CallError(SHALE_ERROR_STATE,
                      "there is a runtime in this process; call shale_runtime_destroy() first");
    }
    const shale_runtime_options defaults = SHALE_RUNTIME_OPTIONS_INIT;
    begin_session(make_session(options_of(options, defaults, "options")));
    *out =
        static_cast<shale_runtime>(add_handle(Kind::kRuntime, std::make_shared<RuntimeObject>()));
  });
}

shale_status shale_runtime_destroy(shale_runtime runtime) {
  return call("shale_runtime_destroy", [&] {
    check_runtime(runtime);
    check_not_in_callback();
    end_session();
  });
}

shale_status shale_runtime_rank(shale_runtime runtime, int32_t* rank, int32_t* ranks,
                                int32_t* local_rank, int32_t* local_ranks) {
  return call("shale_runtime_rank", [&] {
    check_runtime(runtime);
    const shale::comm::World& world = *session().world;
    if (rank != nullptr) *rank = world.rank();
    if (ranks != nullptr) *ranks = world.size();
    if (local_rank != nullptr) *local_rank = world.local_rank();
    if (local_ranks != nullptr) *local_ranks = world.local_size();
  });
}

shale_status shale_runtime_device(shale_runtime runtime, char* text, size_t capacity) {
  return call("shale_runtime_device", [&] {
    check_runtime(runtime);
    give_text(to_string(session().context->device()), text, capacity, "text");
  });
}

shale_status shale_runtime_supports_bf16(shale_runtime runtime, int32_t* out) {
  return call("shale_runtime_supports_bf16", [&] {
    check_runtime(runtime);
    *wanted(out, "out") = supports_bf16(session().context->device()) ? 1 : 0;
  });
}

shale_status shale_runtime_set_sample(shale_runtime runtime, int64_t first) {
  return call("shale_runtime_set_sample", [&] {
    check_runtime(runtime);
    if (first < 0) fail_argument("first is ", first, ", expected 0 or more");
    session().context->autograd().numbers_samples = true;
    session().context->update_step(
        [first](shale::StepState& state) { state.sample = static_cast<uint64_t>(first); });
  });
}

shale_status shale_runtime_barrier(shale_runtime runtime) {
  return call("shale_runtime_barrier", [&] {
    check_runtime(runtime);
    session().group->host().barrier("shale_runtime_barrier");
  });
}

shale_status shale_runtime_sum(shale_runtime runtime, double value, double* out) {
  return call("shale_runtime_sum", [&] {
    check_runtime(runtime);
    wanted(out, "out");
    double sum = value;
    session().group->host().all_reduce_sum(shale::make_view(&sum, {1}),
                                           {.tag = "shale_runtime_sum"});
    *out = sum;
  });
}

shale_status shale_runtime_fail(shale_runtime runtime, shale_status why, const char* message,
                                int32_t* code) {
  return call("shale_runtime_fail", [&] {
    check_runtime(runtime);
    wanted(message, "message");
    constexpr auto kFirst = static_cast<shale_status>(shale::ExitCode::kUsage);
    constexpr auto kLast = static_cast<shale_status>(shale::ExitCode::kNonFinite);
    const bool known = why >= kFirst && why <= kLast;
    const auto exit = known ? static_cast<shale::ExitCode>(why) : shale::ExitCode::kInternal;
    // If another rank's failure caused this error, reports that rank's failure instead.
    const std::exception_ptr of_peer = why == SHALE_ERROR_COMM ? last_peer_failure() : nullptr;
    shale::comm::World& world = *session().world;
    const int result = of_peer != nullptr ? world.fail(of_peer) : world.fail(exit, message);
    if (code != nullptr) *code = result;
  });
}

shale_status shale_runtime_synchronize(shale_runtime runtime) {
  return call("shale_runtime_synchronize", [&] {
    check_runtime(runtime);
    session().context->synchronize();
  });
}

shale_status shale_runtime_usage(shale_runtime runtime, shale_runtime_usage_info* out) {
  return call("shale_runtime_usage", [&] {
    check_runtime(runtime);
    const shale::MemoryStats memory = session().context->allocator().stats();
    shale_runtime_usage_info usage = SHALE_RUNTIME_USAGE_INIT;
    usage.allocated = memory.allocated;
    usage.peak_allocated = memory.peak_allocated;
    usage.reserved = memory.reserved;
    usage.peak_reserved = memory.peak_reserved;
    usage.sent = std::llround(session().group->traffic().totals().sent_bytes);
    give(usage, out, "out");
  });
}
