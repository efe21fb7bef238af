// Tests convolutions by cuDNN graphs, with a library stand-in, on emulated devices.
#include "shale/kernels/conv.h"

#include <dlfcn.h>

#include "shale/base/error.h"
#include "shale/kernels/cuda/conv/conv_cudnn.h"
#include "shale/kernels/cuda/cudnn/conv_graph.h"
#include "shale/kernels/cuda/cudnn/library.h"
#include "shale/kernels/simt/engine/stream.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"
#include "stand_in.h"

namespace shale {
namespace {

using namespace kernels::cudnn;
using test::DeviceArray;

template <typename Function>
Function* from_stand_in(const char* name) {
  void* const handle = dlopen(std::getenv("SHALE_CUDNN"), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(handle != nullptr);
  auto* const function = reinterpret_cast<Function*>(dlsym(handle, name));
  REQUIRE(function != nullptr);  // without this function, SHALE_CUDNN names a real cuDNN
  return function;
}
test::CudnnCounts& stand_in_counts() {
  return *from_stand_in<test::CudnnCounts*()>("shale_test_cudnn_counts")();
}
std::string said() {
  return from_stand_in<const char*()>("shale_test_cudnn_said")();
}

const Exec& emulated() {
  static const std::vector<Exec> devices = test::devices_with({&kernels::conv});
  for (const Exec& exec : devices) {
    if (exec.device.type == DeviceType::kEmu) return exec;
  }
  throw InternalError("no emulated device");
}

struct Size {
  int64_t images, rows, cols, channels, out, kernel;
  kernels::Windows windows;
  Shape x() const { return {images, rows, cols, channels}; }
  Shape weight() const { return {out, channels, kernel, kernel}; }
  Shape y() const {
    return {images, windows.count(rows, kernel), windows.count(cols, kernel), out};
  }
};
constexpr Size kSize = {3, 7, 6, 5, 9, 3, {.stride = 2, .padding = 1}};

template <typename T>
std::vector<T> integers(const Shape& shape, uint64_t seed) {
  return test::rand_int<T>(shape.numel(), seed, -3, 3);
}

}  // namespace

TEMPLATE_TEST_CASE("graphs of cuDNN compute what our kernels do", "[cudnn]", float, bf16, f16) {
  const Exec& exec = emulated();
  const DeviceArray<TestType> x(exec, integers<TestType>(kSize.x(), 1));
  const DeviceArray<TestType> weight(exec, integers<TestType>(kSize.weight(), 2));
  const DeviceArray<TestType> bias(exec, integers<TestType>({kSize.out}, 3));
  const DeviceArray<TestType> dy(exec, integers<TestType>(kSize.y(), 4));
  const DeviceArray<TestType> y(exec, kSize.y().numel()), y2(exec, kSize.y().numel());
  const DeviceArray<TestType> dx(exec, kSize.x().numel()), dx2(exec, kSize.x().numel());
  const std::vector<float> start(size_t(kSize.weight().numel()), 7.f);
  const DeviceArray<float> dw(exec, start), dw2(exec, start);
  test::CudnnCounts& counts = stand_in_counts();
  counts.queue = [](void* stream, std::function<void()> work) {
    static_cast<emulator::Stream*>(stream)->enqueue(std::move(work));
  };
  counts.written = [](void* stream, const void* data, size_t bytes) {
    static_cast<emulator::Stream*>(stream)->memory().written(data, bytes);
  };
  const int64_t before = counts.executions;
  const auto forward = [&](const DeviceArray<TestType>& to, bool with_bias) {
    return kernels::ConvArgs{.x = x.view(kSize.x()),
                             .weight = weight.view(kSize.weight()),
                             .bias = with_bias ? bias.view() : View(),
                             .y = to.view(kSize.y()),
                             .windows = kSize.windows};
  };
  for (const bool with_bias : {false, true}) {
    kernels::conv(exec, forward(y, with_bias));
    REQUIRE(kernels::emu::conv_by_cudnn(exec, forward(y2, with_bias)));
    CHECK(test::to_f64(y.download()) == test::to_f64(y2.download()));
  }
  const auto input_grad = [&](const DeviceArray<TestType>& to) {
    return kernels::ConvInputGradArgs{.dy = dy.view(kSize.y()),
                                      .weight = weight.view(kSize.weight()),
                                      .dx = to.view(kSize.x()),
                                      .windows = kSize.windows};
  };
  kernels::conv_input_grad(exec, input_grad(dx));
  REQUIRE(kernels::emu::conv_by_cudnn(exec, input_grad(dx2)));
  CHECK(test::to_f64(dx.download()) == test::to_f64(dx2.download()));
  const auto weight_grad = [&](const DeviceArray<float>& to) {
    return kernels::ConvWeightGradArgs{.dy = dy.view(kSize.y()),
                                       .x = x.view(kSize.x()),
                                       .dweight = to.view(kSize.weight()),
                                       .accumulate = true,
                                       .windows = kSize.windows};
  };
  kernels::conv_weight_grad(exec, weight_grad(dw));
  REQUIRE(kernels::emu::conv_by_cudnn(exec, weight_grad(dw2)));
  CHECK(dw.download() == dw2.download());
  CHECK(counts.executions == before + 4);
  CHECK(counts.non_deterministic == 0);
  const int64_t plans = counts.plans;
  REQUIRE(kernels::emu::conv_by_cudnn(exec, weight_grad(dw2)));
  CHECK(counts.plans == plans);  // the plan was cached
}

TEST_CASE("a graph of cuDNN adds a bias, cuts at 0 and gathers statistics", "[cudnn]") {
  // A graph for an image of 2 x 1 pixels, with one input channel and two output channels of weights
  // 2 and -1.
  const ConvGraph graph = {.dtype = DType::kF32,
                           .images = 1,
                           .rows = 2,
                           .cols = 1,
                           .channels = 1,
                           .out_rows = 2,
                           .out_cols = 1,
                           .outs = 2,
                           .kernel_rows = 1,
                           .kernel_cols = 1,
                           .bias = true,
                           .relu = true,
                           .statistics = true};
  alignas(16) const std::array<float, 2> x = {3, -4}, weights = {2, -1}, bias = {1, -1};
  alignas(16) std::array<float, 4> y{};
  alignas(16) std::array<float, 2> sum{};
  alignas(16) std::array<float, 2> square_sum{};
  const ConvPlan* const plan = conv_plan(0, graph);
  REQUIRE(plan != nullptr);
  std::vector<char> workspace(size_t(plan->workspace_bytes()));
  ConvPointers pointers = {.x = x.data(),
                           .weights = weights.data(),
                           .y = y.data(),
                           .bias = bias.data(),
                           .sum = sum.data(),
                           .square_sum = square_sum.data()};
  plan->execute(nullptr, pointers, workspace.data());
  CHECK(y == std::array<float, 4>{7, 0, 0, 3});
  CHECK(sum == std::array<float, 2>{7, 3});
  CHECK(square_sum == std::array<float, 2>{49, 9});
  pointers.sum = nullptr;
  CHECK_THROWS_AS(plan->execute(nullptr, pointers, workspace.data()), InternalError);
  CHECK(said() == "a pointer is null");
  pointers.sum = reinterpret_cast<const char*>(sum.data()) + 4;
  CHECK_THROWS_AS(plan->execute(nullptr, pointers, workspace.data()), InternalError);
  CHECK(test::contains(said(), "is not aligned as it says"));
}

TEST_CASE("the stand-in for cuDNN refuses what its documentation forbids", "[cudnn]") {
  const Library& lib = *library();
  const auto make = [&](DescriptorType type) {
    Descriptor made = nullptr;
    REQUIRE(lib.create_descriptor(type, &made) == kSuccess);
    return made;
  };
  const auto set = [&](Descriptor of, Attribute name, std::vector<int64_t> values) {
    return lib.set_attribute(of, name, AttributeType::kInt64, std::ssize(values), values.data());
  };
  const Descriptor tensor = make(DescriptorType::kTensor);
  // This attribute belongs to another descriptor type.
  CHECK(set(tensor, Attribute::kForwardX, {1}) == kBadParam);
  const float wrong = 1;
  CHECK(lib.set_attribute(tensor, Attribute::kTensorUniqueId, AttributeType::kFloat, 1, &wrong) ==
        kBadParam);
  CHECK(test::contains(said(), "has another type"));
  CHECK(set(tensor, Attribute::kTensorUniqueId, {1, 2}) == kBadParam);
  CHECK(lib.finalize(tensor) == kBadParam);
  CHECK(test::contains(said(), "is missing"));
  const DataType type = DataType::kFloat;
  REQUIRE(lib.set_attribute(tensor, Attribute::kTensorDataType, AttributeType::kDataType, 1,
                            &type) == kSuccess);
  REQUIRE(set(tensor, Attribute::kTensorUniqueId, {1}) == kSuccess);
  REQUIRE(set(tensor, Attribute::kTensorDimensions, {2, 3, 4, 5}) == kSuccess);
  REQUIRE(set(tensor, Attribute::kTensorStrides, {60, 1, 15}) == kSuccess);
  REQUIRE(set(tensor, Attribute::kTensorByteAlignment, {16}) == kSuccess);
  CHECK(lib.finalize(tensor) == kBadParam);
  CHECK(said() == "a tensor has as many strides as dimensions");
  REQUIRE(set(tensor, Attribute::kTensorStrides, {60, 1, 15, 3}) == kSuccess);
  const Descriptor apply = make(DescriptorType::kOperationPointwise);
  CHECK(lib.set_attribute(apply, Attribute::kOperationPointwiseX, AttributeType::kDescriptor, 1,
                          &tensor) == kBadParamNotFinalized);
  CHECK(lib.finalize(tensor) == kSuccess);
  CHECK(set(tensor, Attribute::kTensorUniqueId, {2}) == kNotInitialized);

  // y has 4 x 4 pixels, which does not match the number of windows.
  CHECK_THROWS_AS(conv_plan(0, {.images = 1,
                                .rows = 4,
                                .cols = 4,
                                .channels = 1,
                                .out_rows = 4,
                                .out_cols = 4,
                                .outs = 1,
                                .kernel_rows = 3,
                                .kernel_cols = 3}),
                  InternalError);
  CHECK(said() == "y has the size that windows leave");
  CHECK(lib.destroy_descriptor(apply) == kSuccess);
  CHECK(lib.destroy_descriptor(tensor) == kSuccess);
  CHECK(lib.destroy_descriptor(tensor) == kBadParam);
}

}  // namespace shale
