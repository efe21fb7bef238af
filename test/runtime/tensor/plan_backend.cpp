#include "shale/runtime/tensor/plan_backend.h"

#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "shale/kernels/dry_run.h"
#include "shale/kernels/gemm.h"
#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/tensor.h"
#include "shale/test/support/catch.h"

namespace shale {
namespace {

// Runs a GEMM whose epilogue needs scratch memory on every CPU. A library's GEMM needs it on some
// CPUs only.
MemoryStats stats_after_product(Context& context, int64_t n) {
  const auto matrix = [&] { return zeros(context, {n, n}, DType::kBF16); };
  const Tensor a = matrix(), b = matrix(), c = matrix(), aux = matrix();
  kernels::gemm(context.exec(), {.a = a,
                                 .b = b,
                                 .c = c,
                                 .epilogue = kernels::Epilogue::kGeluTanh,
                                 .aux = aux});
  return context.allocator().stats();
}

}  // namespace

TEST_CASE("a plan's memory is addresses, and takes pages where it is written") {
  Context context({}, std::make_unique<PlanBackend>());
  const auto& backend = static_cast<const PlanBackend&>(context.backend());
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  constexpr int64_t kBytes = int64_t{1} << 40;
  const Tensor x = empty(context, {kBytes}, DType::kU8);
  auto* bytes = static_cast<std::byte*>(x.data());
  bytes[kBytes - 1] = std::byte{1};
  CHECK(bytes[kBytes / 2] == std::byte{0});
  getrusage(RUSAGE_SELF, &after);
  CHECK(after.ru_maxrss - before.ru_maxrss < 16 << 10);  // ru_maxrss is in KiB
  CHECK(backend.owns(bytes));
  CHECK(backend.owns(bytes + kBytes - 1));
  CHECK_FALSE(backend.owns(&context));
}

TEST_CASE("a plan copies what is short, and longer values read as zeros") {
  Context context({}, std::make_unique<PlanBackend>());
  const std::vector<int64_t> few = {1, 2, 3};
  CHECK(to_host<int64_t>(from_host<int64_t>(context, few, {3})) == few);
  const std::vector<int64_t> many(1000, 7);
  const std::vector<int64_t> zeros(1000);
  CHECK(to_host<int64_t>(from_host<int64_t>(context, many, {1000})) == zeros);
  // A copy of so many elements also gives zeros if the memory contained other values before.
  const Tensor used = empty(context, {2000}, DType::kI64);
  std::fill_n(static_cast<int64_t*>(used.data()), 2000, 7);
  const Tensor part = used.alias({1000}, {1}, 1);
  context.copy(part.data(), many.data(), part.bytes());
  const auto* values = static_cast<const int64_t*>(used.data());
  CHECK(std::vector<int64_t>(values + 1, values + 1001) == zeros);
  CHECK(values[0] == 7);
  CHECK(values[1001] == 7);
}

TEST_CASE("a kernel that runs dry takes its scratch memory and leaves its result") {
  Context real({.threads = 2}), planned({.threads = 2}, std::make_unique<PlanBackend>());
  const MemoryStats want = stats_after_product(real, 300);
  const kernels::DryRun dry;
  const MemoryStats found = stats_after_product(planned, 300);
  CHECK(want.at_peak[size_t(MemoryTag::kWorkspace)] > 0);
  CHECK(found.at_peak == want.at_peak);
  CHECK(found.peak_reserved == want.peak_reserved);
  const Tensor ones = full(planned, {10}, DType::kF32, 1);
  CHECK(to_host<float>(ones) == std::vector<float>(10));
}

}  // namespace shale
