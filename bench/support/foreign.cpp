#include "shale/bench/support/foreign.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "shale/base/error.h"

namespace shale::bench {
namespace {

namespace fs = std::filesystem;

// A folder that exists as long as the object.
struct TemporaryFolder {
  TemporaryFolder() {
    std::string name = fs::temp_directory_path() / "shale_foreign_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) {
      throw DiskError(cat("--foreign: cannot make ", name, ": ", std::strerror(errno)));
    }
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  fs::path path;
};

std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Returns the first line with an error in a compiler's messages, or else the first line.
std::string first_error(const fs::path& log) {
  std::ifstream in(log);
  std::string first;
  for (std::string line; std::getline(in, line);) {
    if (line.find("error") != std::string::npos) return line;
    if (first.empty()) first = line;
  }
  return first;
}

// Compiles `file` to a shared object in `folder`.
fs::path compile(const fs::path& file, const fs::path& folder) {
  const bool cuda = file.extension() == ".cu";
  const char* const cxx = std::getenv("CXX");
  const std::string compiler = cuda ? "nvcc" : cxx != nullptr && *cxx != 0 ? cxx : "c++";
  // -arch=native compiles for the GPUs of this machine or, if there are none, for nvcc's default.
  const std::string flags =
      cuda ? " -O3 -arch=native -Xcompiler -fPIC" : " -O3 -march=native -fopenmp -fPIC";
  fs::path object = folder / "foreign.so", log = folder / "log";
  const std::string command = cat(compiler, flags, " -shared -o ", quoted(object), " ",
                                  quoted(fs::absolute(file)), " >", quoted(log), " 2>&1");
  const int status = std::system(command.c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == 127) {
    throw UnavailableError(cat("--foreign: ", compiler, " was not found, which compiles ",
                               file.string(), "; add its folder to PATH"));
  }
  if (code != 0) {
    throw ConfigError(
        cat("--foreign: ", compiler, " cannot compile ", file.string(), ": ", first_error(log)));
  }
  return object;
}

// Arguments of one call.
struct Call {
  explicit Call(const PlainOperands& operands) : shape(operands.shape) {
    for (const View& view : operands.in) in.push_back(view.data);
    for (const View& view : operands.out) out.push_back(view.data);
  }
  std::vector<const void*> in;
  std::vector<void*> out;
  std::vector<int64_t> shape;
};

template <typename T>
std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  std::vector<float> floats(values.size());
  std::ranges::transform(values, floats.begin(), [](T value) { return float(value); });
  return floats;
}

std::vector<float> read(KernelDevice& device, const View& view) {
  std::vector<std::byte> bytes(size_t(view.bytes()));
  device.backend().copy(bytes.data(), view.data, bytes.size(), device.stream());
  device.synchronize();
  switch (view.dtype) {
    case DType::kBF16: return floats_of<bf16>(bytes);
    case DType::kF16: return floats_of<f16>(bytes);
    default: view.as<float>(); return floats_of<float>(bytes);  // throws for other dtypes
  }
}

// Fills the memory with NaN, so that elements that are not written are found.
void spoil(KernelDevice& device, const View& view) {
  const std::vector<std::byte> bytes(size_t(view.bytes()), std::byte{0xff});
  device.backend().copy(view.data, bytes.data(), bytes.size(), device.stream());
  device.synchronize();
}

}  // namespace

ForeignKernel::ForeignKernel(const std::string& place, DeviceType device) {
  const size_t colon = place.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == place.size()) {
    throw ConfigError(cat("--foreign: ", place, ", expected FILE:FUNCTION"));
  }
  const fs::path file = place.substr(0, colon);
  const std::string function = place.substr(colon + 1);
  name_ = cat(file.filename().string(), ":", function);
  if (device == DeviceType::kEmu) {
    throw ConfigError(
        "--foreign: needs --device cuda, or cpu for a function in C++ (found emu); the emulator "
        "runs kernels that include <shale/simt/simt.h>, as examples/05_kernel");
  }
  if (!fs::is_regular_file(file)) {
    throw MissingInputError(cat("--foreign: there is no file ", file.string()));
  }
  const bool cuda = file.extension() == ".cu";
  if (cuda != (device == DeviceType::kCuda)) {
    throw ConfigError(cat(
        "--foreign: ", file.string(), " with --device ",
        cuda ? "cpu, expected cuda for .cu files" : "cuda, expected a .cu file, or --device cpu"));
  }
  const TemporaryFolder folder;
  const fs::path object = compile(file, folder.path);
  library_ = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    throw ConfigError(cat("--foreign: ", file.string(), " cannot be loaded: ", dlerror()));
  }
  launch_ = reinterpret_cast<Launch>(dlsym(library_, function.c_str()));
  if (launch_ != nullptr) return;
  dlclose(library_);
  throw ConfigError(cat("--foreign: ", file.string(), " has no function ", function,
                        ", expected extern \"C\" void ", function,
                        "(const void* const* in, void* const* out, const int64_t* shape, "
                        "cudaStream_t stream)"));
}

ForeignKernel::~ForeignKernel() {
  dlclose(library_);
}

double ForeignKernel::compare(const KernelBench& bench, const PreparedCase& prepared) const {
  if (prepared.plain.empty()) {
    throw ConfigError(
        "--foreign: this case cannot be compared with a function; "
        "runtime/kernel_check/plain_operands.h lists the kernels that can");
  }
  KernelDevice& device = bench.device();
  const PlainOperands& operands = prepared.plain.front();  // operands of the first call
  prepared.run();
  std::vector<std::vector<float>> ours;
  for (const View& view : operands.out) ours.push_back(read(device, view));
  for (const View& view : operands.out) spoil(device, view);
  const Call call(operands);
  launch_(call.in.data(), call.out.data(), call.shape.data(), device.stream());
  double worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const std::vector<float> theirs = read(device, operands.out[i]);
    double largest = 0, difference = 0;
    for (const float value : ours[i]) largest = std::max(largest, std::abs(double(value)));
    size_t where = 0;
    for (size_t k = 0; k < theirs.size() && !std::isnan(difference); ++k) {
      const double d = std::abs(double(ours[i][k]) - double(theirs[k]));
      if (d > difference || std::isnan(d)) difference = d, where = k;
    }
    const double relative = difference / std::max(largest, 1e-30);
    worst = std::max(worst, relative);
    if (relative <= foreign_tolerance(operands.out[i].dtype)) continue;
    throw DataError(cat(name_, ": wrong result: out[", i, "][", where, "] is ", theirs[where],
                        ", expected ", ours[i][where], ", with a difference of at most ",
                        foreign_tolerance(operands.out[i].dtype), " times the largest value, ",
                        largest));
  }
  return worst;
}

std::function<void()> ForeignKernel::calls(const KernelBench& bench,
                                           const PreparedCase& prepared) const {
  std::vector<Call> calls(prepared.plain.begin(), prepared.plain.end());
  return [launch = launch_, calls = std::move(calls), turn = size_t{0},
          stream = bench.device().stream()]() mutable {
    const Call& call = calls[turn++ % calls.size()];
    launch(call.in.data(), call.out.data(), call.shape.data(), stream);
  };
}

double foreign_tolerance(DType dtype) {
  return dtype == DType::kBF16 ? 0x1p-6 : 0x1p-9;
}

}  // namespace shale::bench
