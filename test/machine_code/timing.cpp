#include "shale/test/machine_code/timing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <initializer_list>
#include <limits>
#include <string>

#include "shale/base/error.h"
#include "shale/test/machine_code/bounds.h"

namespace shale::machine_code {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Effects of an instruction besides using an issue slot.
enum class Event : uint8_t {
  kNone,
  kProduct,        // starts tensor core work
  kAwaitProducts,  // waits until few enough matmul groups are pending
  kAwaitBox,       // waits on a barrier for copies
  kArrive,         // arrives at a barrier, which frees a box
  kRequest,        // requests the copy of a box
  kAwaitTurn,      // waits at a named barrier at which another warpgroup arrives
  kPassTurn,
  kMeet,        // waits at a barrier of all warpgroups of the block
  kAwaitSpace,  // waits at a barrier for the warp that copies sums, until its last copy has been
                // read
  kGiveSums,    // arrives at a barrier of the warp that copies sums
};

struct Step {
  Event event = Event::kNone;
  int stall = 1;
  double latency = 0;  // cycles until its scoreboard is set
  int write_board = 7, read_board = 7;
  uint32_t awaited = 0;
  int pipe = 0;  // index of its pipe, below kPipes
  double pipe_cycles = 0;
  double tensor_cycles = 0;
  double operand_bytes = 0;  // that all four warps of a matmul read from shared memory
  bool ends_group = false;
  int groups = 0;
  int threads = 0;     // of a named barrier
  bool frees = false;  // the first arrival after a wait for matmuls
};

constexpr int kThreads = 128;  // of a warpgroup
constexpr int kPipes = 4;      // pipes for FMA, integers, special functions, shared memory
constexpr int kSharedPipe = 3;

// The port of an SM's shared memory: a calendar of how much of each time slot is taken.
class Port {
 public:
  // Takes the first free `cycles` from a time on. Returns when they end.
  double take(double from, double cycles) {
    double end = from;
    for (auto slot = static_cast<size_t>(from / kSlot); cycles > 0; ++slot) {
      if (slot >= taken_.size()) taken_.resize(2 * slot + 1024);
      const double begin = std::max(from, kSlot * double(slot));
      const double rest = kSlot * double(slot + 1) - begin;
      const double taking = std::min({cycles, rest, kSlot - taken_[slot]});
      if (taking <= 0) continue;
      taken_[slot] += taking, cycles -= taking, total_ += taking;
      end = std::max(begin + taking, kSlot * double(slot) + taken_[slot]);
    }
    return end;
  }

  // Takes `cycles` in equal parts that begin evenly over a time. Returns when the last one ends.
  double take_evenly(double from, double time, double cycles) {
    const double parts = std::ceil(cycles / kSlot);
    double end = from;
    for (double part = 0; part < parts; ++part) {
      end = std::max(end, take(from + time * part / parts, cycles / parts));
    }
    return end;
  }

  double total() const { return total_; }

