#include "shale/runtime/tensor/graph.h"

#include <memory>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/simt/engine/options.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/tensor/tensor.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale::test {
namespace {

constexpr int64_t kNumel = 1000;

ContextOptions emulated(int64_t device_memory = 0) {
  return {.device = {.type = DeviceType::kEmu}, .threads = 1, .device_memory = device_memory};
}

std::unique_ptr<Context> context_with(const emulator::Options& options) {
  return std::make_unique<Context>(emulated(),
                                   make_emu_backend({.type = DeviceType::kEmu}, options));
}

void set(const Tensor& x, float value) {
  const std::vector<float> values(static_cast<size_t>(x.numel()), value);
  x.context().copy(x.data(), values.data(), x.bytes());
}

Tensor vector_of(Context& context, float value) {
  Tensor x = empty(context, {kNumel}, DType::kF32);
  set(x, value);
  return x;
}

float last(const Tensor& x) {
  return to_host<float>(x).back();
}

// Computes (2 x)^2 + x through temporary tensors.
Tensor polynomial(const Tensor& x) {
  const Tensor twice = scale(x, 2);
  return add(mul(twice, twice), x);
}

}  // namespace

TEST_CASE("a replay computes from what its inputs hold then", "[runtime][graph]") {
  for (const auto& options : emulator_orders()) {
    CAPTURE(describe(options));
    const auto context = context_with(options);
    GraphMemory memory(*context);
    const Tensor x = vector_of(*context, 1);
    Tensor y;
    Graph graph(memory, [&] { y = polynomial(x); });
    for (const float value : {1.0f, 2.0f, 3.0f}) {
      set(x, value);
      graph.replay();
      CHECK(last(y) == 4 * value * value + value);
    }
    y = Tensor();
  }
}

TEST_CASE("nothing that comes later gets the memory of a graph", "[runtime][graph]") {
  Context context(emulated());
  GraphMemory memory(context);
  const Tensor x = vector_of(context, 1);
  Tensor y;
  Graph graph(memory, [&] { y = polynomial(x); });
  // These tensors have the sizes of memory that the graph has freed. They must not get that memory.
  std::vector<Tensor> others;
  for (int i = 0; i < 8; ++i) others.push_back(vector_of(context, 100));
  context.allocator().release_cached();
  graph.replay();
  CHECK(last(y) == 5);
  for (const Tensor& other : others) CHECK(last(other) == 100);
  y = Tensor();
}

TEST_CASE("graphs of one memory share it, in the order of their capture", "[runtime][graph]") {
  Context context(emulated());
  GraphMemory memory(context);
  const Tensor x = vector_of(context, 1);
  Tensor y, z;
  Graph first(memory, [&] { y = polynomial(x); });
  const int64_t reserved = context.allocator().stats().reserved;
  Graph second(memory, [&] { z = polynomial(y); });
  CHECK(context.allocator().stats().reserved == reserved);
  for (int i = 0; i < 3; ++i) {
    first.replay();
    second.replay();
    CHECK(last(y) == 5);
    CHECK(last(z) == 105);
  }
  y = z = Tensor();
}

TEST_CASE("kernels' scratch memory stays a graph's own", "[runtime][graph]") {
  Context context(emulated());
  void *in_graph = nullptr, *larger = nullptr;
  {
    GraphMemory memory(context);
    const auto reserve = [&](size_t bytes) { return context.exec().workspace->reserve(bytes); };
    void* const outside = reserve(1000);
    Graph graph(memory, [&] { in_graph = reserve(1000); });
    CHECK(in_graph != outside);
    CHECK(reserve(1000) == outside);
    // A later capture that needs more memory must not take that of the first capture.
    Tensor x;
    Graph other(memory, [&] {
      larger = reserve(1'000'000);
      x = empty(context, {kNumel}, DType::kF32);
    });
    CHECK(larger != in_graph);
    CHECK(x.data() != in_graph);
    x = Tensor();
  }
  context.allocator().release_cached();
  // Only the tensor `outside` is left.
  CHECK(context.allocator().stats().current[size_t(MemoryTag::kWorkspace)] == 1024);
}

