#include "shale/bench/support/kernel_recorder.h"

#include <thread>
#include <vector>

#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale::bench {
namespace {

using test::DeviceArray;

// The GEMM y = x · w^T, with x [4, 6] and w [5, 6].
struct Product {
  explicit Product(kernels::CallObserver* observer) { exec.observer = observer; }

  Exec exec = test::devices().front();
  DeviceArray<float> x{exec, test::randn<float>(24, 1)}, w{exec, test::randn<float>(30, 2)},
      y{exec, 20};

  void run() const {
    kernels::gemm(exec, {.a = x.view({4, 6}), .b = w.view({6, 5}, {1, 6}), .c = y.view({4, 5})});
  }
};

}  // namespace

TEST_CASE("a recorder counts calls and work by phase and slot", "[bench]") {
  KernelRecorder recorder;
  const Product product(&recorder);
  recorder.set_phase("forward");
  product.run();
  product.run();
  recorder.set_phase("backward");
  kernels::fill(product.exec, {.y = product.y.view(), .value = 1});

  REQUIRE(recorder.totals().size() == 2);
  const CallTotal& gemm = recorder.totals().at({"forward", "gemm"});
  CHECK(gemm.calls == 2);
  CHECK(gemm.cost.flops == 2 * 2 * 4 * 5 * 6);
  const CallTotal& fill = recorder.totals().at({"backward", "fill"});
  CHECK(fill.calls == 1);
  CHECK(fill.cost.bytes() == 80);
  CHECK(product.y.download() == std::vector<float>(20, 1.f));  // the recorder also ran the kernel
}

// For example, cuBLASLt GEMMs call a kernel for GELU.
TEST_CASE("what a kernel calls itself is not counted again", "[bench]") {
  KernelRecorder recorder;
  const Product product(&recorder);
  const kernels::FillArgs args = {.y = product.y.view(), .value = 2};
  const auto fill_twice = [&](const Exec& exec) {
    kernels::fill(exec, args);
    kernels::fill(exec, args);
  };
  recorder.around(kernels::SlotCall(kernels::fill, product.exec, &args, fill_twice));
  REQUIRE(recorder.totals().size() == 1);
  CHECK(recorder.totals().begin()->second.calls == 1);
  CHECK(product.y.download() == std::vector<float>(20, 2.f));
}

TEST_CASE("a recorder counts the calls of several threads", "[bench]") {
  constexpr int kThreads = 4, kCalls = 200;
  KernelRecorder recorder;
  recorder.set_phase("backward");
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      float x[8] = {}, sum[8];
      const void* const inputs[] = {x, x};
      void* const outputs[] = {sum};
      const Exec exec = {.threads = 1, .observer = &recorder};
      for (int call = 0; call < kCalls; ++call) {
        kernels::tree_sum(exec, {.inputs = inputs, .outputs = outputs, .count = 8});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const CallTotal& total = recorder.totals().at({"backward", "tree_sum"});
  CHECK(total.calls == kThreads * kCalls);
  CHECK(total.cost.bytes() == kThreads * kCalls * 3 * 32.0);
}

TEST_CASE("a recorder keeps the products that it is asked to keep", "[bench]") {
  KernelRecorder recorder;
  const Product product(&recorder);
  product.run();
  CHECK(recorder.product_calls().empty());
  recorder.keep_products(true);
  product.run();
  REQUIRE(recorder.product_calls().size() == 1);
  CHECK(recorder.product_calls()[0].name == "NT 4x5x6");
  CHECK(recorder.product_calls()[0].c == product.y.data());
  CHECK(recorder.products().at("NT 4x5x6").calls == 2);
  recorder.reset();
  CHECK(recorder.products().empty());
}

TEST_CASE("a recorder keeps both products of SwiGLU", "[bench]") {
  KernelRecorder recorder;
  const Product product(&recorder);
  const DeviceArray<float> gate(product.exec, 20), up(product.exec, 20);
  recorder.keep_products(true);
  const View w = product.w.view({6, 5}, {1, 6});
  kernels::gemm(product.exec, {.a = product.x.view({4, 6}),
                               .b = w,
                               .c = product.y.view({4, 5}),
                               .epilogue = kernels::Epilogue::kSwiGlu,
                               .aux = gate.view({4, 5}),
                               .b_up = w,
                               .aux_up = up.view({4, 5})});
  REQUIRE(recorder.product_calls().size() == 2);
  CHECK(recorder.product_calls()[0].name == "NT 4x5x6 swiglu");
  CHECK(recorder.product_calls()[0].c == product.y.data());
  CHECK(recorder.product_calls()[1].c == up.data());
}

TEST_CASE("a recorder sees the calls of Execs that name it", "[bench]") {
  KernelRecorder one, other;
  const Product with_one(&one), with_other(&other), alone(nullptr);
  with_one.run();
  with_one.run();
  with_other.run();
  alone.run();
  CHECK(one.totals().at({"", "gemm"}).calls == 2);
  CHECK(other.totals().at({"", "gemm"}).calls == 1);
}

}  // namespace shale::bench