 private:
  static constexpr double kSlot = 8;  // cycles
  std::vector<double> taken_;
  double total_ = 0;
};

double latency_of(const std::string& opcode, const HopperTimes& times) {
  const auto is = [&](std::initializer_list<const char*> stems) {
    return std::any_of(stems.begin(), stems.end(),
                       [&](const char* stem) { return opcode.starts_with(stem); });
  };
  if (is({"LDGSTS", "LDG", "LD.", "ATOMG", "RED"})) return times.second_level;
  if (is({"SYNCS", "BAR"})) return times.barrier;
  if (is({"LDS", "STS", "LDL", "STL", "STSM", "SHFL", "ATOMS", "UTMA", "LDC", "S2R", "S2UR",
          "REDUX"})) {
    return times.shared;
  }
  if (is({"R2UR", "VOTEU", "ELECT", "UL", "UI", "US", "UM", "UP", "R2P"})) return times.uniform;
  return times.special;
}

int number_at_end(const std::string& operands) {
  const size_t at = operands.rfind("0x");
  return at == std::string::npos
             ? 0
             : static_cast<int>(std::strtol(operands.c_str() + at, nullptr, 16));
}

Event event_of(const Instruction& instruction) {
  const std::string& opcode = instruction.opcode;
  if (opcode.starts_with("HGMMA")) return Event::kProduct;
  if (opcode.starts_with("WARPGROUP.DEPBAR")) return Event::kAwaitProducts;
  if (opcode.starts_with("SYNCS.PHASECHK")) return Event::kAwaitBox;
  if (opcode.starts_with("SYNCS.ARRIVE")) return Event::kArrive;
  if (opcode.starts_with("UTMALDG")) return Event::kRequest;
  // Barriers of warpgroups have a multiple of 128 threads; others include a warp that copies sums.
  const bool has_threads = instruction.operands.find(',') != std::string::npos;
  const bool has_copier = has_threads && number_at_end(instruction.operands) % kThreads != 0;
  if (opcode.starts_with("BAR.ARV")) return has_copier ? Event::kGiveSums : Event::kPassTurn;
  if (opcode.starts_with("BAR.SYNC")) {
    if (has_copier) return Event::kAwaitSpace;
    return has_threads ? Event::kAwaitTurn : Event::kMeet;
  }
  return Event::kNone;
}

Step step_of(const Instruction& instruction, const HopperTimes& times) {
  Step step{.event = event_of(instruction),
            .stall = std::max(1, instruction.stall()),
            .latency = latency_of(instruction.opcode, times),
            .write_board = instruction.write_board(),
            .read_board = instruction.read_board(),
            .awaited = instruction.awaited_boards()};
  const Work work = work_of(instruction);
  constexpr double kSchedulers = 4;  // schedulers of an SM, each with a quarter of the pipes
  const std::array<double, kPipes> cycles = {work.fma, work.alu, work.special,
                                             work.shared_bytes / times.port_bytes};
  for (int pipe = 0; pipe < kPipes; ++pipe) {
    if (cycles[size_t(pipe)] == 0) continue;
    step.pipe = pipe;
    step.pipe_cycles = kSchedulers * cycles[size_t(pipe)];
  }
  // The tensor cores of an SM do 2048 FMAs of 16-bit operands a cycle, those of a scheduler 512.
  step.tensor_cycles = work.tensor_fma / (gpus()[1].tensor_fma / kSchedulers);
  step.operand_bytes = kSchedulers * work.operand_bytes;
  step.ends_group = instruction.operands.find("gsb0") != std::string::npos;
  if (step.event == Event::kAwaitProducts) step.groups = number_at_end(instruction.operands);
  if (instruction.opcode.starts_with("BAR")) step.threads = number_at_end(instruction.operands);
  return step;
}

// The one warp of a warpgroup that runs on the simulated scheduler.
struct Warp {
  int block = 0, place = 0;  // number of the block; place of the warpgroup in it
  size_t at = 0;
  int turns = 0;
  double ready = 0;
  std::array<double, 8> boards{};
  // End times of matmul groups not yet waited for; kNever before they are known.
  std::deque<double> groups{};
  int64_t boxes = 0;            // number of boxes waited for
  size_t meeting = 0;           // last meeting reached; 0 if all other warps have reached it
  double credit = 0;            // time at which its turn came
  int credits = 0, passes = 0;  // arrivals of other warpgroups; its own since its turn
  bool awaits_space = false;    // whether its last meeting includes the warp that copies sums
};

// A matmul that was issued.
struct Product {
  size_t warp = 0;
  double time = 0;  // of issue
  const Step* step = nullptr;
};

struct Block {
  std::vector<double> boxes;  // arrival time of each box
  // Times by warpgroup: boxes freed, meetings reached.
  std::vector<std::vector<double>> freed{}, met{};
  std::vector<double> given{}, space{};  // times by warpgroup: last sums given, last sums read
};

class Player {
 public:
  Player(const PlayedLoop& loop, const HopperTimes& times) : loop_(loop), times_(times) {
    for (const size_t i : usual_way(*loop.kernel, loop.loop)) {
      steps_.push_back(step_of(loop.kernel->code[i], times));
    }
    find_frees();
    find_meetings();
    blocks_.resize(size_t(loop.blocks));
    for (int block = 0; block < loop.blocks; ++block) {
      blocks_[size_t(block)].freed.resize(size_t(loop.warpgroups));
      blocks_[size_t(block)].met.resize(size_t(loop.warpgroups));
      blocks_[size_t(block)].given.assign(size_t(loop.warpgroups), kNever);
      blocks_[size_t(block)].space.assign(size_t(loop.warpgroups), 0);
      for (int place = 0; place < loop.warpgroups; ++place) {
        warps_.push_back({.block = block, .place = place});
        warps_.back().credits = are_exchanges_ ? 1 : std::max(0, arrivals_ - place);
        // Blocks start at different times, 97 cycles apart.
        warps_.back().ready = 97.0 * block;
      }
      for (int box = 0; box < loop.stages; ++box) request(block, 0);
    }
  }

