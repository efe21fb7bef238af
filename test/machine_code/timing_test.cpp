// Tests play() on handwritten loops that differ in one feature each.
#include "shale/test/machine_code/timing.h"

#include <cmath>
#include <limits>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/text.h"
#include "shale/base/text_file.h"
#include "shale/test/machine_code/ladders.h"
#include "shale/test/support/catch.h"

namespace shale::machine_code {
namespace {

// Makes an instruction that delays the next one by `stall` cycles, and waits for scoreboards.
Instruction code(const std::string& opcode, const std::string& operands = "", int stall = 1,
                 int write_board = 7, uint32_t awaited = 0) {
  return {.opcode = opcode,
          .operands = operands,
          .control = uint32_t(stall) | uint32_t(write_board) << 5 | 7u << 8 | awaited << 11};
}

const Instruction kWaitForBox = code("SYNCS.PHASECHK.TRANS64.TRYWAIT", "P0, [UR4], R2");
const Instruction kFreeBox = code("SYNCS.ARRIVE.TRANS64.A1T0", "RZ, [UR4], RZ");
const Instruction kWait = code("WARPGROUP.DEPBAR.LE", "gsb0, 0x0");
const Instruction kWaitBehind = code("WARPGROUP.DEPBAR.LE", "gsb0, 0x1");

constexpr double kProduct = 64;  // cycles of a matmul
Instruction product(bool ends_group) {
  return code("HGMMA.64x128x16.F32.BF16",
              ends_group ? "R24, gdesc[UR8], R24, gsb0" : "R24, gdesc[UR8], R24");
}

// Makes an endless loop over the body.
Kernel loop_of(std::vector<Instruction> body) {
  Kernel kernel{.name = "by hand", .code = {code("NOP")}};
  for (Instruction& one : body) kernel.code.push_back(std::move(one));
  kernel.code.push_back(code("BRA", "0x10", 5));
  kernel.code.back().predicated = true;
  kernel.code.push_back(code("EXIT"));
  for (size_t i = 0; i < kernel.code.size(); ++i) kernel.code[i].address = 16 * i;
  return kernel;
}

struct Setting {
  int warpgroups = 1, blocks = 1, stages = 4;
  double box_bytes = 1024, written_bytes = 0, reduced_bytes = 0;
};
Played play_body(const std::vector<Instruction>& body, const Setting& setting = {},
                 const HopperTimes& times = {}) {
  const Kernel kernel = loop_of(body);
  return play({.kernel = &kernel,
               .loop = kernel.inner_loops("HGMMA").at(0),
               .warpgroups = setting.warpgroups,
               .blocks = setting.blocks,
               .stages = setting.stages,
               .box_bytes = setting.box_bytes,
               .written_bytes = setting.written_bytes,
               .reduced_bytes = setting.reduced_bytes},
              times);
}

std::vector<Instruction> turn(const Instruction& wait, const std::vector<Instruction>& rest = {}) {
  std::vector<Instruction> body = {kWaitForBox};
  for (int i = 0; i < 4; ++i) body.push_back(product(i == 3));
  body.push_back(wait);
  body.push_back(kFreeBox);
  body.insert(body.end(), rest.begin(), rest.end());
  return body;
}

// An exponential takes 8 cycles, because an SM has 16 lanes for them.
std::vector<Instruction> exponentials(int count) {
  return std::vector<Instruction>(size_t(count), code("MUFU.EX2", "R3, R4"));
}

}  // namespace

TEST_CASE("a played turn that waits for its products pays for their way in and out",
          "[machine_code]") {
  const HopperTimes times;
  const Played waits = play_body(turn(kWait));
  CHECK(waits.tensor == 4 * kProduct);
  CHECK(waits.cycles > 4 * kProduct + times.product_start + times.product_end);
  CHECK(waits.cycles < 4 * kProduct + times.product_start + times.product_end + 30);
  const Played behind = play_body(turn(kWaitBehind));
  CHECK(behind.share() == Approx(1).epsilon(0.001));
  // Matmuls of another warpgroup fill the gap in which one warpgroup waits.
  CHECK(play_body(turn(kWait), {.warpgroups = 2}).share() == Approx(1).epsilon(0.001));
}

TEST_CASE("a played turn waits for its boxes, by their latency and by their bytes",
          "[machine_code]") {
  const HopperTimes times;
  const std::vector<Instruction> body = turn(kWait);
  // With one stage, a box is requested once the previous one is free.
  CHECK(play_body(body, {.stages = 1}).cycles > times.copy + 4 * kProduct);
  CHECK(play_body(body, {.stages = 8, .box_bytes = 32 << 10}).cycles ==
        Approx((32 << 10) / times.shared_copy_bytes));
  // Blocks that request their own boxes have one box in flight each.
  std::vector<Instruction> own = {code("UTMALDG.2D", "[UR8], [UR6]")};
  own.insert(own.end(), body.begin(), body.end());
  const Played one = play_body(own, {.stages = 0});
  const Played two = play_body(own, {.blocks = 2, .stages = 0});
  CHECK(one.cycles > times.copy + 4 * kProduct);
  CHECK(two.share() > 1.8 * one.share());
}

TEST_CASE("a played turn's clock slows what is its own, not the second level cache",
          "[machine_code]") {
  const Played own = play_body(turn(kWait));
  CHECK(own.cycles_at(0.8) == own.cycles);
  const Played brought = play_body(turn(kWait), {.stages = 8, .box_bytes = 16 << 10});
  CHECK(brought.cycles > brought.own_cycles);
  CHECK(brought.cycles_at(0.95) == Approx(0.95 * brought.cycles));
  CHECK(brought.cycles_at(0.1) == brought.own_cycles);
}

TEST_CASE("an H100's clock falls as the cube root of what products take of its time",
          "[machine_code]") {
  constexpr double kBoost = 1.83e9, kPeak = 2 * 2048 * 132 * kBoost, kFastest = 794.5e12;
  const auto of_share = [](double share) {
    return allowed_clock([=](double hz) { return share * kPeak * hz / kBoost; });
  };
  CHECK(of_share(1) == Approx(kBoost * kFastest / kPeak));
  CHECK(of_share(0.7) == Approx(of_share(1) / std::cbrt(0.7)));
  CHECK(of_share(0.5) == Approx(kBoost));  // not above the boost clock
  // The more work is done in a time that does not depend on the clock, the lower the allowed clock.
  const auto of_flops = [](double flops) { return allowed_clock([=](double) { return flops; }); };
  CHECK(of_flops(700e12) == Approx(of_share(1) * std::sqrt(kFastest / 700e12)));
}

TEST_CASE("exponentials of a played turn run beside products if nothing waits", "[machine_code]") {
  const auto both = [](const Instruction& wait) { return turn(wait, exponentials(24)); };
  const double alone = 24 * 8;
  const Played waits = play_body(both(kWait)), behind = play_body(both(kWaitBehind));
  CHECK(waits.cycles > 4 * kProduct + alone - 8);
  CHECK(behind.share() == Approx(1).epsilon(0.001));
  // If exponentials take longer than the matmuls, they determine the iteration time.
  CHECK(play_body(turn(kWaitBehind, exponentials(64))).cycles == Approx(64 * 8).epsilon(0.02));
}

// Matmuls of 64 columns take 32 cycles of the tensor cores; of the port, 32 with both operands in
// shared memory, and 16 with one.
TEST_CASE("a played turn takes the shared-memory port for all that reads or writes there",
          "[machine_code]") {
  const auto narrow = [](bool shares_a, const std::vector<Instruction>& rest = {}) {
    std::vector<Instruction> body = turn(kWaitBehind, rest);
    for (Instruction& one : body) {
      if (!one.opcode.starts_with("HGMMA")) continue;
      one.opcode = "HGMMA.64x64x16.F32.BF16";
      if (!shares_a) one.operands.replace(0, 5, "R24, R4, ");
    }
    return body;
  };
  const double tensor = 4 * 32;
  const Played full = play_body(narrow(true), {.stages = 8, .box_bytes = 4096});
  CHECK(full.tensor == tensor);
  CHECK(full.cycles == Approx(4 * 32 + 4096 / 128).epsilon(0.02));
  CHECK(full.port == Approx(full.cycles).epsilon(0.02));
  const Played registers = play_body(narrow(false), {.stages = 8, .box_bytes = 4096});
  CHECK(registers.cycles == Approx(tensor).epsilon(0.01));
  CHECK(registers.port == Approx(4 * 16 + 4096 / 128).epsilon(0.01));
  // Blocks of a cluster write more than they read from the L2 cache; sums are read by copies too.
  const Played cluster = play_body(narrow(true), {.stages = 8, .written_bytes = 4096});
  CHECK(cluster.cycles == Approx(full.cycles).epsilon(0.02));
  const Played reduced = play_body(narrow(true), {.stages = 8, .reduced_bytes = 3072});
  CHECK(reduced.cycles == Approx(full.cycles).epsilon(0.02));
  const std::vector<Instruction> stores(8, code("STS.128", "[R3], R4"));  // 16 cycles each
  CHECK(play_body(narrow(false, stores), {.stages = 8}).cycles ==
        Approx(4 * 16 + 8 + 8 * 16).epsilon(0.05));
  // Spilled registers are in the same memory.
  const std::vector<Instruction> spills(16, code("STL", "[R1], R4"));  // 4 cycles each
  CHECK(play_body(narrow(false, spills), {.stages = 8}).port == Approx(4 * 16 + 8 + 16 * 4));
  // A wider port leaves the tensor cores as the limit.
  CHECK(play_body(narrow(true), {.stages = 8, .box_bytes = 4096}, {.port_bytes = 256}).share() >
        0.99);
}

TEST_CASE("results of a played turn are there after their latency", "[machine_code]") {
  const HopperTimes times;
  const auto reads = [](uint32_t awaited) {
    return turn(kWait, {code("LDS", "R3, [R4]", 1, 2), code("FADD", "R3, R3, R4", 1, 7, awaited)});
  };
  const double apart = play_body(reads(0)).cycles, waiting = play_body(reads(4)).cycles;
  CHECK(waiting - apart == Approx(times.shared - 1).margin(2));
}

TEST_CASE("warpgroups of a played loop meet, or take turns", "[machine_code]") {
  const auto cycles = [](std::vector<Instruction> body) {
    return play_body(body, {.warpgroups = 2}).cycles;
  };
  const auto with = [](const Instruction& first, std::vector<Instruction> body,
                       const Instruction& last) {
    body.insert(body.begin(), first);
    body.push_back(last);
    return body;
  };
  const Instruction sync = code("BAR.SYNC.DEFER_BLOCKING", "R5, 0x100"), none = code("NOP");
  const Instruction pass = code("BAR.ARV", "R6, 0x100"), all = code("BAR.SYNC", "0x0");
  const std::vector<Instruction> body = turn(kWait, exponentials(8));
  const double apart = cycles(with(none, body, none)), meet = cycles(with(none, body, sync));
  CHECK(meet > apart + 50);
  CHECK(cycles(with(none, body, all)) == meet);
  // If one warpgroup has the turn for a whole iteration, the tensor core idles when that warpgroup
  // waits; not if the turn passes after the matmuls were issued.
  const HopperTimes times;
  CHECK(cycles(with(sync, body, pass)) >
        2 * (4 * kProduct + times.product_start + times.product_end));
  std::vector<Instruction> early = with(sync, body, none);
  early.insert(early.begin() + 6, pass);
  CHECK(cycles(early) == Approx(2 * 4 * kProduct).epsilon(0.01));
  // Without a matmul in between, a warpgroup waits for what the other warpgroup passed an iteration
  // ago.
  std::vector<Instruction> given = with(sync, body, none);
  given.insert(given.begin() + 1, pass);
  CHECK(cycles(given) < apart + 10);
}

TEST_CASE("three warpgroups of a played loop take turns in order", "[machine_code]") {
  std::vector<Instruction> body = turn(kWait);
  body.insert(body.begin(), code("BAR.SYNC.DEFER_BLOCKING", "R5, 0x180"));
  const auto cycles = [&](size_t at) {
    std::vector<Instruction> all = body;
    for (int i = 0; i < 2; ++i) {  // an arrival for each of the others
      all.insert(all.begin() + int64_t(at), code("BAR.ARV", "R6, 0x180"));
    }
    return play_body(all, {.warpgroups = 3}).cycles;
  };
  const HopperTimes times;
  // Turns that pass before the wait for matmuls keep the tensor cores busy; later ones do not.
  CHECK(cycles(6) == Approx(3 * 4 * kProduct).epsilon(0.01));
  CHECK(cycles(8) > 3 * (4 * kProduct + times.product_start + times.product_end));
}

TEST_CASE("a warpgroup of a played loop waits until its last sums have been copied",
          "[machine_code]") {
  const auto cycles = [](const char* threads, double reduced) {
    std::vector<Instruction> body = turn(kWait);
    body.push_back(code("BAR.SYNC.DEFER_BLOCKING", cat("R5, ", threads)));
    body.push_back(code("BAR.ARV", cat("R6, ", threads)));
    return play_body(body, {.warpgroups = 2, .reduced_bytes = reduced}).cycles;
  };
  const HopperTimes times;
  // Warpgroups that give their sums apart need not meet, those that give them together do.
  CHECK(cycles("0xa0", 0) == Approx(2 * 4 * kProduct).epsilon(0.01));
  CHECK(cycles("0x120", 0) > 2 * 4 * kProduct + times.barrier);
  const double bytes = 128 << 10;
  CHECK(cycles("0xa0", bytes) > bytes / 2 / times.copy_bytes);
  CHECK(cycles("0x120", bytes) > bytes / times.copy_bytes + 2 * times.barrier);
}

TEST_CASE("the usual way through a loop has its waits and none of what is rare", "[machine_code]") {
  std::vector<Instruction> body = turn(kWait);
  // The box wait is followed by 20 instructions that a branch skips.
  std::vector<Instruction> rare(20, code("FADD", "R1, R1, R1"));
  rare.insert(rare.begin(), code("BRA", "0x170", 5));
  rare.front().predicated = true;
  body.insert(body.begin() + 1, rare.begin(), rare.end());
  const Kernel kernel = loop_of(body);
  const Loop loop = kernel.inner_loops("HGMMA").at(0);
  const std::vector<size_t> way = usual_way(kernel, loop);
  CHECK(way.size() == body.size() - 20 + 1);
  CHECK(way.front() == loop.first);
  CHECK(way.back() == loop.last);
}

TEST_CASE("a loop whose warps would wait for ever is an error", "[machine_code]") {
  CHECK_THROWS_AS(play_body({kWaitForBox, product(true)}), InternalError);  // never frees a box
  CHECK_THROWS_AS(play_body({product(true), code("BAR.SYNC", "R5, 0x100"),
                             code("BAR.SYNC", "R5, 0x100"), code("BAR.ARV", "R5, 0x100")},
                            {.stages = 0}),
                  InternalError);
}

TEST_CASE("a prediction of a kernel is near a published speed of its tile, or withdrawn",
          "[machine_code]") {
  const Json predictions =
      Json::parse(read_text_file(SHALE_PREDICTIONS, 1 << 20), {}, SHALE_PREDICTIONS);
  for (const Json& row : predictions["rows"]) {
    INFO(row["name"].get<std::string>());
    CHECK(row.contains("tflops_low") == row.contains("tflops_high"));
    if (!row.contains("tflops_high")) continue;
    REQUIRE(row.contains("published"));
    const double low = row["tflops_low"].get<double>(), high = row["tflops_high"].get<double>();
    CHECK(low < high);
    CHECK(std::abs((low + high) / 2 / row["published"].get<double>() - 1) <= kMostError);
  }
}

// With a shared-memory port without limits, these utilizations are upper bounds. A lower one means
// that a source change has serialized a loop.
TEST_CASE("loops of Hopper's kernels keep the tensor cores busy, as they are played",
          "[machine_code]") {
  const std::string folder = SHALE_CUDA_OBJECTS;
  const auto share = [&](const char* file, const char* kernel, const PlayedLoop& loop) {
    constexpr double kNoLimit = std::numeric_limits<double>::infinity();
    return played(folder + "/" + file + ".o", kernel, loop, {.port_bytes = kNoLimit})
        .played.share();
  };
  const auto loop_of_boxes = [](int warpgroups, double bytes) {
    return PlayedLoop{
        .warpgroups = warpgroups, .stages = 4, .box_bytes = bytes, .request = request_cycles(4)};
  };
  CHECK(share("attention90_fwd_bf16", "fwd_kernel<bf16,64,false>", loop_of_boxes(3, 16384)) > 0.88);
  CHECK(share("attention90_fwd_bf16", "fwd_kernel<bf16,128,false>", loop_of_boxes(2, 32768)) >
        0.99);
  CHECK(share("attention90_bwd_bf16", "bwd_keys_kernel<bf16,64,true,false>",
              loop_of_boxes(2, 16384)) > 0.98);
  CHECK(share("attention90_bwd_bf16", "bwd_keys_kernel<bf16,96,true,false>",
              loop_of_boxes(2, 16384)) > 0.96);
  CHECK(share("attention90_bwd_bf16", "bwd_keys_kernel<bf16,128,true,false>",
              loop_of_boxes(2, 16384)) > 0.98);
  CHECK(share("attention90_bwd_bf16", "bwd_keys_kernel<bf16,256,true,false>",
              loop_of_boxes(2, 32768)) > 0.9);
  CHECK(share("gemm90_bf16", "Gemm90Config<256,4,false>,false,true", loop_of_boxes(2, 32768)) >
        0.99);
}

}  // namespace shale::machine_code
