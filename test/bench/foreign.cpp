#include "shale/bench/support/foreign.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "shale/bench/support/kernel_cases.h"
#include "shale/bench/support/measure.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale::bench {
namespace {

// One user function per kernel, in its plainest form.
constexpr const char* kFunctions = R"(
#include <cmath>
#include <cstdint>
#include <vector>
#define FUNCTION(name) extern "C" void name(const void* const* in, void* const* out, \
                                            const int64_t* shape, void*)
static const float* f(const void* p) { return static_cast<const float*>(p); }
static float* f(void* p) { return static_cast<float*>(p); }

FUNCTION(multiply) {
  for (int64_t i = 0; i < shape[0] * shape[1]; ++i) f(out[0])[i] = f(in[0])[i] * f(in[1])[i];
}
FUNCTION(add_row) {
  for (int64_t r = 0; r < shape[0]; ++r)
    for (int64_t c = 0; c < shape[1]; ++c)
      f(out[0])[r * shape[1] + c] = f(in[0])[r * shape[1] + c] + f(in[1])[c];
}
FUNCTION(gate) {  // tanh(x * scale + bias) * sigmoid(gate)
  for (int64_t r = 0; r < shape[0]; ++r)
    for (int64_t c = 0; c < shape[1]; ++c) {
      const int64_t i = r * shape[1] + c;
      f(out[0])[i] = std::tanh(f(in[0])[i] * f(in[1])[c] + f(in[2])[c]) /
                     (1 + std::exp(-f(in[3])[i]));
    }
}
FUNCTION(swiglu) {
  for (int64_t i = 0; i < shape[0] * shape[1]; ++i) {
    const float x = f(in[0])[i];
    f(out[0])[i] = x / (1 + std::exp(-x)) * f(in[1])[i];
  }
}
FUNCTION(softmax) {
  for (int64_t r = 0; r < shape[0]; ++r) {
    const float* x = f(in[0]) + r * shape[1];
    float* y = f(out[0]) + r * shape[1];
    double sum = 0;
    for (int64_t c = 0; c < shape[1]; ++c) sum += y[c] = std::exp(x[c]);
    for (int64_t c = 0; c < shape[1]; ++c) y[c] /= float(sum);
  }
}
FUNCTION(softmax_gradient) {
  for (int64_t r = 0; r < shape[0]; ++r) {
    const float *y = f(in[0]) + r * shape[1], *dy = f(in[1]) + r * shape[1];
    double dot = 0;
    for (int64_t c = 0; c < shape[1]; ++c) dot += y[c] * dy[c];
    for (int64_t c = 0; c < shape[1]; ++c)
      f(out[0])[r * shape[1] + c] = y[c] * (dy[c] - float(dot));
  }
}
FUNCTION(norm_of_sum) {  // x, residual, gain, bias -> y, x + residual
  const int64_t n = shape[1];
  for (int64_t r = 0; r < shape[0]; ++r) {
    float *y = f(out[0]) + r * n, *s = f(out[1]) + r * n;
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < n; ++c) mean += s[c] = f(in[0])[r * n + c] + f(in[1])[r * n + c];
    mean /= double(n);
    for (int64_t c = 0; c < n; ++c) variance += (s[c] - mean) * (s[c] - mean) / double(n);
    for (int64_t c = 0; c < n; ++c)
      y[c] = float((s[c] - mean) / std::sqrt(variance + 1e-5)) * f(in[2])[c] + f(in[3])[c];
  }
}
FUNCTION(rms_norm_of_sum) {  // x, residual, gain -> y, x + residual
  const int64_t n = shape[1];
  for (int64_t r = 0; r < shape[0]; ++r) {
    float *y = f(out[0]) + r * n, *s = f(out[1]) + r * n;
    double squares = 0;
    for (int64_t c = 0; c < n; ++c) {
      s[c] = f(in[0])[r * n + c] + f(in[1])[r * n + c];
      squares += s[c] * s[c] / double(n);
    }
    for (int64_t c = 0; c < n; ++c) y[c] = float(s[c] / std::sqrt(squares + 1e-5)) * f(in[2])[c];
  }
}
FUNCTION(product) {
  const int64_t m = shape[0], n = shape[1], k = shape[2];
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += f(in[0])[shape[3] ? l * m + i : i * k + l] *
               f(in[1])[shape[4] ? j * k + l : l * n + j];
      f(out[0])[i * n + j] = float(sum);
    }
}
FUNCTION(attention) {
  const int64_t B = shape[0], T = shape[1], H = shape[2], K = shape[3], D = shape[4];
  for (int64_t b = 0; b < B; ++b)
    for (int64_t t = 0; t < T; ++t)
      for (int64_t h = 0; h < H; ++h) {
        const auto head = [&](int which, int64_t token, int64_t number) {
          return f(in[which]) + (b * T + token) * shape[5] + number * D;
        };
        const float* q = head(0, t, h);
        const int64_t keys = shape[6] ? t + 1 : T, kv = h / (H / K);
        std::vector<double> y(D);
        double sum = 0;
        for (int64_t s = 0; s < keys; ++s) {
          double score = 0;
          for (int64_t d = 0; d < D; ++d) score += q[d] * head(1, s, kv)[d];
          const double weight = std::exp(score / std::sqrt(double(D)));
          sum += weight;
          for (int64_t d = 0; d < D; ++d) y[d] += weight * head(2, s, kv)[d];
        }
        float* o = f(out[0]) + ((b * T + t) * H + h) * D;
        for (int64_t d = 0; d < D; ++d) o[d] = float(y[d] / sum);
      }
}
FUNCTION(nothing) {}
FUNCTION(all_but_one) {
  for (int64_t i = 0; i < shape[0] * shape[1]; ++i)
    if (i != 77) f(out[0])[i] = f(in[0])[i] * f(in[1])[i];
}
FUNCTION(one_wrong) {
  for (int64_t i = 0; i < shape[0] * shape[1]; ++i)
    f(out[0])[i] = f(in[0])[i] * f(in[1])[i] + (i == 78 ? 0.25f : 0.0f);
}
)";

