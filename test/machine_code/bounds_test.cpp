// Tests that the bounds page matches the current kernels, and that its calculations are correct.
#include <fstream>
#include <sstream>

#include "shale/base/error.h"
#include "shale/test/machine_code/bounds.h"
#include "shale/test/machine_code/epilogue.h"
#include "shale/test/support/catch.h"

namespace shale::machine_code {
namespace {

constexpr const char* kText = R"(
	code for sm_90a
		Function : loop_kernel
        /*0000*/                   MUFU.EX2 R1, R2 ;                      /* 0x0 */
        /*0010*/                   FFMA R1, R2, R3, R4 ;                  /* 0x0 */
        /*0020*/                   IMAD R1, R2, R3, R4 ;                  /* 0x0 */
        /*0030*/                   LDS.128 R4, [R1] ;                     /* 0x0 */
        /*0040*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24, gsb0 ; /* 0x0 */
        /*0050*/                   LDG.E.128 R4, desc[UR4][R2.64] ;       /* 0x0 */
        /*0060*/              @P0 BRA 0x0 ;                               /* 0x0 */
        /*0070*/                   EXIT ;                                 /* 0x0 */
)";

TEST_CASE("a loop's instructions are counted by their pipes", "[machine_code]") {
  const std::vector<Kernel> kernels = read_sass(kText);
  REQUIRE(kernels.size() == 1);
  const std::vector<Loop> loops = kernels[0].inner_loops("HGMMA");
  REQUIRE(loops.size() == 1);
  const Work work = work_of(kernels[0], loops[0]);
  CHECK(work.issued == 7);
  CHECK(work.unknown.empty());
  CHECK(work.tensor_fma == 64 * 128 * 16 / 4);
  CHECK(work.operand_bytes == (64 + 128) * 16 * 2 / 4);
  CHECK(work.special == 2);
  CHECK(work.fma == 0.25 + 0.5);
  CHECK(work.shared_bytes == 512);
  CHECK(work.global_bytes == 512);
  // Two warpgroups on an H100 take 128 cycles of tensor cores and 16 of special functions.
  const Cycles cycles = cycles_of(work, 8, gpus()[1]);
  CHECK(cycles.tensor == 128);
  CHECK(cycles.special == 16);
  CHECK(cycles.shared == 32);
  CHECK(cycles.issue == 14);
  CHECK(cycles.best_share() == 1);
  CHECK(cycles.worst_share() == 0.8);
  CHECK(cycles.limit() == "memory");
}

// The loop over tiles contains a loop over k. After that loop, one path has a loop with a box
// store, and the other path has no store.
constexpr const char* kTiles = R"(
	code for sm_90a
		Function : tiles_kernel
        /*0000*/                   NOP ;                                  /* 0x0 */
        /*0010*/                   NOP ;                                  /* 0x0 */
        /*0020*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24, gsb0 ; /* 0x0 */
        /*0030*/              @P0 BRA 0x20 ;                              /* 0x0 */
        /*0040*/              @P1 BRA 0x90 ;                              /* 0x0 */
        /*0050*/                   STSM.16.M88.4 [R2], R4 ;               /* 0x0 */
        /*0060*/                   MUFU.EX2 R1, R2 ;                      /* 0x0 */
        /*0070*/              @P0 BRA 0x50 ;                              /* 0x0 */
        /*0080*/                   UTMASTG.2D [UR16], [UR26] ;            /* 0x0 */
        /*0090*/              @P0 BRA 0x10 ;                              /* 0x0 */
        /*00a0*/                   EXIT ;                                 /* 0x0 */
)";