  Played play() {
    constexpr int kSettles = 40, kTurns = 200;
    double begin = 0, tensor_begin = 0, bytes_begin = 0, port_begin = 0;
    while (warps_.front().turns < kSettles + kTurns) {
      const size_t warp = next_warp();
      issue(warp);
      if (warp == 0 && warps_.front().at == 0 && warps_.front().turns == kSettles) {
        begin = now_, tensor_begin = tensor_, bytes_begin = bytes_, port_begin = port_.total();
      }
    }
    const double copied = (bytes_ - bytes_begin) / times_.shared_copy_bytes;
    return {.cycles = std::max(now_ - begin, copied) / kTurns,
            .own_cycles = (now_ - begin) / kTurns,
            .tensor = (tensor_ - tensor_begin) / kTurns,
            .port = (port_.total() - port_begin) / kTurns};
  }

 private:
  // Finds the arrivals that free a box: warps that wait for their own boxes may arrive at these
  // barriers too.
  void find_frees() {
    int64_t waits = 0, frees = 0;
    bool awaited = false;
    for (const bool is_second : {false, true}) {  // two iterations, because earlier steps matter
      waits = frees = 0;
      for (Step& step : steps_) {
        if (step.event == Event::kAwaitProducts) awaited = true;
        if (step.event == Event::kAwaitBox) ++waits;
        if (step.event != Event::kArrive) continue;
        step.frees = is_second && awaited;
        frees += awaited;
        awaited = false;
      }
    }
    if (loop_.stages == 0) return;
    if (frees == 0 || waits % frees != 0) {
      throw InternalError(cat(loop_.kernel->name, ": a turn waits for ", waits, " boxes and frees ",
                              frees, " times"));
    }
    of_arrival_ = waits / frees;
  }

  // Determines what named barriers are for. If no warp merely arrives, all warps wait there for
  // each other. If a warp merely arrives and has matmuls between a wait and the next arrival,
  // warpgroups take turns at the matmuls; one of them has the first turn. Otherwise they exchange
  // results, and the first exchange counts as done.
  void find_meetings() {
    bool passes = false, waits = false, holds_products = false;
    for (int turn = 0; turn < 2; ++turn) {  // two iterations, because earlier steps matter
      for (const Step& step : steps_) {
        if (step.event == Event::kAwaitTurn) {
          waits = true, holds_products = false;
          arrivals_ = std::max(1, step.threads / kThreads - 1);
        }
        if (step.event == Event::kProduct) holds_products = true;
        if (step.event != Event::kPassTurn) continue;
        passes = true;
        if (waits && holds_products) are_exchanges_ = false;
      }
    }
    for (Step& step : steps_) {
      if (step.event == Event::kAwaitTurn && !passes) step.event = Event::kMeet;
      if (step.event == Event::kGiveSums) gives_sums_ = true;
    }
  }

  // Returns the earliest known time at which a warp can issue its next instruction.
  double earliest(const Warp& warp) const {
    const Step& step = steps_[warp.at];
    double time = warp.ready;
    for (int board = 0; board < 6; ++board) {
      if (step.awaited >> board & 1) time = std::max(time, warp.boards[size_t(board)]);
    }
    if (step.pipe_cycles > 0) time = std::max(time, pipes_[size_t(step.pipe)]);
    return std::max({time, released(warp, step), met(warp)});
  }

  // Returns the time at which the event that the instruction waits for has happened.
  double released(const Warp& warp, const Step& step) const {
    const Block& block = blocks_[size_t(warp.block)];
    switch (step.event) {
      case Event::kAwaitProducts: {
        const auto open = static_cast<int>(warp.groups.size());
        return open > step.groups ? warp.groups[size_t(open - step.groups - 1)] : 0;
      }
      case Event::kAwaitBox: {
        const auto box = static_cast<size_t>(warp.boxes);
        return box < block.boxes.size() ? block.boxes[box] : kNever;
      }
      case Event::kAwaitTurn: return warp.credits >= arrivals_ ? warp.credit : kNever;
      case Event::kAwaitSpace: return block.space[size_t(warp.place)];
      default: return 0;
    }
  }

  // Returns the time at which all warps have reached the meeting of the warp's last instruction, if
  // it was a meeting.
  double met(const Warp& warp) const {
    double all = 0;
    if (warp.meeting == 0) return all;
    for (const std::vector<double>& met : blocks_[size_t(warp.block)].met) {
      if (met.size() < warp.meeting) return kNever;
      all = std::max(all, met[warp.meeting - 1] + times_.barrier);
    }
    return warp.awaits_space ? std::max(all, blocks_[size_t(warp.block)].space[size_t(warp.place)])
                             : all;
  }

