#include "shale/test/machine_code/ladders.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "shale/base/error.h"
#include "shale/test/machine_code/bounds.h"

namespace shale::machine_code {
namespace {

// The power limit of an H100, expressed as a speed: the fastest reported bf16 GEMM, while the peak
// is 989 TFLOP/s (github.com/stas00/ml-engineering, "Maximum Achievable Matmul FLOPS").
constexpr double kFastestProducts = 794.5e12;

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

Rung::Rest rest_of(const std::string& word) {
  static const std::map<std::string, Rung::Rest> words = {{"stores", Rung::Rest::kStores},
                                                          {"many", Rung::Rest::kStoresOfMany},
                                                          {"attention", Rung::Rest::kAttention}};
  const auto found = words.find(word);
  if (found == words.end()) throw DataError(cat("ladders: ", word, " is nothing that follows"));
  return found->second;
}

// Returns the tensor core utilization over whole tiles. `clock` is a multiple of the boost clock.
// Stores take memory time, which does not depend on it.
double share_with_stores(const Rung& rung, const PlayedKernel& kernel, double clock) {
  const Gpu& gpu = gpus()[1];
  const HopperTimes times;
  const double tensor = rung.loop.blocks * rung.m * rung.n * rung.k / gpu.tensor_fma;
  const double products = tensor / kernel.played.tensor * kernel.played.cycles_at(clock);
  const double results = rung.loop.blocks * rung.m * rung.n * 2 / gpu.bytes_per_cycle() * clock;
  const double first = times.copy + times.barrier + rung.loop.box_bytes / times.copy_bytes;
  const double wave = products + results + (rung.rest == Rung::Rest::kStores ? first : 0);
  const double waves = std::ceil(rung.tiles / (rung.multiprocessors * rung.loop.blocks));
  return tensor * rung.tiles / (rung.loop.blocks * waves * wave * gpu.multiprocessors);
}

// Returns the same for attention: a tile waits for its first box, takes `m` turns, and stores `n`
// bytes; other kernels move `k` bytes before and after.
double share_of_attention(const Rung& rung, const PlayedKernel& kernel, double clock) {
  const Gpu& gpu = gpus()[1];
  const HopperTimes times;
  const double first = times.copy + times.barrier + rung.loop.box_bytes / times.copy_bytes;
  const double tile =
      first + rung.m * kernel.played.cycles_at(clock) + rung.n / gpu.bytes_per_cycle() * clock;
  const double passes = rung.k / gpu.multiprocessors / gpu.bytes_per_cycle() * clock;
  const double rounds = std::ceil(rung.tiles / rung.multiprocessors);
  return kernel.played.tensor * rung.m * rung.tiles / gpu.multiprocessors /
         (rounds * tile + passes);
}

double share_of(const Rung& rung, const PlayedKernel& kernel, double clock) {
  return rung.rest == Rung::Rest::kAttention ? share_of_attention(rung, kernel, clock)
                                             : share_with_stores(rung, kernel, clock);
}

}  // namespace

double request_cycles(int stages) {
  return stages > 0 ? 150 : 0;
}

std::vector<Rung> read_rungs(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw DataError(cat(path, ": cannot be read"));
  std::vector<Rung> rungs;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    Rung rung;
    std::string rest;
    words >> rung.ladder >> rung.step >> rung.object >> rung.kernel >> rung.loop.warpgroups >>
        rung.loop.blocks >> rung.loop.stages >> rung.loop.box_bytes >> rung.loop.written_bytes >>
        rung.loop.reduced_bytes >> rung.m >> rung.n >> rung.k >> rung.tiles >>
        rung.multiprocessors >> rest >> rung.published;
    if (!words) throw DataError(cat(path, ": \"", line, "\" is not 17 words of a rung"));
    rung.loop.request = request_cycles(rung.loop.stages);
    rung.rest = rest_of(rest);
    rungs.push_back(rung);
  }
  return rungs;
}

PlayedKernel played(const std::string& object, const std::string& kernel, PlayedLoop loop,
                    const HopperTimes& times) {
  std::optional<PlayedKernel> best;
  for (const Kernel& found : disassemble(object, "sm_90a")) {
    if (without_spaces(found.name).find(kernel) == std::string::npos) continue;
    loop.kernel = &found;
    for (const Loop& inner : found.inner_loops("HGMMA")) {
      loop.loop = inner;
      const Played one = play(loop, times);
      if (!best || one.share() > best->played.share()) best = {found, one};
    }
  }
  if (!best) {
    throw DataError(cat(object, ": no kernel whose name has ", kernel, " and a loop of products"));
  }
  return *best;
}

double allowed_clock(const std::function<double(double)>& flops_at) {
  const Gpu& gpu = gpus()[1];
  const double full = kFastestProducts / gpu.flops() * gpu.clock_hz;
  const double power = kFastestProducts * full * full;
  double low = full, high = gpu.clock_hz;
  for (int i = 0; i < 60; ++i) {
    const double hz = (low + high) / 2;
    (flops_at(hz) * hz * hz > power ? high : low) = hz;
  }
  return low;
}

Prediction predicted(const Rung& rung, const PlayedKernel& kernel) {
  const Gpu& gpu = gpus()[1];
  const auto flops_at = [&](double hz) {
    const double clock = hz / gpu.clock_hz;
    return share_of(rung, kernel, clock) * clock * gpu.flops();
  };
  const double hz = allowed_clock(flops_at);
  return {.flops = flops_at(hz), .clock_hz = hz};
}

std::string ladders_table(const std::vector<Rung>& rungs, const std::string& folder) {
  std::string table =
      "| ladder | step | loop's share of the tensor cores | of the port | GHz | predicted TFLOP/s "
      "| published | error | stands | step's ratio, predicted | published | error |\n"
      "|---|---|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|\n";
  const Rung* before = nullptr;
  Prediction last;
  for (const Rung& rung : rungs) {
    const PlayedKernel kernel = played(folder + "/" + rung.object, rung.kernel, rung.loop);
    const Prediction now = predicted(rung, kernel);
    const bool is_step = before != nullptr && before->ladder == rung.ladder;
    const double error = now.flops * 1e-12 / rung.published - 1;
    const double ratio = is_step ? now.flops / last.flops : 0;
    const double real = is_step ? rung.published / before->published : 1;
    const auto cell = [](bool there, const char* pattern, double value) {
      return cat(" | ", there ? format(pattern, value) : std::string());
    };
    table += cat(
        "| ", rung.ladder, " | ", rung.step, cell(true, "%.0f%%", 100 * kernel.played.share()),
        cell(true, "%.0f%%", 100 * kernel.played.port / kernel.played.cycles),
        cell(true, "%.2f", now.clock_hz * 1e-9), cell(true, "%.0f", now.flops * 1e-12),
        cell(true, "%.0f", rung.published), cell(true, "%+.0f%%", 100 * error), " | ",
        std::abs(error) <= kMostError ? "yes" : "withdrawn", cell(is_step, "%.2f", ratio),
        cell(is_step, "%.2f", real), cell(is_step, "%+.0f%%", 100 * (ratio / real - 1)), " |\n");
    before = &rung, last = now;
  }
  return table;
}

}  // namespace shale::machine_code