TEST_CASE("an epilogue is the way through a tile's code that stores most", "[machine_code]") {
  const std::vector<Kernel> kernels = read_sass(kTiles);
  REQUIRE(kernels.size() == 1);
  for (const EpilogueKind kind : {EpilogueKind::kPlain, EpilogueKind::kGelu}) {
    const Work work = epilogue_of(kernels[0], kind, 4);
    // 2 instructions before the loop, two iterations of 3, and 2 until the end.
    CHECK(work.issued == 2 + 2 * 3 + 2);
    CHECK(work.tensor_fma == 0);
    CHECK(work.special == 2 * 2);
    CHECK(work.shared_bytes == 2 * 512);
  }
  CHECK_THROWS_AS(epilogue_of(read_sass(kText)[0], EpilogueKind::kPlain, 4), InternalError);
}

// The loops over slabs, parts and rows are nested. The loop over rows jumps back from two places.
constexpr const char* kParts = R"(
	code for sm_90a
		Function : parts_kernel
        /*0000*/                   NOP ;                                  /* 0x0 */
        /*0010*/                   NOP ;                                  /* 0x0 */
        /*0020*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24, gsb0 ; /* 0x0 */
        /*0030*/              @P0 BRA 0x20 ;                              /* 0x0 */
        /*0040*/                   NOP ;                                  /* 0x0 */
        /*0050*/                   NOP ;                                  /* 0x0 */
        /*0060*/                   MUFU.EX2 R1, R2 ;                      /* 0x0 */
        /*0070*/              @P1 BRA 0x60 ;                              /* 0x0 */
        /*0080*/              @P2 BRA 0x60 ;                              /* 0x0 */
        /*0090*/              @P3 BRA 0x50 ;                              /* 0x0 */
        /*00a0*/              @P4 BRA 0x40 ;                              /* 0x0 */
        /*00b0*/              @P0 BRA 0x10 ;                              /* 0x0 */
        /*00c0*/                   EXIT ;                                 /* 0x0 */
)";

TEST_CASE("an epilogue goes through each part of a tile, and through its rows and slabs twice",
          "[machine_code]") {
  const Work work = epilogue_of(read_sass(kParts).at(0), EpilogueKind::kGelu, 4);
  CHECK(work.special == 2 * (2 * 4 * 2));
  CHECK(work.issued == 2 + 2 * (1 + 4 * (1 + 2 * 3 + 1) + 1));
}

TEST_CASE("an epilogue beside another tile's products costs what is longer than they",
          "[machine_code]") {
  TileCycles tile{.products = 100, .epilogue = 300};
  CHECK(share_at(tile, 64) == 0.25);
  CHECK(share_at(tile, 3 * 64) == 0.5);
  tile.overlaps = true;
  // Two tiles take 400 cycles, in 200 of which the tensor cores are busy.
  CHECK(share_at(tile, 64) == 0.5);
  CHECK(share_at(tile, 3 * 64) == 1);
}

TEST_CASE("an opcode that no table has is named", "[machine_code]") {
  CHECK(work_of(Instruction{.opcode = "NEWOP.X"}).unknown.count("NEWOP") == 1);
}

TEST_CASE("GPUs of the table have the peaks of their data sheets", "[machine_code]") {
  CHECK(std::abs(gpus()[0].flops() / 312e12 - 1) < 0.01);
  CHECK(std::abs(gpus()[1].flops() / 989e12 - 1) < 0.01);
  CHECK(resident_blocks({.registers = 128, .shared = 0, .max_threads = 128}, 68 << 10, 80) == 2);
  CHECK(resident_blocks({.registers = 168, .shared = 1024, .max_threads = 384}, 100, 90) == 1);
}

TEST_CASE("the page of bounds is that of this build's kernels", "[machine_code]") {
  std::ifstream file(SHALE_BOUNDS_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  const std::string version = SHALE_CUDA_VERSION;
  if (!test::contains(page.str(), cat("compiled with CUDA ", version, "."))) {
    WARN("skipped: the page is of another version of CUDA than " << version);
    return;
  }
  // If this fails, run: build/release/test/machine_code_bounds > docs/contributing/bounds.md
  CHECK(page.str() == bounds_page(SHALE_CUDA_OBJECTS, version));
}

}  // namespace
}  // namespace shale::machine_code
