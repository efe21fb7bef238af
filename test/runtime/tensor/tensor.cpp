#include "shale/runtime/tensor/tensor.h"

#include <cstring>
#include <limits>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/ops/matmul.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

template <typename T>
void check_round_trip(const std::vector<T>& values) {
  Context context(small_context());
  const Tensor x = from_host<T>(context, values, {2, 2});
  CHECK(x.dtype() == dtype_of<T>);
  const std::vector<T> back = to_host<T>(x);
  REQUIRE(back.size() == values.size());
  CHECK(std::memcmp(back.data(), values.data(), values.size() * sizeof(T)) == 0);
}

template <typename T>
void check_integers() {
  using Limits = std::numeric_limits<T>;
  check_round_trip<T>({Limits::min(), Limits::max(), T(1), T(77)});
}

}  // namespace

TEST_CASE("tensors of every dtype are made of host values, and read back") {
  check_round_trip<float>({1.5f, -0.0f, 1e-40f, std::numeric_limits<float>::infinity()});
  check_round_trip<double>({1.0 / 3, -0.0, 1e300, 0});
  check_round_trip<bf16>({bf16(1.5f), bf16(-0.0f), bf16(3e38f), bf16(0.1f)});
  check_round_trip<f16>({f16(1.5f), f16(-0.0f), f16(65504.f), f16(0.1f)});
  check_integers<int32_t>();
  check_integers<int64_t>();
  check_integers<uint8_t>();
  check_integers<uint16_t>();
  check_integers<uint32_t>();
}

TEST_CASE("host values that do not fit the shape, or the dtype, are refused") {
  Context context(small_context());
  const std::vector<int64_t> three = {1, 2, 3};
  CHECK(contains(message_of<ShapeError>([&] {
                   from_host<int64_t>(context, three, {2, 2});
                 }),
                 "3 values, expected as many as in [2,2]"));
  const Tensor x = from_host<int64_t>(context, three, {3});
  CHECK(contains(message_of<DTypeError>([&] { to_host<int32_t>(x); }), "expected int32"));
}

TEST_CASE("a context that ends before its tensors says so") {
  const std::unique_ptr<FILE, int (*)(FILE*)> silent(std::tmpfile(), std::fclose);
  set_process_log({.err = silent.get()});
  std::string heard;
  process_log().listen([&heard](LogLevel, std::string_view text) { heard += text; });
  {
    Context context(small_context());
    zeros(context, {1000}, DType::kF32);  // this tensor is destroyed immediately
  }
  CHECK(heard.empty());
  auto context = std::make_unique<Context>(small_context());
  auto orphan = std::make_unique<Tensor>(zeros(*context, {1000}, DType::kF32));
  context.reset();
  process_log().listen({});
  set_process_log({});
  CHECK(orphan->defined());
  CHECK(contains(heard, "context cpu is destroyed while 4.0 KiB of its memory are in use"));
  CHECK(contains(message_of<InternalError>([&] { to_host<float>(*orphan); }),
                 "its context has ended"));
  CHECK(contains(message_of<InternalError>([&] { scale(*orphan, 2); }), "its context has ended"));
  orphan.reset();  // frees its memory
}

TEST_CASE("errors about a parameter name it") {
  Context context(small_context());
  Module root;
  const nn::Linear layer(&root, "fc", 3, 4, Init::normal(1));
  const Tensor& weight = layer.weight.value;
  CHECK(contains(message_of<InternalError>([&] { weight.context(); }), "fc.weight"));
  materialize(root, context, DType::kF32, 1);

  const Tensor x = zeros(context, {2, 5}, DType::kF32);
  const auto message = [](auto call) { return message_of<ShapeError>(call); };
  CHECK(contains(message([&] { linear(x, weight); }), "weight (fc.weight) is [4,3]"));
  CHECK(contains(message([&] { matmul(x, weight); }), "b (fc.weight) is [4,3], a is [2,5]"));
  CHECK(contains(message([&] { mul(x, weight); }), "b (fc.weight) is [4,3]"));
  CHECK(contains(message([&] { check_shape("op", "table", weight, {1}); }),
                 "op: table (fc.weight) is [4,3], expected [1]"));
  CHECK(contains(message_of<DTypeError>([&] { check_dtype("op", "x", weight, DType::kI32); }),
                 "op: x (fc.weight) is fp32, expected int32"));
  CHECK(contains(message([&] { check_shape("op", "x", x, {1}); }), "op: x is [2,5]"));
}

}  // namespace shale::test
