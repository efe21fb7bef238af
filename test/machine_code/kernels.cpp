// Checks that the machine code of this build's CUDA kernels has the properties that the sources
// intend.
#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "shale/base/error.h"
#include "shale/test/machine_code/epilogue.h"
#include "shale/test/machine_code/rules.h"
#include "shale/test/support/catch.h"

namespace shale::machine_code {
namespace {

// Returns the kernels of one object file of the library. Only bf16 kernels are checked, because f16
// kernels have the same source.
const std::vector<Kernel>& kernels_of(const std::string& file) {
  const bool hopper = file.find("90") != std::string::npos;
  const auto& kernels =
      disassemble(cat(SHALE_CUDA_OBJECTS "/", file, ".o"), hopper ? "sm_90a" : "sm_90");
  REQUIRE_FALSE(kernels.empty());
  return kernels;
}

// Checks a rule for the kernels of every file.
template <class Rule>
void hold(const std::vector<std::string>& files, const Rule& rule) {
  for (const std::string& file : files) {
    for (const Kernel& kernel : kernels_of(file)) {
      CAPTURE(file, kernel.name);
      for (const std::string& finding : rule(kernel)) FAIL_CHECK(finding);
    }
  }
}

const std::vector<std::string> kAttention = {"attention90_fwd_bf16", "attention90_bwd_bf16"};
const std::vector<std::string> kHopper = {"attention90_fwd_bf16", "attention90_bwd_bf16",
                                          "gemm90_bf16", "gemm90_fp8"};
const std::vector<std::string> kStreaming = {
    "loss", "dropout", "embedding", "norm_fwd",  "norm_bwd", "elementwise", "optim",
    "rope", "softmax", "index",     "moe_route", "moe_sort", "moe"};
// These kernels have operands with arbitrary strides, where finding an element needs integer
// division.
const std::vector<std::string> kStrided = {"pointwise", "reduce_dims"};

const Kernel& kernel_named(const std::string& file, const std::string& name) {
  for (const Kernel& kernel : kernels_of(file)) {
    if (kernel.name == name) return kernel;
  }
  FAIL(file << " has no " << name);
  throw 0;
}

// Returns the number of matmul loops that contain an instruction with this opcode.
size_t product_loops_with(const std::vector<std::string>& files, std::string_view opcode) {
  size_t found = 0;
  for (const std::string& file : files) {
    for (const Kernel& kernel : kernels_of(file)) {
      for (const Loop& loop : kernel.inner_loops("HGMMA")) found += kernel.count(opcode, loop) > 0;
    }
  }
  return found;
}

}  // namespace

TEST_CASE("exponentials of Hopper's attention run beside products", "[machine_code]") {
  const auto is_by_keys = [](const Kernel& kernel) {
    return kernel.name.starts_with("attention90_bwd_keys");
  };
  hold(kAttention, [&](const Kernel& kernel) {
    if (!is_by_keys(kernel)) return exponentials_beside_products(kernel);
    // An exception: with a softcap and heads of 64, ptxas caps the scores before the work that this
    // should overlap with.
    const bool caps_before = kernel.name.starts_with("attention90_bwd_keys_kernel<bf16, 64, ") &&
                             kernel.name.ends_with(", true>");
    return caps_before ? Findings{} : work_beside_products(kernel);
  });
  // Checks how many loops the rule covers. For each of five head sizes there are a masked and an
  // unmasked forward loop, one loop for dQ, and two for dK and dV (with and without dQ). For size
  // 192, each of two warpgroups has its own loops for dK and dV. All of these exist with and
  // without softcap.
  CHECK(product_loops_with(kAttention, "MUFU.EX2") == 2 * (5 * 2 + 5 + 5 * 2 + 2));
}

// A thread has 64 scores of 128 keys. Every seventh exponential uses the FMA pipe, so at most 54
// use the special-function pipe. Two multiplications scale the row maxima.
TEST_CASE("exponentials of heads of 64 are shared by two pipes", "[machine_code]") {
  CHECK(few_exponentials(
            kernel_named("attention90_fwd_bf16", "attention90_fwd_kernel<bf16, 64, false>"), 54, 2)
            .empty());
}

TEST_CASE("packs are stored whole", "[machine_code]") {
  hold(kStreaming, whole_stores);
  hold(kStrided, whole_stores);
}

TEST_CASE("descriptors of Hopper's products are computed once for a warp", "[machine_code]") {
  hold(kHopper, uniform_descriptors);
  CHECK(product_loops_with({"gemm90_bf16"}, "WARPGROUP.DEPBAR") >= 15);
}

TEST_CASE("products of fp8 are scaled beside the next ones", "[machine_code]") {
  hold({"gemm90_fp8"}, sums_beside_products);
}

TEST_CASE("no inner loop divides integers", "[machine_code]") {
  hold(kHopper, no_division);
  hold(kStreaming, no_division);
}

TEST_CASE("Hopper's kernels round by the ALU", "[machine_code]") {
  hold(kHopper, fast_rounding);
}

TEST_CASE("results of Hopper's products go from registers to boxes", "[machine_code]") {
  constexpr size_t kMost = 60;
  hold({"gemm90_bf16", "grouped_gemm90_bf16", "gemm90_fp8"},
       [](const Kernel& kernel) { return boxes_from_registers(kernel, kMost); });
}

TEST_CASE("the next tile's number comes beside the copies of this one's operands",
          "[machine_code]") {
  hold({"gemm90_bf16", "grouped_gemm90_bf16"}, next_tile_behind_copies);
}

TEST_CASE("blocks of a cluster read each part of b once and wait for stages alone",
          "[machine_code]") {
  size_t found = 0;
  for (const Kernel& kernel : kernels_of("gemm90_bf16")) {
    CAPTURE(kernel.name);
    for (const std::string& finding : stages_without_fences(kernel)) FAIL_CHECK(finding);
    size_t multicasts = 0;
    for (const Instruction& instruction : kernel.code) {
      multicasts += instruction.opcode.starts_with("UTMALDG.2D.MULTICAST");
    }
    const bool is_narrow = test::contains(kernel.name, "Gemm90Config<64,");
    CHECK((multicasts > 0) != is_narrow);
    found += multicasts > 0;
  }
  CHECK(found == 3 * 3 + 3);  // three tiles in three layouts, and three for SwiGLU
}

TEST_CASE("two tiles of Hopper's products take turns, whose epilogues cost nothing",
          "[machine_code]") {
  constexpr double kLeastK = 768;
  size_t found = 0;
  for (const Kernel& kernel : kernels_of("gemm90_bf16")) {
    if (!test::contains(kernel.name, "PingPong")) continue;
    ++found;
    CAPTURE(kernel.name);
    for (const std::string& finding : turns_pass_before_waits(kernel)) FAIL_CHECK(finding);
    const Work main = work_of(kernel, kernel.inner_loops("HGMMA").at(0));
    for (const EpilogueKind kind : {EpilogueKind::kPlain, EpilogueKind::kGelu}) {
      const Work epilogue = epilogue_of(kernel, kind, parts_of(kernel));
      CHECK(share_at(tile_cycles(main, epilogue, 4, /*overlaps=*/true, gpus()[1]), kLeastK) == 1);
    }
  }
  CHECK(found == 4);
}

// Each row is read once, and memory stays busy while its gradients are written.
TEST_CASE("the next row of logits comes while gradients of this one are written",
          "[machine_code]") {
  size_t found = 0;
  for (const Kernel& kernel : kernels_of("loss")) {
    if (!kernel.name.starts_with("cross_entropy_once")) continue;
    CAPTURE(kernel.name);
    size_t loops = 0;
    for (const Loop& loop : kernel.inner_loops("STG.E.128")) {
      if (kernel.count("MUFU.EX2", loop) == 0) continue;  // this loop writes zeros for ignored rows
      ++loops;
      CHECK(kernel.count("LDGSTS", loop) > 0);
      CHECK(kernel.count("LDG.", loop) == 0);
    }
    CHECK(loops >= 1);
    ++found;
  }
  CHECK(found == 3 * 3 * 2);  // 3 dtypes, 3 numbers of packs in registers, softcap or not
}

TEST_CASE("convolutions multiply by the tensor cores what they copy", "[machine_code]") {
  const std::vector<Kernel>& kernels = kernels_of("conv_bf16");
  CHECK(kernels.size() == 2 * 3);  // 3 tiles of 2 kernels: forward, and the two gradients
  for (const Kernel& kernel : kernels) {
    CAPTURE(kernel.name);
    CHECK_FALSE(kernel.inner_loops("HMMA").empty());
    CHECK(kernel.count("LDGSTS") > 0);
    CHECK(kernel.count("LDL") + kernel.count("STL") == 0);  // the kernel uses no local memory
  }
}

// Budgets are the sizes of kernels with CUDA 13.0, plus a quarter for other compilers. A larger
// kernel was unrolled or specialized unexpectedly.
TEST_CASE("kernels keep within their budgets of instructions", "[machine_code]") {
  std::ifstream file(SHALE_BUDGETS);
  std::map<std::string, size_t> sizes;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    size_t size = 0;
    std::string name;
    words >> size;
    std::getline(words >> std::ws, name);
    sizes[name] = size;
  }
  REQUIRE_FALSE(sizes.empty());
  std::vector<std::string> files = kStreaming;
  files.insert(files.end(), kStrided.begin(), kStrided.end());
  files.insert(files.end(), kHopper.begin(), kHopper.end());
  size_t found = 0;
  for (const std::string& of : files) {
    for (const Kernel& kernel : kernels_of(of)) {
      const auto size = sizes.find(kernel.name);
      if (size == sizes.end()) {
        FAIL_CHECK(kernel.code.size() << ' ' << kernel.name << ": not in " SHALE_BUDGETS);
        continue;
      }
      ++found;
      for (const std::string& finding : within_budget(kernel, size->second * 5 / 4)) {
        FAIL_CHECK(finding);
      }
    }
  }
  CHECK(found == sizes.size());  // otherwise the file lists a kernel that no longer exists
}

