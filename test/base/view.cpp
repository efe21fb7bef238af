#include "shale/base/view.h"

#include <array>

#include "shale/test/support/catch.h"

namespace shale {

TEST_CASE("make_view is dense and row-major", "[view]") {
  std::array<float, 24> data{};
  const View view = make_view(data.data(), {2, 3, 4});
  CHECK(view.dtype == DType::kF32);
  CHECK(view.strides == Shape{12, 4, 1});
  CHECK(view.numel() == 24);
  CHECK(view.bytes() == 96);
  CHECK(view.rows() == 6);
  CHECK(view.cols() == 4);
  CHECK(view.size(-1) == 4);
  CHECK(view.stride(0) == 12);
  CHECK(view.contiguous());
  CHECK(to_string(view) == "fp32[2,3,4]");
}

TEST_CASE("contiguous ignores the strides of sizes of one only", "[view]") {
  std::array<float, 12> data{};
  View view = make_view(data.data(), {3, 1, 4});
  view.strides = {4, 99, 1};
  CHECK(view.contiguous());
  view.strides = {1, 99, 3};
  CHECK_FALSE(view.contiguous());
  view.strides = {8, 4, 1};
  CHECK_FALSE(view.contiguous());
}

TEST_CASE("a view with no elements has no rows", "[view]") {
  float data = 0;
  CHECK(make_view(&data, {3, 0}).rows() == 0);
  CHECK(make_view(&data, {0, 3}).rows() == 0);
  CHECK(make_view(&data, {0, 3}).numel() == 0);
  CHECK_THROWS_AS(make_view(&data, {}).cols(), ShapeError);
}

TEST_CASE("as gives the elements of the view's dtype only", "[view]") {
  std::array<bf16, 2> data{};
  const View view = make_view(data.data(), {2});
  CHECK(view.as<bf16>() == data.data());
  const std::string message = test::message_of<DTypeError>([&] { view.as<float>(); });
  CHECK(test::contains(message, "fp32"));
  CHECK(test::contains(message, "bf16[2]"));
}

TEST_CASE("flat cuts a range out of a contiguous view and stays inside", "[view]") {
  std::array<int32_t, 6> data{};
  View view = make_view(data.data(), {2, 3});
  const View part = view.flat(2, 3);
  CHECK(part.as<int32_t>() == data.data() + 2);
  CHECK(part.shape == Shape{3});
  CHECK(view.flat(6, 0).numel() == 0);
  CHECK_THROWS_AS(view.flat(4, 3), ShapeError);
  CHECK_THROWS_AS(view.flat(-1, 3), ShapeError);
  CHECK_THROWS_AS(view.flat(0, -1), ShapeError);
  view.strides = {1, 2};
  CHECK(test::contains(test::message_of<ShapeError>([&] { view.flat(0, 6); }), "not contiguous"));
}

TEST_CASE("a view is defined when it has memory or a shape", "[view]") {
  float data = 0;
  CHECK_FALSE(View{}.defined());
  CHECK(make_view(&data, {}).defined());
  CHECK(make_view<float>(nullptr, {0, 3}).defined());
}

}  // namespace shale
