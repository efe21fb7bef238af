// Examination of GPUs, MPI and the libraries loaded at run time, for shale doctor.
#include <dlfcn.h>
#include <dnnl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/comm/world.h"
#include "shale/kernels/fp8.h"
#include "shale/models/tools/doctor.h"
#include "shale/models/tools/supervision/child_process.h"
#include "shale/runtime/kernel_check/cache.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::models::doctor {
namespace {

// Optional library, opened by the first of its names that exists.
class Library {
 public:
  explicit Library(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) return;
      const char* const reason = dlerror();
      if (error_.empty()) error_ = reason != nullptr ? reason : name;
    }
  }
  bool found() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }

  // Returns a function of the library; null if it does not exist.
  template <typename Function>
  Function* get(const char* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_ = nullptr;  // never closed, because drivers have their own threads
  std::string error_;
};

// Returns "12.4" for 12040.
std::string cuda_version(int version) {
  return cat(version / 1000, ".", version % 1000 / 10);
}

// GPU as the driver reports it; `problem` says why other fields are unknown.
struct DriverGpu {
  MachineGpu gpu;
  std::string problem;
  size_t bytes = 0;
};

DriverGpu ask_for_gpu(const Library& driver, int index, int count) {
  DriverGpu found;
  found.gpu.reaches.resize(static_cast<size_t>(count));
  int device = 0, major = 0, minor = 0;
  std::array<char, 256> name{}, bus{};
  const auto get = driver.get<int(int*, int)>("cuDeviceGet");
  const auto get_name = driver.get<int(char*, int, int)>("cuDeviceGetName");
  const auto get_memory = driver.get<int(size_t*, int)>("cuDeviceTotalMem_v2");
  const auto get_attribute = driver.get<int(int*, int, int)>("cuDeviceGetAttribute");
  if (get == nullptr || get_name == nullptr || get_memory == nullptr || get_attribute == nullptr) {
    found.problem = "the driver library lacks functions";
    return found;
  }
  if (get(&device, index) != 0) {
    found.problem = "the driver cannot open this GPU";
    return found;
  }
  get_name(name.data(), static_cast<int>(name.size()) - 1, device);
  get_memory(&found.bytes, device);
  constexpr int kComputeMajor = 75, kComputeMinor = 76;  // constants of CUdevice_attribute
  get_attribute(&major, kComputeMajor, device);
  get_attribute(&minor, kComputeMinor, device);
  found.gpu.name = name.data();
  found.gpu.arch = 10 * major + minor;
  if (const auto get_bus = driver.get<int(char*, int, int)>("cuDeviceGetPCIBusId")) {
    if (get_bus(bus.data(), static_cast<int>(bus.size()) - 1, device) == 0) {
      found.gpu.place = read_pci_place(bus.data());
    }
  }
  const auto can_access = driver.get<int(int*, int, int)>("cuDeviceCanAccessPeer");
  for (int other = 0; can_access != nullptr && other < count; ++other) {
    int peer = 0, reached = 0;
    if (other == index || get(&peer, other) != 0) continue;
    found.gpu.reaches[static_cast<size_t>(other)] =
        can_access(&reached, device, peer) == 0 && reached != 0;
  }
  return found;
}

// Examines a GPU. Its memory size is 0 if it is unknown, as for a simulated GPU.
Finding examine_gpu(const DriverGpu& found, int index) {
  Finding finding{.section = "GPU", .name = cat("GPU ", index), .value = found.problem};
  if (!found.problem.empty()) return finding;
  const int arch = found.gpu.arch;
  finding.value = cat(found.gpu.name, ", compute ", capability_text(arch));
  if (found.bytes > 0) finding.value += ", " + format_bytes(static_cast<double>(found.bytes));
  if (arch < kOldestArch) {
    const Device device{.type = DeviceType::kCuda, .index = index, .arch = arch};
    finding.state = State::kWarning;
    finding.value += ": " + kernels_text(device, kOldestArch);
    finding.fix = "use --device cpu, or list the other GPUs, if any, in CUDA_VISIBLE_DEVICES";
  } else if (arch < kFirstWithBF16) {
    finding.value += "; no bf16: use --dtype fp16";
  } else {
    const Device device{.type = DeviceType::kCuda, .index = index, .arch = arch};
    const auto has = [&](kernels::Fp8Blocks blocks) {
      return kernels::why_no_fp8(device, blocks).empty();
    };
    finding.value += has(kernels::Fp8Blocks::kLines)    ? "; fp8"
                     : has(kernels::Fp8Blocks::kTensor) ? "; fp8 with --fp8-scaling tensor"
                                                        : "; no fp8";
  }
  return finding;
}