// ---- Each rule detects its violation, in kernels of this build that the test changes as compilers
// once did ----

TEST_CASE("a wait that moved above the exponentials is found", "[machine_code]") {
  Kernel kernel = kernel_named("attention90_fwd_bf16", "attention90_fwd_kernel<bf16, 128, false>");
  REQUIRE(exponentials_beside_products(kernel).empty());
  for (size_t i = 0; i < kernel.code.size(); ++i) {
    if (!kernel.code[i].opcode.starts_with("WARPGROUP.DEPBAR") ||
        !kernel.code[i].operands.ends_with("0x1")) {
      continue;
    }
    const auto later = std::find_if(kernel.code.begin() + int64_t(i), kernel.code.end(),
                                    [](const Instruction& instruction) {
                                      return instruction.opcode.starts_with("WARPGROUP.DEPBAR") &&
                                             instruction.operands.ends_with("0x0");
                                    });
    REQUIRE(later != kernel.code.end());
    std::swap(*later, kernel.code[i + 1]);
    break;
  }
  const Findings findings = exponentials_beside_products(kernel);
  REQUIRE(findings.size() == 1);
  CHECK(test::contains(findings[0], "0 of 64 exponentials stand before the wait"));
}

TEST_CASE("a step of backward that waits for more than it needs is found", "[machine_code]") {
  Kernel kernel =
      kernel_named("attention90_bwd_bf16", "attention90_bwd_keys_kernel<bf16, 128, true, false>");
  REQUIRE(work_beside_products(kernel).empty());
  const Loop loop = kernel.inner_loops("HGMMA").at(0);
  for (size_t i = loop.first; i <= loop.last; ++i) {
    std::string& operands = kernel.code[i].operands;
    if (!kernel.code[i].opcode.starts_with("WARPGROUP.DEPBAR")) continue;
    operands.back() = '0';  // now waits for dV's matmul, too, although only dP is needed
    break;
  }
  CHECK_FALSE(work_beside_products(kernel).empty());
}

