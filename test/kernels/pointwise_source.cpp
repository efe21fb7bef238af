#include "shale/kernels/pointwise_source.h"

#include <fstream>
#include <iostream>
#include <sstream>

#include "shale/kernels/pointwise_graph.h"
#include "shale/test/kernels/simt/fused_kernel.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/kernels.h"

#ifdef SHALE_HAVE_NVRTC
#include "shale/kernels/cuda/nvrtc/program.h"
#endif

namespace shale {
namespace {

using kernels::PointwiseArgs;
using kernels::PointwiseGraph;
using kernels::PointwiseOp;
using test::DeviceArray;

// Returns a program with every op once, on inputs of every dtype, rounded to bf16, f16 and not at
// all.
kernels::PointwiseProgram golden_program() {
  PointwiseGraph graph;
  const int x = graph.input(DType::kF32), row = graph.input(DType::kBF16);
  const int column = graph.input(DType::kF16), mask = graph.input(DType::kU8);
  const DType dtypes[] = {DType::kBF16, DType::kF32, DType::kF16};
  int y = graph.apply(PointwiseOp::kConvert, DType::kF32, {x}), turn = 0;
  for (int number = int(PointwiseOp::kAdd); number < int(PointwiseOp::kStore); ++number) {
    const auto op = PointwiseOp(number);
    const DType dtype = dtypes[turn++ % 3];
    // abs() puts the values into the domain of roots and logarithms.
    const int a = graph.apply(PointwiseOp::kAbs, DType::kF32, {y});
    const int third = op == PointwiseOp::kClamp ? graph.constant(2.5f) : column;
    const int value = kernels::arity_of(op) == 1   ? graph.apply(op, dtype, {a})
                      : kernels::arity_of(op) == 2 ? graph.apply(op, dtype, {a, row})
                                                   : graph.apply(op, dtype, {mask, a, third});
    y = graph.apply(PointwiseOp::kAdd, DType::kF32, {value, column});
  }
  return graph.compile("golden", {y, graph.apply(PointwiseOp::kTanh, DType::kBF16, {y})});
}

struct Golden {
  static constexpr int64_t kRows = 5, kCols = 207;
  explicit Golden(const Exec& exec)
      : x(exec, test::randn<float>(kRows * kCols, 1)),
        row(exec, test::randn<bf16>(kCols, 2)),
        column(exec, test::randn<f16>(kRows, 3)),
        mask(exec, test::rand_int<uint8_t>(kRows * kCols, 4, 0, 1)),
        y(exec, kRows * kCols),
        z(exec, kRows * kCols) {}

  PointwiseArgs args(const kernels::PointwiseProgram& program) const {
    const Shape shape = {kRows, kCols};
    return {.program = &program,
            .inputs = {x.view(shape), row.view(shape, {0, 1}), column.view(shape, {1, 0}),
                       mask.view(shape)},
            .outputs = {y.view(shape), z.view(shape)}};
  }

  DeviceArray<float> x;
  DeviceArray<bf16> row;
  DeviceArray<f16> column;
  DeviceArray<uint8_t> mask;
  DeviceArray<float> y;
  DeviceArray<bf16> z;
};

}  // namespace

TEST_CASE("the source of a fused kernel is the one on file", "[kernels][pointwise]") {
  const kernels::PointwiseProgram program = golden_program();
  const Golden golden(test::devices()[0]);
  std::ifstream file(test::fixture_path("fused_kernel.txt"));
  std::stringstream text;
  text << file.rdbuf();
  const std::string source = kernels::pointwise_source(golden.args(program), "fused_kernel");
  INFO(source);
  CHECK(source == text.str());
}

TEST_CASE("the fused kernel on file has the bits of the interpreted program",
          "[kernels][pointwise]") {
  const kernels::PointwiseProgram program = golden_program();
  for (const Exec& exec : test::devices_with({&kernels::pointwise})) {
    if (exec.device.type == DeviceType::kCpu) continue;
    CAPTURE(to_string(exec.device));
    const Golden want(exec), got(exec);
    kernels::pointwise(exec, want.args(program));
    const PointwiseArgs args = got.args(program);
#ifdef SHALE_HAVE_CUDA
    if (exec.device.type == DeviceType::kCuda) kernels::cuda::run_fused_kernel(exec, args);
#endif
    if (exec.device.type == DeviceType::kEmu) kernels::emu::run_fused_kernel(exec, args);
    CHECK(got.y.margins_intact());
    CHECK(test::same_bits(got.y.download(), want.y.download()));
    CHECK(test::same_bits(got.z.download(), want.z.download()));
  }
}

TEST_CASE("a chain that is compiled when it runs has the bits of the interpreted program",
          "[kernels][pointwise]") {
  const kernels::PointwiseProgram program = golden_program();
  for (const Exec& exec : test::devices_with({&kernels::pointwise})) {
    CAPTURE(to_string(exec.device));
    const Golden want(exec), got(exec);
    kernels::pointwise(exec, want.args(program));
    PointwiseArgs args = got.args(program);
    args.compiled = true;
    try {
      // The second launch reuses the kernel compiled by the first one.
      for (int launch = 0; launch < 2; ++launch) kernels::pointwise(exec, args);
    } catch (const UnavailableError& error) {
      std::cout << "skipped: a fused kernel is not compiled: " << error.what() << "\n";
      continue;
    }
    CHECK(got.y.margins_intact());
    CHECK(test::same_bits(got.y.download(), want.y.download()));
    CHECK(test::same_bits(got.z.download(), want.z.download()));
  }
}

#ifdef SHALE_HAVE_NVRTC
TEST_CASE("NVRTC compiles a fused kernel, for every GPU that there are kernels for",
          "[kernels][pointwise]") {
  const kernels::PointwiseProgram program = golden_program();
  const Golden golden(test::devices()[0]);
  const std::string source = kernels::cuda::nvrtc::whole_source(
      kernels::pointwise_source(golden.args(program), "fused_kernel"));
  for (const int arch : {80, 90}) {
    try {
      const std::string cubin = kernels::cuda::nvrtc::compile_to_cubin(source, arch);
      CHECK(test::contains(cubin, "fused_kernel"));
      CHECK(test::contains(cubin.substr(0, 4), "ELF"));
    } catch (const UnavailableError& error) {
      std::cout << "skipped: a fused kernel is not compiled: " << error.what() << "\n";
    }
  }
}
#endif

}  // namespace shale