// Checks that this build can use the GPU, by starting the CUDA runtime, which needs a sufficiently
// new driver.
Finding try_gpu() {
  Finding finding{.section = "GPU", .name = "this build"};
  const ChildResult child = run_forked(
      [] {
        const auto backend = make_backend({.type = DeviceType::kCuda});
        std::puts(kernels_text(backend->device(), backend->kernel_arch()).c_str());
        return 0;
      },
      /*timeout_s=*/60);
  const std::string said = child.output.substr(0, child.output.find('\n'));
  finding.value = child.code == 0 ? "can use it: " + said : said;
  if (child.code != 0) {
    finding.state = State::kWarning;
    finding.fix =
        "use --device cpu, or build with -DSHALE_CUDA=ON and a CUDA toolkit no newer than "
        "the driver";
  }
  return finding;
}

void examine_gpu_libraries(Findings& findings) {
  const Library nccl{"libnccl.so.2"}, blas{"libcublasLt.so.13", "libcublasLt.so.12"};
  Finding collectives{.section = "GPU", .name = "NCCL", .value = "found"};
  if (const auto get_version = nccl.get<int(int*)>("ncclGetVersion")) {
    int version = 0;
    get_version(&version);
    collectives = examine_nccl(version);
  } else {
    collectives.state = State::kWarning;
    collectives.value = "not found: " + nccl.error();
    collectives.fix =
        "apt-get install libnccl2, or put its folder into LD_LIBRARY_PATH; else GPUs "
        "exchange data through the host";
  }
  findings.push_back(collectives);
  Finding products{.section = "GPU", .name = "cuBLASLt", .value = "found"};
  if (const auto get_version = blas.get<size_t()>("cublasLtGetVersion")) {
    const size_t version = get_version();
    products.value = cat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
  } else {
    products.state = State::kWarning;
    products.value = "not found: " + blas.error();
    products.fix =
        "put its folder into LD_LIBRARY_PATH; else GEMMs run on kernels of Shale, and fp8 on "
        "compute capability 9.0 only";
  }
  findings.push_back(products);
  Finding convolutions{.section = "GPU", .name = "cuDNN", .value = "found"};
  const Library dnn{"libcudnn.so.9"};
  if (const auto get_version = dnn.get<size_t()>("cudnnGetVersion")) {
    const size_t version = get_version();
    convolutions.value = cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  } else {
    convolutions.value = "not found, convolutions run on Shale's own kernels: " + dnn.error();
  }
  findings.push_back(convolutions);
}

// Returns true if a process may read another's memory directly (CMA), as Open MPI's shared-memory
// transport does. Containers often forbid it.
bool can_read_peers() {
  static volatile int word = 7;
  const pid_t parent = getpid();
  const ChildResult child = run_forked(
      [&] {
        int copy = 0;
        const iovec to{.iov_base = &copy, .iov_len = sizeof copy};
        const iovec from{.iov_base = const_cast<int*>(&word), .iov_len = sizeof copy};
        const bool read = process_vm_readv(parent, &to, 1, &from, 1, 0) == sizeof copy && copy == 7;
        return read ? 0 : 1;
      },
      /*timeout_s=*/10);
  return child.code == 0;
}

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

constexpr const char* kRoot = "OMPI_ALLOW_RUN_AS_ROOT";
constexpr const char* kRootConfirm = "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM";

void examine_root(Findings& findings) {
  if (geteuid() != 0) return;
  const bool allowed = is_set(kRoot) && is_set(kRootConfirm);
  findings.push_back({.section = "MPI",
                      .name = "root",
                      .state = allowed ? State::kOk : State::kWarning,
                      .value = allowed ? "mpirun may start ranks as root"
                                       : "mpirun refuses to start ranks as root",
                      .fix = allowed ? "" : cat("export ", kRoot, "=1 ", kRootConfirm, "=1")});
}

void examine_single_copy(Findings& findings) {
  const bool off = is_set("OMPI_MCA_btl_vader_single_copy_mechanism");
  if (off || can_read_peers()) return;
  findings.push_back({.section = "MPI",
                      .name = "single copy",
                      .state = State::kWarning,
                      .value = "processes may not read each other's memory here",
                      .fix = "export OMPI_MCA_btl_vader_single_copy_mechanism=none, if MPI says "
                             "\"Read -1, expected\""});
}

void examine_start(Findings& findings) {
  Finding finding{.section = "MPI", .name = "two ranks"};
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const ChildResult started = run_command(
      {"mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", self, "doctor", kAsRank},
      /*timeout_s=*/30, {cat(kRoot, "=1"), cat(kRootConfirm, "=1")});
  const std::string& output = started.output;
  if (started.code == 0) {
    finding.value = output.substr(0, output.find('\n'));
  } else {
    finding.state = State::kFailed;
    const size_t text = output.find_first_not_of("-\n \t");
    const std::string line =
        text == output.npos ? "" : output.substr(text, output.find('\n', text) - text);
    finding.value = cat("do not start: ", started.timed_out ? "nothing after 30 s" : line);
    finding.fix = started.code == 127 ? "apt-get install openmpi-bin, or add its folder to PATH"
                                      : "run mpirun -np 2 hostname to see what is wrong";
  }
  findings.push_back(finding);
}

}  // namespace