TEST_CASE("exponentials and products that came back are found", "[machine_code]") {
  const Kernel& forward =
      kernel_named("attention90_fwd_bf16", "attention90_fwd_kernel<bf16, 128, false>");
  CHECK(few_exponentials(forward, 63, 2).size() == 1);
  CHECK(few_exponentials(forward, 64, 1).size() == 1);
}

TEST_CASE("a store in four pieces is found", "[machine_code]") {
  Kernel kernel = kernel_named("dropout", "dropout_kernel<bf16>");
  REQUIRE(whole_stores(kernel).empty());
  const auto whole = std::find_if(kernel.code.begin(), kernel.code.end(),
                                  [](const Instruction& i) { return i.opcode == "STG.E.128"; });
  REQUIRE(whole != kernel.code.end());
  const std::string base = whole->operands.substr(0, whole->operands.find(".64") + 3);
  const size_t at = size_t(whole - kernel.code.begin());
  kernel.code.erase(whole);
  for (const char* offset : {"", "+0x4", "+0x8", "+0xc"}) {
    kernel.code.insert(
        kernel.code.begin() + int64_t(at),
        {.address = 0x1230, .opcode = "STG.E", .operands = cat(base, offset, "], R9")});
  }
  REQUIRE(whole_stores(kernel).size() == 1);
  CHECK(test::contains(whole_stores(kernel)[0], "dropout_kernel<bf16> at 1230: four stores"));
}

