#include "shale/test/machine_code/epilogue.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>

#include "shale/base/error.h"

namespace shale::machine_code {
namespace {

// Numbers by which two paths are compared. The first number that differs decides.
using Merit = std::array<double, 3>;

Merit merit_of(const Instruction& instruction, EpilogueKind kind) {
  const bool special = instruction.opcode.starts_with("MUFU");
  const bool packs = instruction.opcode.starts_with("STSM");
  const bool sends = instruction.opcode.starts_with("UTMASTG");
  return kind == EpilogueKind::kPlain ? Merit{double(packs), double(sends), -1}
                                      : Merit{double(special), double(sends), -1};
}

struct Way {
  Loop within, main;  // loop over tiles, and its inner loop over k
  EpilogueKind kind;
  double parts;  // number of 32-column parts per tile
};

bool holds(const Loop& outer, const Loop& inner) {
  return outer.first <= inner.first && outer.last >= inner.last &&
         (outer.first < inner.first || outer.last > inner.last);
}

// Finds the best path, by Merit, from a loop's first instruction to its last.
class Ways {
 public:
  Ways(const Kernel& kernel, const Way& way)
      : kernel_(kernel), within_(way.within), next_(kernel.next()), passes_(kernel.code.size(), 1) {
    const std::vector<Loop> loops = loops_of(way);
    for (const Loop& loop : loops) {
      const double times = height_of(loop, loops) == 1 ? way.parts : 2;
      for (size_t i = loop.first; i <= loop.last; ++i) passes_[i] *= times;
    }
    // The main loop has bounds of its own, so its instructions count 0 times.
    for (size_t i = way.main.first; i <= way.main.last; ++i) passes_[i] = 0;
    best_.resize(kernel.code.size());
    state_.resize(kernel.code.size(), State::kNew);
    find(way.kind);
  }

  Work work() const {
    if (!best_[within_.first]) {
      throw InternalError(
          kernel_.name +
          ": found no path from the first to the last instruction of the loop over tiles");
    }
    Work sum;
    for (size_t at = within_.first;; at = best_[at]->next) {
      Work one = work_of(kernel_.code[at]);
      one *= passes_[at];
      sum += one;
      if (at == within_.last) return sum;
    }
  }

 private:
  enum class State { kNew, kOpen, kDone };

  // Returns the loops inside the loop over tiles, except those around the main loop. Back edges to
  // the same instruction belong to one loop.
  std::vector<Loop> loops_of(const Way& way) const {
    std::map<size_t, size_t> ends;
    for (const Loop& loop : kernel_.loops()) {
      if (!holds(way.within, loop) || holds(loop, way.main)) continue;
      ends[loop.first] = std::max(ends[loop.first], loop.last);
    }
    std::vector<Loop> loops;
    for (const auto& [first, last] : ends) loops.push_back({first, last});
    return loops;
  }
  // Returns the nesting depth of the loops inside `loop`.
  static int height_of(const Loop& loop, const std::vector<Loop>& loops) {
    int height = 0;
    for (const Loop& inner : loops) {
      if (holds(loop, inner)) height = std::max(height, 1 + height_of(inner, loops));
    }
    return height;
  }

  struct Step {
    Merit merit{};  // merit of the best path from this instruction to the end
    size_t next = 0;
  };

  // Finds the best path from each instruction by an iterative depth-first search. Jumps back to an
  // instruction on the current path are ignored.
  void find(EpilogueKind kind) {
    std::vector<size_t> stack = {within_.first};
    while (!stack.empty()) {
      const size_t at = stack.back();
      if (state_[at] == State::kDone) {
        stack.pop_back();
        continue;
      }
      if (state_[at] == State::kNew) {
        state_[at] = State::kOpen;
        if (at == within_.last) continue;
        for (const size_t to : next_[at]) {
          if (state_[to] == State::kNew) stack.push_back(to);
        }
        continue;
      }
      settle(at, kind);
      state_[at] = State::kDone;
      stack.pop_back();
    }
  }

  void settle(size_t at, EpilogueKind kind) {
    Merit own = merit_of(kernel_.code[at], kind);
    for (double& part : own) part *= passes_[at];
    if (at == within_.last) {
      best_[at] = Step{own, at};
      return;
    }
    for (const size_t to : next_[at]) {
      if (state_[to] != State::kDone || !best_[to]) continue;
      Merit merit = best_[to]->merit;
      for (size_t i = 0; i < merit.size(); ++i) merit[i] += own[i];
      if (!best_[at] || merit > best_[at]->merit) best_[at] = Step{merit, to};
    }
  }

  const Kernel& kernel_;
  const Loop within_;
  std::vector<std::vector<size_t>> next_;
  std::vector<double> passes_;
  std::vector<std::optional<Step>> best_;
  std::vector<State> state_;
};

}  // namespace

Work epilogue_of(const Kernel& kernel, EpilogueKind kind, double parts) {
  const std::vector<Loop> products = kernel.inner_loops("HGMMA");
  if (products.empty()) throw InternalError(kernel.name + " has no loop with products");
  const Loop main = products.front();
  Loop tiles{0, std::numeric_limits<size_t>::max()};
  for (const Loop& loop : kernel.loops()) {
    if (holds(loop, main) && holds(tiles, loop)) tiles = loop;
  }
  if (tiles.last == std::numeric_limits<size_t>::max()) {
    throw InternalError(kernel.name + " has no loop over tiles");
  }
  Work work = Ways(kernel, {tiles, main, kind, parts}).work();
  for (const auto& [opcode, count] : work.unknown) {
    throw InternalError(cat(kernel.name, ": ", opcode, " is in no table of bounds.cpp"));
  }
  return work;
}

double parts_of(const Kernel& kernel) {
  for (const int cols : {64, 128, 256}) {
    if (kernel.name.find(cat("Gemm90Config<", cols, ",")) != std::string::npos) return cols / 32.0;
  }
  if (kernel.name.find("Gemm90PingPong<") != std::string::npos) return 128 / 32.0;
  throw InternalError(kernel.name + " is none of gemm90_bf16");
}

TileCycles tile_cycles(const Work& main_loop, const Work& epilogue, double warps, bool overlaps,
                       const Gpu& gpu) {
  // A scheduler with a single warp issues at most one instruction a cycle.
  Cycles rest = cycles_of(epilogue, warps, gpu);
  return {.products = cycles_of(main_loop, warps, gpu).tensor,
          .epilogue = rest.longest_besides_tensor(),
          .overlaps = overlaps};
}

// If two tiles overlap, their matmuls take turns on the tensor cores, and each tile runs its
// epilogue after its matmuls.
double share_at(const TileCycles& tile, double k) {
  const double products = tile.products * k / 64;
  const double both = tile.overlaps ? std::max(2 * products, products + tile.epilogue)
                                    : 2 * (products + tile.epilogue);
  return 2 * products / both;
}

}  // namespace shale::machine_code
