// Tests fp8 GEMMs and SwiGLU by cuBLASLt, in host memory, with a stand-in for the library.
#include "shale/kernels/fp8.h"

#include <dlfcn.h>

#include <cstdlib>

#include "shale/base/error.h"
#include "shale/base/reserved_sms.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/cuda/gemm/cublaslt/gemm.h"
#include "shale/kernels/cuda/gemm/cublaslt/matmul.h"
#include "shale/kernels/cuda/gemm/cublaslt/objects_internal.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/gemm.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/linear.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"
#include "stand_in.h"

namespace shale::test {

comm::World& world() {
  static comm::World the_only_rank(0, nullptr);
  return the_only_rank;
}

namespace {

namespace lt = kernels::cuda::cublaslt;
using kernels::Fp8Blocks;
using kernels::Fp8Format;
using kernels::Fp8GemmArgs;
using kernels::Fp8Operand;
using lt::set;

LtState& state() {
  void* const handle = dlopen(std::getenv("SHALE_CUBLASLT"), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(handle != nullptr);
  auto* const get = reinterpret_cast<LtState* (*)()>(dlsym(handle, "shale_test_cublaslt_state"));
  REQUIRE(get != nullptr);  // without this function, SHALE_CUBLASLT names a real cuBLASLt
  return *get();
}

const Exec& cpu() {
  return devices().front();
}
// A GPU whose memory is the host's.
Exec gpu(int arch = 89) {
  Exec exec = cpu();
  exec.device = {.type = DeviceType::kCuda, .arch = arch};
  state().arch = arch;
  return exec;
}

// A GEMM operand with small integers, which fp8 represents exactly.
class Operand {
 public:
  Operand(int64_t lines, int64_t length, uint64_t seed, Fp8Format format = Fp8Format::kE4M3,
          Fp8Blocks blocks = Fp8Blocks::kTensor)
      : codes_(cpu(), lines * kernels::fp8_codes_stride(length)),
        scales_(cpu(), kernels::fp8_scale_rows(length) * kernels::fp8_scales_stride(lines)) {
    operand_ = {.codes = codes_.view({lines, length}, {kernels::fp8_codes_stride(length), 1}),
                .scales = scales_.view({kernels::fp8_scale_rows(length), lines},
                                       {kernels::fp8_scales_stride(lines), 1}),
                .blocks = blocks,
                .format = format};
    const DeviceArray<bf16> x(cpu(), rand_int<bf16>(lines * length, seed, -3, 3));
    kernels::quantize_fp8(cpu(), {.x = x.view({lines, length}), .rows = operand_});
  }
  const Fp8Operand& operator()() const { return operand_; }

 private:
  DeviceArray<uint8_t> codes_;
  DeviceArray<float> scales_;
  Fp8Operand operand_;
};

std::string refusal(const Exec& exec, const Fp8GemmArgs& args) {
  return message_of<Error>([&] { lt::fp8_gemm(exec, args); });
}

struct Size {
  int64_t m, n, k;
};

// Sums of integers are exact, so both sides have the same bits.
template <typename TOut>
void check_product(const Exec& exec, const Size& size, Fp8Format a_format, bool added,
                   bool accumulate) {
  CAPTURE(exec.device.arch, size.m, size.n, size.k, int(a_format), added, accumulate);
  const Operand a(size.m, size.k, 1, a_format), b(size.n, size.k, 2);
  const DeviceArray<bf16> bias(cpu(), rand_int<bf16>(size.n, 3, -9, 9));
  const std::vector<TOut> before = rand_int<TOut>(size.m * size.n, 4, -9, 9);
  const DeviceArray<TOut> residual(cpu(), before), want(cpu(), before), found(cpu(), before);
  const Shape shape = {size.m, size.n};
  const auto args = [&](const DeviceArray<TOut>& c) {
    return Fp8GemmArgs{.a = a(),
                       .b = b(),
                       .c = c.view(shape),
                       .accumulate = accumulate,
                       .bias = added ? bias.view() : View(),
                       .residual = added ? residual.view(shape) : View()};
  };
  kernels::cpu::run(cpu(), args(want));
  lt::fp8_gemm(exec, args(found));
  CHECK(same_bits(want.download(), found.download()));
  CHECK(found.margins_intact());
}

}  // namespace

TEST_CASE("fp8 GEMMs by cuBLASLt have the CPU's results on 8.9, 10.0 and 12.0", "[cublaslt]") {
  const int arch = GENERATE(89, 100, 120);
  const Exec exec = gpu(arch);
  const int before = state().gemms;
  for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
    // The number of a's rows and the length of lines need not be multiples of 16.
    for (const Size& size : {Size{1, 16, 16}, {150, 160, 144}, {7, 48, 150}, {16, 32, 2}}) {
      check_product<bf16>(exec, size, format, /*added=*/false, /*accumulate=*/false);
      check_product<bf16>(exec, size, format, /*added=*/true, /*accumulate=*/false);
      check_product<float>(exec, size, format, /*added=*/false, /*accumulate=*/true);
      check_product<float>(exec, size, format, /*added=*/true, /*accumulate=*/false);
    }
  }
  CHECK(state().gemms == before + 2 * 4 * 4);
}

TEST_CASE("cuBLASLt is asked for one scale per tensor, and sums in f32", "[cublaslt]") {
  const Operand a(24, 50, 1, Fp8Format::kE5M2), b(32, 50, 2);
  const DeviceArray<bf16> c(cpu(), 24 * 32);
  const Fp8GemmArgs args = {.a = a(), .b = b(), .c = c.view({24, 32})};
  lt::fp8_gemm(gpu(), args);
  const LtGemm& last = state().last;
  // The library is asked for the transpose of c, so its first operand is b.
  CHECK(last.a_operation == CUBLAS_OP_T);
  CHECK(last.b_operation == CUBLAS_OP_N);
  CHECK(last.a == CUDA_R_8F_E4M3);
  CHECK(last.b == CUDA_R_8F_E5M2);
  CHECK(last.d == CUDA_R_16BF);
  CHECK(last.m == 32);
  CHECK(last.n == 24);
  CHECK(last.k == 64);
  CHECK(last.a_scale == b().scales.data);
  CHECK(last.b_scale == a().scales.data);
  CHECK(last.a_scale_mode == 0);
  CHECK_FALSE(last.fast);
  const int heuristics = state().heuristics;
  const Operand other(24, 50, 3, Fp8Format::kE5M2);
  lt::fp8_gemm(gpu(), {.a = other(), .b = b(), .c = c.view({24, 32})});
  CHECK(state().heuristics == heuristics);  // the algorithm was cached
  CHECK(last.b_scale == other().scales.data);
}

TEST_CASE("cuBLASLt leaves the SMs free that collectives in flight use", "[cublaslt]") {
  const Operand a(16, 32, 1), b(16, 32, 2);
  const DeviceArray<bf16> c(cpu(), 256), x(cpu(), rand_int<bf16>(256, 1, -3, 3));
  ReservedSms held;
  held.limit(108);
  const ReservedSms::Hold plan(held, 16, nullptr, /*planned=*/true);
  Exec exec = gpu();
  exec.held = &held;
  const auto sms_of_both = [&] {
    lt::fp8_gemm(exec, {.a = a(), .b = b(), .c = c.view({16, 16})});
    const int of_fp8 = state().last.sms;
    const kernels::GemmArgs plain = {
        .a = x.view({16, 16}), .b = x.view({16, 16}), .c = c.view({16, 16})};
    REQUIRE(lt::matmul(exec, kernels::gemm_problem(plain)));
    return std::pair{of_fp8, state().last.sms};
  };
  CHECK(sms_of_both() == std::pair{0, 0});  // no collective is in flight, so no SMs are reserved
  const ReservedSms::Hold now(held, 16);
  CHECK(sms_of_both() == std::pair{92, 92});
}

namespace {

// Replaces the GPU's kernel: the test's GPU has the host's memory.
void swiglu_in_host_memory(const Exec&, const kernels::SwiGluFwdArgs& args) {
  kernels::swiglu_fwd(cpu(), args);
}

}  // namespace

TEST_CASE("SwiGLU is two GEMMs of cuBLASLt on 10.0, with the bits of the CPU's kernel",
          "[cublaslt]") {
  devices();  // the first call registers all kernels, before one is replaced
  kernels::swiglu_fwd.set(DeviceType::kCuda, swiglu_in_host_memory);
  constexpr int64_t kM = 24, kN = 16, kK = 48;
  const DeviceArray<bf16> a(cpu(), rand_int<bf16>(kM * kK, 1, -3, 3));
  const DeviceArray<bf16> gate(cpu(), rand_int<bf16>(kN * kK, 2, -3, 3));
  const DeviceArray<bf16> up(cpu(), rand_int<bf16>(kN * kK, 3, -3, 3));
  struct Results {
    DeviceArray<bf16> c{cpu(), kM*kN}, aux{cpu(), kM*kN}, aux_up{cpu(), kM*kN};
  };
  const Results want, found;
  const auto args = [&](const Results& to) {
    return kernels::GemmArgs{.a = a.view({kM, kK}),
                             .b = gate.view({kK, kN}, {1, kK}),
                             .c = to.c.view({kM, kN}),
                             .epilogue = kernels::Epilogue::kSwiGlu,
                             .aux = to.aux.view({kM, kN}),
                             .b_up = up.view({kK, kN}, {1, kK}),
                             .aux_up = to.aux_up.view({kM, kN})};
  };
  kernels::gemm(cpu(), args(want));
  const int before = state().gemms;
  lt::gemm(gpu(100), args(found));
  CHECK(state().gemms == before + 2);
  CHECK(same_bits(want.aux.download(), found.aux.download()));
  CHECK(same_bits(want.aux_up.download(), found.aux_up.download()));
  CHECK(same_bits(want.c.download(), found.c.download()));
}

TEST_CASE("fp8 GEMMs that cuBLASLt cannot compute are refused before they run", "[cublaslt]") {
  const Operand a(16, 32, 1), b(16, 32, 2), odd(24, 32, 3);
  const Operand lines(16, 32, 4, Fp8Format::kE4M3, Fp8Blocks::kLines);
  const DeviceArray<bf16> c(cpu(), 24 * 24 + 1);
  const View out = c.view({16, 16});
  const int before = state().gemms;
  CHECK(contains(refusal(gpu(), {.a = lines(), .b = lines(), .c = out}),
                 "scales of blocks need compute capability 9.0 (H100), found 8.9"));
  CHECK(contains(refusal(gpu(80), {.a = a(), .b = b(), .c = out}),
                 "needs compute capability 8.9 or later, found 8.0"));
  CHECK(contains(refusal(gpu(120), {.a = a(), .b = odd(), .c = c.view({16, 24})}),
                 "b is uint8[24,32], expected a multiple of 16 rows for cuBLASLt on compute "
                 "capability 12.0"));
  CHECK(contains(refusal(gpu(), {.a = a(), .b = b(), .c = c.view({16, 16}, {16, 1}, 1)}),
                 "that begin at multiples of 16 bytes"));
  CHECK(contains(refusal(gpu(), {.a = a(), .b = b(), .c = c.view({16, 16}, {20, 1})}),
                 "that begin at multiples of 16 bytes"));
  CHECK(contains(
      refusal(gpu(), {.a = a(), .b = b(), .c = out, .residual = c.view({16, 16}, {16, 1}, 1)}),
      "residual is"));
  state().has_algorithms = false;
  // The result is f32, as in no earlier GEMM, so no algorithm is cached.
  const DeviceArray<float> wide(cpu(), 256);
  CHECK(contains(refusal(gpu(), {.a = a(), .b = b(), .c = wide.view({16, 16})}),
                 "cuBLASLt 13.1.0 has no kernel for uint8[16,32] times uint8[16,32]"));
  CHECK_FALSE(lt::has_algorithm(gpu(), {.a = a(), .b = b(), .c = wide.view({16, 16})}));
  state().has_algorithms = true;
  CHECK(state().gemms == before);
  CHECK_NOTHROW(kernels::check_fp8_gemm(cpu(), Fp8Blocks::kLines));
}

TEST_CASE("cuBLASLt's scales of blocks need Hopper, version 12.9 and dense rows", "[cublaslt]") {
  const auto has = [&](const Exec& exec, int64_t lines, int64_t k) {
    const Operand a(lines, k, 1, Fp8Format::kE4M3, Fp8Blocks::kLines);
    const Operand b(lines, k, 2, Fp8Format::kE4M3, Fp8Blocks::kSquares);
    const DeviceArray<bf16> c(cpu(), lines * lines);
    return lt::has_algorithm(exec, {.a = a(), .b = b(), .c = c.view({lines, lines})});
  };
  CHECK(has(gpu(90), 128, 128));
  CHECK_FALSE(has(gpu(90), 144, 128));
  CHECK_FALSE(has(gpu(120), 128, 256));
  state().version = 120800;
  CHECK_FALSE(has(gpu(90), 128, 384));
  state().version = 130100;
}

namespace {

bool by_library = false;

// Replaces the CPU's kernel. If by_library is true, cuBLASLt computes as it would on a GPU.
void on_cpu_or_library(const Exec& exec, const Fp8GemmArgs& args) {
  if (!by_library) return kernels::cpu::run(exec, args);
  Exec on = exec;
  on.device = gpu().device;
  lt::fp8_gemm(on, args);
}

struct Results {
  std::vector<double> y;
  std::vector<float> dx, dw;
  bool operator==(const Results&) const = default;
};

// Returns y, and the gradients of two micro-batches of `rows` rows each.
Results linear_layer(int64_t rows) {
  constexpr int64_t kIn = 144, kOut = 160;
  Context context({.device = {}});
  const auto tensor = [&](const Shape& shape, uint64_t seed) {
    return from_host<bf16>(context, rand_int<bf16>(shape.numel(), seed, -3, 3), shape);
  };
  const Tensor x = tensor({rows, kIn}, 1).set_requires_grad(true);
  const Tensor weight = tensor({kOut, kIn}, 2).set_requires_grad(true);
  const Tensor bias = tensor({kOut}, 3), residual = tensor({rows, kOut}, 4);
  Tensor y;
  for (int i = 0; i < 2; ++i) {
    y = linear(x, weight, bias, residual, Operands::kFp8Tensor);
    backward(y, tensor({rows, kOut}, 5));
  }
  return {to_f64(to_host<bf16>(y)), to_host<float>(x.grad()), to_host<float>(weight.grad())};
}

}  // namespace

TEST_CASE("a linear layer and its gradients are cuBLASLt's, for any number of tokens",
          "[cublaslt]") {
  devices();  // the first call registers all kernels, before one is replaced
  kernels::fp8_gemm.set(DeviceType::kCpu, on_cpu_or_library);
  for (const int64_t rows : {1, 16, 150}) {
    CAPTURE(rows);
    by_library = false;
    const Results want = linear_layer(rows);
    by_library = true;
    const int before = state().gemms;
    CHECK(linear_layer(rows) == want);
    CHECK(state().gemms == before + 2 * 3);
    by_library = false;
  }
}

// Sequences have 10 tokens, so the GEMMs for weight gradients add 10 products. Gradients are in
// flat buffers, as in a real run.
TEST_CASE("a GPT-2 trains with cuBLASLt's fp8 GEMMs as with those of the CPU", "[cublaslt]") {
  devices();
  kernels::fp8_gemm.set(DeviceType::kCpu, on_cpu_or_library);
  const auto group = world().group();
  for (const DType gradients : {DType::kF32, DType::kBF16}) {
    TrainOptions options{.steps = 3, .keep_gradients = false, .fp8 = Operands::kFp8Tensor};
    options.parallel = {.compute = DType::kBF16, .reduce = gradients, .stage = 2};
    by_library = false;
    const Trained want = train(*group, options);
    by_library = true;
    const int before = state().gemms;
    const Trained found = train(*group, options);
    by_library = false;
    REQUIRE(found.losses.size() == want.losses.size());
    for (size_t i = 0; i < want.losses.size(); ++i) {
      CHECK(found.losses[i] == Approx(want.losses[i]).epsilon(2e-3));
    }
    // Three steps of 12 sequences. For each sequence, four linear layers in each of three blocks
    // run three GEMMs: forward and two gradients.
    CHECK(state().gemms == before + 3 * 12 * 3 * 4 * 3);
  }
}

TEST_CASE("the stand-in for cuBLASLt refuses what the manual forbids", "[cublaslt]") {
  const lt::Library& lib = lt::required_library();
  gpu();
  std::vector<lt::Layout> layouts;
  const auto layout = [&](cudaDataType_t type, int64_t rows, int64_t cols) {
    return layouts.emplace_back(lt::make_layout(type, rows, cols, rows)).get();
  };
  struct Problem {
    cublasLtMatrixLayout_t a, b, d;
  };
  const Problem sound = {layout(CUDA_R_8F_E4M3, 32, 16), layout(CUDA_R_8F_E4M3, 32, 8),
                         layout(CUDA_R_16BF, 16, 8)};
  lt::Desc desc = lt::make_desc();
  lt::Preference preference = lt::make_preference();
  const auto answer = [&](const Problem& p) {
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    return lib.heuristic(nullptr, desc.get(), p.a, p.b, p.d, p.d, preference.get(), 1, &result,
                         &found);
  };
  const auto refused = [&](const Problem& p, const char* why) {
    CHECK(answer(p) == CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK(contains(state().said, why));
  };
  const int64_t wide = 1;
  CHECK(lib.desc_set(desc.get(), CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof wide) ==
        CUBLAS_STATUS_INVALID_VALUE);
  CHECK(contains(state().said, "another size"));
  CHECK(answer(sound) == CUBLAS_STATUS_INVALID_VALUE);  // a is not transposed
  refused({layout(CUDA_R_8F_E4M3, 16, 32), sound.b, sound.d}, "the first operand is transposed");
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  CHECK(answer(sound) == CUBLAS_STATUS_SUCCESS);
  refused({layout(CUDA_R_8F_E5M2, 32, 16), layout(CUDA_R_8F_E5M2, 32, 8), sound.d},
          "both operands are E5M2");
  refused({layout(CUDA_R_8F_E4M3, 24, 16), layout(CUDA_R_8F_E4M3, 24, 8), sound.d},
          "k is a multiple of 16");
  refused({layout(CUDA_R_8F_E4M3, 32, 12), sound.b, layout(CUDA_R_16BF, 12, 8)},
          "m is a multiple of 16");
  refused({layout(CUDA_R_16BF, 32, 16), sound.b, sound.d}, "both operands are fp8");
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
  refused(sound, "the bias is bf16");
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{8});
  refused(sound, "matrices are aligned");
  preference = lt::make_preference();
  gpu(80);
  refused(sound, "the GPU has no fp8");
  gpu();
  desc = lt::make_desc(CUBLAS_COMPUTE_32F_FAST_TF32);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  refused(sound, "sums and scales are f32");
}

// Runs with SHALE_CUBLASLT=off.
TEST_CASE("fp8 without cuBLASLt says why, also before there is work", "[cublaslt_off]") {
  Exec exec = cpu();
  exec.device = {.type = DeviceType::kCuda, .arch = 89};
  const Operand none(0, 16, 1);
  const DeviceArray<bf16> c(cpu(), 1);
  CHECK(contains(refusal(exec, {.a = none(), .b = none(), .c = c.view({0, 0})}),
                 "fp8_gemm: cuBLASLt cannot be loaded: SHALE_CUBLASLT is off"));
}

}  // namespace shale::test