TEST_CASE("descriptors through registers and divisions in loops are found", "[machine_code]") {
  Kernel kernel = kernel_named("attention90_fwd_bf16", "attention90_fwd_kernel<bf16, 64, false>");
  REQUIRE(uniform_descriptors(kernel).empty());
  REQUIRE(no_division(kernel).empty());
  const Loop loop = kernel.inner_loops("HGMMA").at(0);
  std::vector<Instruction*> sums;
  for (size_t i = loop.first; i < loop.last; ++i) {
    if (kernel.code[i].opcode.starts_with("FADD")) sums.push_back(&kernel.code[i]);
  }
  REQUIRE(sums.size() > 3);
  sums[0]->opcode = sums[1]->opcode = sums[2]->opcode = "R2UR";
  sums[3]->opcode = "I2F.U32.RP";
  CHECK(uniform_descriptors(kernel).size() == 1);
  CHECK(no_division(kernel).size() == 1);
}

TEST_CASE("a wait for all products of fp8 is found", "[machine_code]") {
  Kernel kernel = kernels_of("gemm90_fp8").front();
  REQUIRE(sums_beside_products(kernel).empty());
  const Loop loop = kernel.inner_loops("QGMMA").at(0);
  for (size_t i = loop.first; i <= loop.last; ++i) {
    std::string& operands = kernel.code[i].operands;
    if (!kernel.code[i].opcode.starts_with("WARPGROUP.DEPBAR")) continue;
    operands.back() = '0';
    break;
  }
  CHECK(sums_beside_products(kernel).size() == 1);
}

TEST_CASE("a fence beside the stages is found", "[machine_code]") {
  Kernel kernel = kernels_of("gemm90_bf16").front();
  REQUIRE(stages_without_fences(kernel).empty());
  kernel.code[kernel.inner_loops("UTMALDG").at(0).first].opcode = "MEMBAR.ALL.GPU";
  CHECK(stages_without_fences(kernel).size() == 1);
}