  // Returns the warp that issues next, after the matmuls that start before that.
  size_t next_warp() {
    while (true) {
      size_t best = 0;
      double soonest = kNever;
      for (size_t i = 0; i < warps_.size(); ++i) {
        const double time = earliest(warps_[i]);
        if (time < soonest || (time == soonest && warps_[i].ready < warps_[best].ready)) {
          best = i, soonest = time;
        }
      }
      if (products_.empty() || product_start() > std::max(soonest, scheduler_)) {
        if (soonest < kNever) return best;
        throw InternalError(cat(loop_.kernel->name, ": warps wait for ever"));
      }
      multiply();
    }
  }

  double product_start() const {
    return std::max(products_.front().time + times_.product_start, tensor_free_);
  }

  // Carries out the next matmul. It reads operands while it computes, slightly ahead.
  void multiply() {
    const Product product = products_.front();
    const Step& step = *product.step;
    const double begin = product_start();
    products_.pop_front();
    tensor_free_ = std::max(begin + step.tensor_cycles,
                            port_.take_evenly(begin - times_.product_start, step.tensor_cycles,
                                              step.operand_bytes / times_.port_bytes));
    if (!step.ends_group) return;
    std::deque<double>& groups = warps_[product.warp].groups;
    *std::find(groups.begin(), groups.end(), kNever) = tensor_free_ + times_.product_end;
  }

  void issue(size_t number) {
    Warp& warp = warps_[number];
    const Step& step = steps_[warp.at];
    now_ = std::max(earliest(warp), scheduler_);
    warp.meeting = 0, warp.awaits_space = false;
    scheduler_ = now_ + 1;
    double wait = 0;  // for the port
    if (step.pipe_cycles > 0) {
      double& pipe = pipes_[size_t(step.pipe)];
      pipe = now_ + step.pipe_cycles;
      if (step.pipe == kSharedPipe) {
        wait = std::max(0.0, port_.take(now_, step.pipe_cycles) - pipe);
        pipe += wait;
      }
    }
    warp.boards[size_t(step.write_board)] = now_ + wait + step.latency;
    // An instruction's operands have been read once the pipe has accepted it.
    warp.boards[size_t(step.read_board)] = now_ + wait + std::max(step.pipe_cycles, 8.0);
    warp.ready = now_ + step.stall;
    carry_out(number, step);
    if (++warp.at == steps_.size()) end_turn(warp);
  }

  void end_turn(Warp& warp) {
    warp.at = 0, ++warp.turns;
    if (warp.place == 0 && !gives_sums_) reduce(now_, loop_.reduced_bytes);
  }

  // Copies sums from shared memory to the L2 cache. Returns when they have been read.
  double reduce(double time, double bytes) {
    if (bytes == 0) return time;
    bytes_ += bytes;
    const double lasts = bytes / times_.copy_bytes;
    return std::max(time + lasts, port_.take_evenly(time, lasts, bytes / times_.port_bytes));
  }

  void carry_out(size_t number, const Step& step) {
    Warp& warp = warps_[number];
    switch (step.event) {
      case Event::kProduct:
        tensor_ += step.tensor_cycles;
        products_.push_back({number, now_, &step});
        if (step.ends_group) warp.groups.push_back(kNever);
        break;
      case Event::kAwaitProducts:
        while (static_cast<int>(warp.groups.size()) > step.groups) warp.groups.pop_front();
        break;
      case Event::kAwaitBox: ++warp.boxes; break;
      case Event::kArrive:
        if (step.frees && loop_.stages > 0) free_boxes(warp);
        break;
      case Event::kRequest: request(warp.block, now_); break;
      case Event::kAwaitTurn: warp.credits -= arrivals_, warp.passes = 0; break;
      case Event::kPassTurn: pass_turn(warp); break;
      case Event::kGiveSums: give_sums(warp, step); break;
      case Event::kAwaitSpace:
        if (step.threads <= 2 * kThreads) break;
        warp.awaits_space = true;
        [[fallthrough]];
      case Event::kMeet: {
        std::vector<double>& met = blocks_[size_t(warp.block)].met[size_t(warp.place)];
        met.push_back(now_);
        warp.meeting = met.size();
        break;
      }
      default: break;
    }
  }

  void free_boxes(const Warp& warp) {
    Block& block = blocks_[size_t(warp.block)];
    for (int64_t i = 0; i < of_arrival_; ++i) {
      std::vector<double>& mine = block.freed[size_t(warp.place)];
      mine.push_back(now_ + times_.barrier);
      double all = 0;
      for (const std::vector<double>& freed : block.freed) {
        all = freed.size() < mine.size() ? kNever : std::max(all, freed[mine.size() - 1]);
      }
      if (all < kNever) request(warp.block, all);
    }
  }