void examine_gpus(Findings& findings) {
  if (const auto machine = simulated_machine()) {
    findings.push_back({.section = "GPU",
                        .name = "devices",
                        .value = cat(machine->gpus.size(), ", which SHALE_MACHINE simulates")});
    for (size_t i = 0; i < machine->gpus.size(); ++i) {
      findings.push_back(examine_gpu({.gpu = machine->gpus[i]}, static_cast<int>(i)));
    }
    examine_topology(findings, *machine);
    return;
  }
  const Library driver{"libcuda.so.1"};
  const bool visible = access("/dev/nvidia0", F_OK) == 0;
  // Forks before this process initializes the driver, because a forked child cannot use a driver
  // that its parent initialized.
  Finding build;
  if (driver.found() && visible) build = try_gpu();
  const auto start = driver.get<int(unsigned)>("cuInit");
  const auto count_devices = driver.get<int(int*)>("cuDeviceGetCount");
  const auto get_version = driver.get<int(int*)>("cuDriverGetVersion");
  int count = 0, version = 0;
  const bool usable = visible && start != nullptr && count_devices != nullptr &&
                      get_version != nullptr && start(0) == 0 && count_devices(&count) == 0 &&
                      count > 0;
  if (!usable) {
    const std::string problem =
        driver.found() ? "/dev/nvidia0 exists, but the driver finds no GPU"
                       : "/dev/nvidia0 exists, but not its driver library: " + driver.error();
    findings.push_back({.section = "GPU",
                        .name = "devices",
                        .state = visible ? State::kWarning : State::kOk,
                        .value = visible ? problem : "none; use --device cpu, or emu for tests",
                        .fix = visible ? "nvidia-smi shows what is wrong; in a container: docker "
                                         "run --gpus all"
                                       : ""});
    return;
  }
  get_version(&version);
  findings.push_back(
      {.section = "GPU", .name = "driver", .value = cat("for CUDA ", cuda_version(version))});
  GpuMachine machine;
  for (int index = 0; index < count; ++index) {
    DriverGpu gpu = ask_for_gpu(driver, index, count);
    findings.push_back(examine_gpu(gpu, index));
    machine.gpus.push_back(std::move(gpu.gpu));
  }
  findings.push_back(build);
  examine_gpu_libraries(findings);
  examine_topology(findings, machine);
}

void examine_kernels(Findings& findings) {
  for (const kernel_check::StoredCheck& stored : kernel_check::stored_checks()) {
    const auto& [left_out, cases, not_run, seconds] = stored.report;
    const std::string of =
        cat(stored.device.gpu, ", driver ", stored.device.driver, ", build ", stored.device.build);
    findings.push_back({.section = "GPU",
                        .name = "kernels",
                        .state = stored.complete() ? State::kOk : State::kWarning,
                        .value = cat(cases, " cases of kernels compared with the CPU on ", of,
                                     stored.finished ? "" : "; one made the GPU fail or hang",
                                     not_run > 0 ? cat("; incomplete: no time for ", not_run,
                                                       " other cases; the next run checks again")
                                                 : std::string())});
    for (const kernel_check::LeftOut& one : left_out) {
      findings.push_back(
          {.section = "GPU",
           .name = "kernels",
           .state = State::kWarning,
           .value = cat(one.kernel, " are not used: ", one.reason),
           .fix = cat("report this with GPU and driver; to repeat the check: rm ", stored.file)});
    }
  }
}

void examine_mpi(Findings& findings, bool start_ranks) {
  findings.push_back({.section = "MPI", .name = "library", .value = comm::mpi_version()});
  examine_root(findings);
  examine_single_copy(findings);
  if (start_ranks) examine_start(findings);
}

void examine_libraries(Findings& findings) {
  const dnnl_version_t* const dnnl = dnnl_version();
  findings.push_back({.section = "Libraries",
                      .name = "oneDNN",
                      .value = cat(dnnl->major, ".", dnnl->minor, ".", dnnl->patch)});
}

int run_as_rank() {
  std::string name = "shale";
  std::array<char*, 2> arguments = {name.data(), nullptr};
  return comm::run(1, arguments.data(), [](comm::World& world) {
    const auto group = world.group({.timeout_s = 20});
    float sum = 1;
    group->all_reduce_sum(make_view(&sum, {1}));
    if (sum != static_cast<float>(world.size())) {
      throw CommError(cat("an all-reduce of ones gives ", sum, ", expected ", world.size()));
    }
    // Only rank 0 reports. World has checked MPI_THREAD_MULTIPLE, which it requires.
    if (world.rank() == 0) {
      std::printf("%d ranks start and exchange data, with MPI_THREAD_MULTIPLE\n", world.size());
    }
    return 0;
  });
}

}  // namespace shale::models::doctor