TEST_CASE("boxes that are filled otherwise are found", "[machine_code]") {
  Kernel kernel = kernels_of("gemm90_bf16").front();
  REQUIRE(boxes_from_registers(kernel, 60).empty());
  for (Instruction& instruction : kernel.code) {
    if (instruction.opcode.starts_with("STSM")) instruction.opcode = "STS.64";
  }
  CHECK(boxes_from_registers(kernel, 60).size() == 1);
}

TEST_CASE("a turn that is passed on behind the wait is found", "[machine_code]") {
  Kernel kernel = kernel_named(
      "gemm90_bf16", "gemm90_kernel<bf16, Gemm90PingPong<6, false>, false, true, Gemm90Params>");
  REQUIRE(turns_pass_before_waits(kernel).empty());
  const size_t end = kernel.inner_loops("HGMMA").at(0).last;
  const auto pass = std::find_if(
      kernel.code.begin() + int64_t(end), kernel.code.end(),
      [](const Instruction& instruction) { return instruction.opcode.starts_with("BAR.ARV"); });
  REQUIRE(pass != kernel.code.end());
  pass->opcode = "NOP";
  CHECK(turns_pass_before_waits(kernel).size() == 1);
}

TEST_CASE("a next tile that is waited for before the copies is found", "[machine_code]") {
  Kernel kernel = kernels_of("gemm90_bf16").front();
  REQUIRE(next_tile_behind_copies(kernel).empty());
  const auto asks = std::find_if(
      kernel.code.begin(), kernel.code.end(),
      [](const Instruction& instruction) { return instruction.opcode.starts_with("ATOMG.E.INC"); });
  REQUIRE(asks != kernel.code.end());
  const std::string answer = asks->operands.substr(4, asks->operands.find(',', 4) - 4);
  std::next(asks)->operands = cat("R2, ", answer, ", RZ");
  CHECK(next_tile_behind_copies(kernel).size() == 1);
  std::next(asks)->operands = "R2, RZ, RZ";
  asks->opcode = "NOP";
  CHECK(next_tile_behind_copies(kernel).size() == 1);
}

TEST_CASE("slow conversions and kernels that grow are found", "[machine_code]") {
  Kernel kernel = kernel_named("attention90_fwd_bf16", "attention90_fwd_kernel<bf16, 64, false>");
  const size_t size = kernel.code.size();
  CHECK(within_budget(kernel, size).empty());
  CHECK(within_budget(kernel, size - 1).size() == 1);
  kernel.code.front().opcode = "F2F.BF16.F32";
  CHECK(fast_rounding(kernel).size() == 1);
}

TEST_CASE("machine code is read as it is printed", "[machine_code]") {
  const std::vector<Kernel> kernels = read_sass(R"(
	code for sm_90
		Function : _ZN5shale7kernels4cuda39_GLOBAL__N__74e730d7_7_loss_cu_161326060addIfLi2EEEvPT_
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;      /* 0x00000a00ff017b82 */
                                                               /* 0x000fe20000000800 */
        /*0010*/              @!P0 BRA P1, 0x40 ;              /* 0x00000000006c8947 */
        /*0020*/                   NOP ;                       /* 0x000000000000782d */
        /*0030*/               @P0 BRA 0x10 ;                  /* 0x00000000006c8947 */
        /*0040*/                   EXIT ;                      /* 0x000000000000794d */
        /*0050*/                   BRA 0x50 ;                  /* 0x0000000000007947 */
)");
  REQUIRE(kernels.size() == 1);
  CHECK(kernels[0].architecture == "sm_90");
  REQUIRE(kernels[0].code.size() == 6);
  CHECK(kernels[0].code[1].opcode == "BRA");
  CHECK(kernels[0].code[1].operands == "P1, 0x40");
  const std::vector<Loop> loops = kernels[0].inner_loops();
  REQUIRE(loops.size() == 1);
  CHECK((loops[0].first == 1 && loops[0].last == 3));
  CHECK(short_name("_ZN5shale7kernels3emu12_GLOBAL__N_111fill_kernelIjEEvPT_S3_l") ==
        "fill_kernel<unsigned int>");
}

}  // namespace shale::machine_code