  void request(int block, double time) {
    const double begin = std::max(time + loop_.request, copies_);
    const double written = loop_.written_bytes > 0 ? loop_.written_bytes : loop_.box_bytes;
    copies_ = begin + written / times_.copy_bytes;
    bytes_ += loop_.box_bytes;
    const double stored =
        port_.take_evenly(begin + times_.copy, copies_ - begin, written / times_.port_bytes);
    blocks_[size_t(block)].boxes.push_back(std::max(copies_ + times_.copy, stored) +
                                           times_.barrier);
  }

  // Gives sums to the warp that copies them: those of one warpgroup, or of all if their barrier has
  // more threads. That warp copies them once all have arrived.
  void give_sums(const Warp& from, const Step& step) {
    Block& block = blocks_[size_t(from.block)];
    const bool is_alone = step.threads <= 2 * kThreads;
    const auto place = static_cast<size_t>(from.place);
    block.given[place] = now_;
    const double last = is_alone ? now_ : *std::max_element(block.given.begin(), block.given.end());
    if (last == kNever) return;
    const double bytes = loop_.reduced_bytes / (is_alone ? loop_.warpgroups : 1);
    const double read = reduce(last + times_.barrier, bytes) + times_.barrier;
    for (size_t i = 0; i < block.space.size(); ++i) {
      if (is_alone && i != place) continue;
      block.space[i] = read, block.given[i] = kNever;
    }
  }

  // The first arrival after a warpgroup's turn is at the next warpgroup's barrier, the second one
  // at the barrier of the one after that.
  void pass_turn(Warp& from) {
    ++from.passes;
    for (Warp& warp : warps_) {
      const int place = (from.place + from.passes) % loop_.warpgroups;
      if (warp.block != from.block || warp.place != place) continue;
      ++warp.credits;
      warp.credit = now_ + times_.barrier;
    }
  }

  PlayedLoop loop_;
  HopperTimes times_;
  std::vector<Step> steps_;
  int64_t of_arrival_ = 1;  // boxes that one arrival frees
  bool are_exchanges_ = true;
  int arrivals_ = 1;         // of other warpgroups, before a warpgroup has its turn
  bool gives_sums_ = false;  // whether another warp copies sums, at a barrier
  std::vector<Warp> warps_;
  std::vector<Block> blocks_;
  std::deque<Product> products_;  // issued matmuls that have not started
  Port port_;
  std::array<double, kPipes> pipes_{};
  double now_ = 0, scheduler_ = 0, tensor_free_ = 0, tensor_ = 0, copies_ = 0, bytes_ = 0;
};

}  // namespace

std::vector<size_t> usual_way(const Kernel& kernel, const Loop& loop) {
  const std::vector<std::vector<size_t>> next = kernel.next();
  // The best path from an instruction to the loop's last: its counted instructions, its length, and
  // the next instruction on it.
  struct Way {
    int counted = -1, length = 0;
    size_t next = 0;
    bool worse_than(int by, int long_as) const {
      return counted < by || (counted == by && length > long_as);
    }
  };
  std::vector<Way> ways(loop.last - loop.first + 1);
  const auto way_from = [&](size_t i) -> Way& { return ways[i - loop.first]; };
  const auto counts = [&](size_t i) {
    switch (event_of(kernel.code[i])) {
      case Event::kProduct:
      case Event::kAwaitProducts:
      case Event::kArrive:
      case Event::kRequest:
      case Event::kAwaitTurn:
      case Event::kPassTurn:
      case Event::kAwaitSpace:
      case Event::kGiveSums:
      case Event::kMeet: return 1;
      default: return 0;
    }
  };
  way_from(loop.last) = {counts(loop.last), 1, loop.last};
  for (size_t i = loop.last; i-- > loop.first;) {
    for (const size_t to : next[i]) {
      if (to <= i || to > loop.last || way_from(to).counted < 0) continue;
      const int counted = way_from(to).counted + counts(i), length = way_from(to).length + 1;
      if (way_from(i).worse_than(counted, length)) way_from(i) = {counted, length, to};
    }
  }
  if (way_from(loop.first).counted < 0) {
    throw InternalError(cat(kernel.name, ": no way through its loop"));
  }
  std::vector<size_t> way = {loop.first};
  while (way.back() != loop.last) way.push_back(way_from(way.back()).next);
  return way;
}

Played play(const PlayedLoop& loop, const HopperTimes& times) {
  return Player(loop, times).play();
}

}  // namespace shale::machine_code
