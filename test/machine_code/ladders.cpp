#include "shale/test/machine_code/ladders.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "shale/base/error.h"
#include "shale/test/machine_code/bounds.h"
#include "shale/test/machine_code/epilogue.h"

namespace shale::machine_code {
namespace {

constexpr double kRequest = 150;  // cycles of a turn of the warp that asks for boxes

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

double number(const std::string& word) {
  return word == "-" ? 0 : std::stod(word);
}

std::string fixed(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

Rung::Rest rest_of(const std::string& word) {
  static const std::map<std::string, Rung::Rest> words = {{"stores", Rung::Rest::kStores},
                                                          {"many", Rung::Rest::kStoresOfMany},
                                                          {"plain", Rung::Rest::kPlain},
                                                          {"gelu", Rung::Rest::kGelu},
                                                          {"-", Rung::Rest::kNone}};
  const auto found = words.find(word);
  if (found == words.end()) throw DataError(cat("ladders: ", word, " is nothing that follows"));
  return found->second;
}

// Cycles of a block's tile by what its machine code does after its products, of this project's.
double cycles_with_epilogue(const Rung& rung, const PlayedKernel& kernel) {
  const bool takes_turns = kernel.kernel.name.find("PingPong") != std::string::npos;
  const double warps = takes_turns ? 4 : 8;
  const Work rest = epilogue_of(
      kernel.kernel, rung.rest == Rung::Rest::kGelu ? EpilogueKind::kGelu : EpilogueKind::kPlain);
  const double epilogue = tile_cycles({}, rest, warps, false, gpus()[1]).epilogue;
  const double products = kernel.played.cycles * rung.k / 64;
  return takes_turns ? std::max(products, (products + epilogue) / 2) : products + epilogue;
}

// The same where results wait for memory, of all blocks of a multiprocessor.
double cycles_with_stores(const Rung& rung, const PlayedKernel& kernel) {
  const Gpu& gpu = gpus()[1];
  const HopperTimes times;
  const double blocks = rung.loop.blocks;
  const double products =
      blocks * rung.m * rung.n * rung.k / gpu.tensor_fma / kernel.played.share();
  const double results = blocks * rung.m * rung.n * 2 / gpu.bytes_per_cycle();
  const double first = times.copy + times.barrier + rung.loop.box_bytes / times.copy_bytes;
  return products + results + (rung.rest == Rung::Rest::kStores ? first : 0);
}

}  // namespace

std::vector<Rung> read_rungs(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw DataError(cat(path, ": cannot be read"));
  std::vector<Rung> rungs;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    Rung rung;
    std::string box, m, n, k, tiles, multiprocessors, rest, published;
    words >> rung.ladder >> rung.step >> rung.object >> rung.kernel >> rung.loop.warpgroups >>
        rung.loop.blocks >> rung.loop.stages >> box >> m >> n >> k >> tiles >> multiprocessors >>
        rest >> published;
    if (!words) throw DataError(cat(path, ": \"", line, "\" is not 15 words of a rung"));
    rung.loop.box_bytes = number(box);
    rung.loop.request = rung.loop.stages > 0 ? kRequest : 0;
    rung.m = number(m), rung.n = number(n), rung.k = number(k);
    rung.tiles = number(tiles), rung.multiprocessors = number(multiprocessors);
    rung.rest = rest_of(rest), rung.published = number(published);
    rungs.push_back(rung);
  }
  return rungs;
}

PlayedKernel played(const std::string& object, const std::string& kernel, PlayedLoop loop) {
  std::optional<PlayedKernel> best;
  for (Kernel& found : disassemble(object, "sm_90a")) {
    if (without_spaces(found.name).find(kernel) == std::string::npos) continue;
    loop.kernel = &found;
    for (const Loop& inner : found.inner_loops("HGMMA")) {
      loop.loop = inner;
      const Played one = play(loop);
      if (!best || one.share() > best->played.share()) best = {found, inner, one};
    }
  }
  if (!best) {
    throw DataError(cat(object, ": no kernel whose name has ", kernel, " and a loop of products"));
  }
  return *best;
}

double predicted(const Rung& rung, const PlayedKernel& kernel) {
  const Gpu& gpu = gpus()[1];
  double share = kernel.played.share();
  if (rung.rest == Rung::Rest::kPlain || rung.rest == Rung::Rest::kGelu) {
    const double products = kernel.played.tensor * rung.k / 64;
    share = products / cycles_with_epilogue(rung, kernel);
  } else if (rung.rest != Rung::Rest::kNone) {
    const double blocks = rung.multiprocessors * rung.loop.blocks;
    const double cycles = std::ceil(rung.tiles / blocks) * cycles_with_stores(rung, kernel);
    const double products = rung.m * rung.n * rung.k * rung.tiles / gpu.tensor_fma;
    share = products / (cycles * gpu.multiprocessors);
  }
  return share * gpu.flops() * 1e-12;
}

std::string ladders_table(const std::vector<Rung>& rungs, const std::string& folder) {
  std::string table =
      "| ladder | step | main loop's share of the tensor cores | predicted TFLOP/s | published | "
      "ratio to the step before, predicted | published | error |\n"
      "|---|---|---:|---:|---:|---:|---:|---:|\n";
  const Rung* before = nullptr;
  double speed_before = 0;
  for (const Rung& rung : rungs) {
    const PlayedKernel kernel = played(folder + "/" + rung.object, rung.kernel, rung.loop);
    const double speed = predicted(rung, kernel);
    const bool is_first = before == nullptr || before->ladder != rung.ladder;
    const bool is_published = rung.published > 0;
    const double ratio = is_first ? 0 : speed / speed_before;
    const double real = is_first || !is_published ? 0 : rung.published / before->published;
    const auto cell = [](bool there, const char* format, double value) {
      return cat(" | ", there ? fixed(format, value) : std::string());
    };
    table +=
        cat("| ", rung.ladder, " | ", rung.step, cell(true, "%.0f%%", 100 * kernel.played.share()),
            cell(true, "%.0f", speed), cell(is_published, "%.0f", rung.published),
            cell(!is_first, "%.2f", ratio), cell(real > 0, "%.2f", real),
            cell(real > 0, "%+.0f%%", 100 * (ratio / real - 1)), " |\n");
    before = &rung, speed_before = speed;
  }
  return table;
}

}  // namespace shale::machine_code