// The source file of the user functions, and the benchmark cases of the CPU kernels that they are
// compared with.
struct Foreign {
  test::TempDir folder;
  std::string file = folder.write("it's mine.cpp", kFunctions);
  std::unique_ptr<BenchDevice> device = make_bench_device({}, 2);
  KernelBench bench{*device, /*rotation_bytes=*/1};
  std::vector<KernelCase> cases = kernel_cases(DeviceType::kCpu, {DType::kF32});

  PreparedCase prepare(const std::string& name) const {
    const auto found = std::ranges::find(cases, name, &KernelCase::name);
    if (found == cases.end()) FAIL("there is no case " << name);
    return found->prepare(bench);
  }
};

std::string refusal(const std::string& place, DeviceType device) {
  try {
    const ForeignKernel kernel(place, device);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("functions of others are compared with kernels, with equal results", "[bench]") {
  Foreign foreign;
  struct Case {
    const char *function, *name;
  };
  for (const auto& [function, name] :
       {Case{"multiply", "mul/nano/fp32"}, Case{"add_row", "pointwise/add_row/nano/fp32"},
        Case{"gate", "pointwise/fused_5/nano/fp32"}, Case{"swiglu", "swiglu_fwd/nano/fp32"},
        Case{"softmax", "softmax_fwd/nano/fp32"}, Case{"softmax_gradient", "softmax_bwd/nano/fp32"},
        Case{"norm_of_sum", "layer_norm_fwd/residual/nano/fp32"},
        Case{"rms_norm_of_sum", "rms_norm_fwd/residual/nano/fp32"},
        Case{"product", "gemm/dx_attn_proj/nano/fp32"},
        Case{"product", "gemm/forward_logits/nano/fp32"},
        Case{"attention", "attention_fwd/causal/nano/fp32"}}) {
    CAPTURE(name);
    const ForeignKernel kernel(foreign.file + ":" + function, DeviceType::kCpu);
    PreparedCase prepared = foreign.prepare(name);
    CHECK(kernel.compare(foreign.bench, prepared) < 1e-4);
    prepared.foreign = kernel.calls(foreign.bench, prepared);
    const Measured measured = measure(*foreign.device, prepared, 0);
    CHECK(measured.foreign.seconds.size() == measured.ours.seconds.size());
    CHECK(measured.foreign.median() > 0);
  }
}

TEST_CASE("a wrong result of a foreign function is an error that says where", "[bench]") {
  Foreign foreign;
  const PreparedCase prepared = foreign.prepare("mul/nano/fp32");
  const auto error = [&](const std::string& function) {
    const ForeignKernel kernel(foreign.file + ":" + function, DeviceType::kCpu);
    return test::message_of<DataError>([&] { kernel.compare(foreign.bench, prepared); });
  };
  CHECK(test::contains(error("nothing"), "it's mine.cpp:nothing: wrong result: out[0][0] is "));
  CHECK(test::contains(error("all_but_one"), "wrong result: out[0][77] is "));
  const std::string wrong = error("one_wrong");
  CHECK(test::contains(wrong, "wrong result: out[0][78] is "));
  CHECK(test::contains(wrong, "at most 0.001953125 times the largest value, "));

  // This kernel updates its operands in place, so a second call would start from other values.
  const PreparedCase in_place = foreign.prepare("adamw/flat/fp32");
  const ForeignKernel kernel(foreign.file + ":multiply", DeviceType::kCpu);
  CHECK(test::contains(
      test::message_of<ConfigError>([&] { kernel.compare(foreign.bench, in_place); }),
      "this case cannot be compared with a function"));
}

TEST_CASE("a foreign function that cannot be used is one line", "[bench]") {
  const test::TempDir folder;
  const std::string good = folder.write("good.cpp", "extern \"C\" void launch() {}\n");
  const std::string bad = folder.write("bad.cpp", "int x = 1;\nvoid launch() { return 1; }\n");
  const std::string cuda = folder.write("good.cu", "extern \"C\" void launch() {}\n");
  using enum DeviceType;
  CHECK(refusal(good + ":launch", kCpu).empty());
  CHECK(refusal(good, kCpu) == "--foreign: " + good + ", expected FILE:FUNCTION");
  CHECK(refusal("none.cpp:launch", kCpu) == "--foreign: there is no file none.cpp");
  CHECK(test::contains(refusal(good + ":other", kCpu),
                       "good.cpp has no function other, expected extern \"C\" void other(const"));
  CHECK(test::contains(refusal(bad + ":launch", kCpu), "bad.cpp:2:"));
  CHECK(test::contains(refusal(bad + ":launch", kCpu), "error: return-statement with a value"));
  CHECK(!test::contains(refusal(bad + ":launch", kCpu), "\n"));
  CHECK(test::contains(refusal(cuda + ":launch", kCpu), "expected cuda for .cu files"));
  CHECK(test::contains(refusal(good + ":launch", kCuda), "expected a .cu file"));
  CHECK(test::contains(refusal(cuda + ":launch", kEmu), "needs --device cuda, or cpu"));
  const std::string cxx = std::getenv("CXX") != nullptr ? std::getenv("CXX") : "";
  setenv("CXX", "/no/such/compiler", 1);
  CHECK(test::contains(refusal(good + ":launch", kCpu), "/no/such/compiler was not found"));
  cxx.empty() ? unsetenv("CXX") : setenv("CXX", cxx.c_str(), 1);
}

TEST_CASE("nvcc compiles a foreign kernel up to its first launch", "[bench]") {
  if (std::system("nvcc --version >/dev/null 2>&1") != 0) {
    WARN("skipped: nvcc is not in PATH");
    return;
  }
  const std::string good = test::fixture_path("../../examples/05_kernel/gate.cu");
  CHECK(refusal(good + ":launch", DeviceType::kCuda).empty());
  CHECK(test::contains(refusal(good + ":gate_kernel", DeviceType::kCuda),
                       "has no function gate_kernel"));
  const test::TempDir folder;
  const std::string bad = folder.write("bad.cu", "__global__ int kernel() { return 1; }\n");
  const std::string error = refusal(bad + ":kernel", DeviceType::kCuda);
  CHECK(test::contains(error, "--foreign: nvcc cannot compile "));
  CHECK(test::contains(error, "error"));
  CHECK(!test::contains(error, "\n"));
}

}  // namespace shale::bench