TEST_CASE("work that runs once in a graph's memory leaves the capture what it needs",
          "[runtime][graph]") {
  Context context(emulated());
  GraphMemory memory(context);
  const Tensor x = vector_of(context, 1);
  {
    const GraphMemory::Scope scope(memory);
    CHECK(last(polynomial(x)) == 5);
  }
  const int64_t reserved = context.allocator().stats().reserved;
  Tensor y;
  Graph graph(memory, [&] { y = polynomial(x); });
  graph.replay();
  CHECK(last(y) == 5);
  CHECK(context.allocator().stats().reserved == reserved);
  y = Tensor();
}

TEST_CASE("the memory of graphs goes back with them", "[runtime][graph]") {
  Context context(emulated());
  context.allocator().release_cached();
  const int64_t before = context.allocator().stats().reserved;
  {
    GraphMemory memory(context);
    const Tensor x = vector_of(context, 1);
    Graph graph(memory, [&] { polynomial(x); });
    graph.replay();
    context.synchronize();
    context.allocator().release_cached();
    CHECK(context.allocator().stats().reserved > before);
  }
  context.allocator().release_cached();
  CHECK(context.allocator().stats().reserved == before);
}

TEST_CASE("a capture that runs out of memory says so, and the context goes on",
          "[runtime][graph]") {
  constexpr int64_t kMiB = int64_t{1} << 20;
  Context context(emulated(8 * kMiB));
  GraphMemory memory(context);
  const auto too_much = [&] { empty(context, {16 * kMiB}, DType::kU8); };
  CHECK(contains(message_of<OutOfMemoryError>([&] { Graph(memory, too_much); }), "budget"));
  CHECK(last(polynomial(vector_of(context, 1))) == 5);
}

TEST_CASE("work that waits for the device cannot be captured", "[runtime][graph]") {
  Context context(emulated());
  GraphMemory memory(context);
  const Tensor x = vector_of(context, 1);
  const auto refused = [&](const std::function<void()>& work) {
    return message_of<InternalError>([&] { Graph(memory, work); });
  };
  CHECK(contains(refused([&] { context.synchronize(); }), "the host waits for a captured stream"));
  CHECK(contains(refused([&] { to_host<float>(polynomial(x)); }), "pageable host memory"));
  CHECK(contains(refused([&] { vector_of(context, 1); }), "pageable host memory"));
  CHECK(contains(refused([&] { Graph(memory, [] {}); }), "another capture is in progress"));
  // After an error, the context is unchanged.
  CHECK(last(polynomial(x)) == 5);
  Tensor y;
  Graph graph(memory, [&] { y = polynomial(x); });
  graph.replay();
  CHECK(last(y) == 5);
  y = Tensor();
}

TEST_CASE("a graph reads the per-step values of the day", "[runtime][graph]") {
  Context context(emulated());
  GraphMemory memory(context);
  const Tensor x = vector_of(context, 1);
  Tensor y;
  Graph graph(memory, [&] { y = dropout(x, 0.5f, 0); });
  std::vector<std::vector<float>> masks;
  for (const uint64_t step : {1u, 2u, 1u}) {
    context.update_step([&](StepState& state) { state.step = step; });
    graph.replay();
    masks.push_back(to_host<float>(y));
    CHECK(masks.back() == to_host<float>(dropout(x, 0.5f, 0)));
  }
  CHECK(masks[0] != masks[1]);
  CHECK(masks[0] == masks[2]);
  // While the step values are held, new values go to other memory.
  const auto held = context.hold_step();
  context.update_step([](StepState& state) { state.step = 3; });
  CHECK(contains(message_of<InternalError>([&] { graph.replay(); }), "have another address"));
  y = Tensor();
}

TEST_CASE("the CPU has nothing to capture", "[runtime][graph]") {
  Context context({.threads = 1});
  GraphMemory memory(context);
  CHECK(contains(message_of<UnavailableError>([&] { Graph(memory, [] {}); }),
                 "expected cuda or emu"));
  const Tensor x = vector_of(context, 1);
  CHECK(last(polynomial(x)) == 5);
}

}  // namespace shale::test
