#include "shale/kernels/tensor_map_spec.h"

#include <functional>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"

namespace shale::kernels {
namespace {

alignas(64) std::byte g_data[64];

// Describes a [2, 3, 64] array with lines 192 bytes apart.
TensorMapSpec good() {
  return {.data = g_data,
          .dtype = DType::kBF16,
          .dims = 3,
          .sizes = {64, 3, 2},
          .strides = {1, 96, 288},
          .box = {64, 256, 1},
          .swizzle = true};
}

// Returns the error message for a spec with one mistake.
std::string refused(const std::function<void(TensorMapSpec&)>& mistake) {
  TensorMapSpec spec = good();
  mistake(spec);
  return test::message_of<ShapeError>([&] { check_tensor_map(spec); });
}

}  // namespace

// The limits are those of the PTX ISA and of the CUDA driver API, cuTensorMapEncodeTiled.
TEST_CASE("a tensor map that the hardware cannot have is refused by name", "[kernels]") {
  CHECK_NOTHROW(check_tensor_map(good()));
  const auto says = [](const char* text, const std::function<void(TensorMapSpec&)>& mistake) {
    const std::string message = refused(mistake);
    CAPTURE(text, message);
    CHECK(test::contains(message, text));
  };
  says("expected fp32, bf16, fp16 or uint8", [](auto& s) { s.dtype = DType::kI32; });
  says("it has 1 dimensions", [](auto& s) { s.dims = 1; });
  says("it has 5 dimensions", [](auto& s) { s.dims = 5; });
  says("the address of the data is not a multiple of 16", [](auto& s) { s.data = g_data + 8; });
  says("the innermost stride is 2, expected 1", [](auto& s) { s.strides[0] = 2; });
  says("stride 1 is 200 bytes, expected a multiple of 16", [](auto& s) { s.strides[1] = 100; });
  says("stride 2 is 1099511627776 bytes", [](auto& s) { s.strides[2] = int64_t{1} << 39; });
  says("stride 2 is -576 bytes", [](auto& s) { s.strides[2] = -288; });
  says("size 1 is 0, expected 1 to 2^32", [](auto& s) { s.sizes[1] = 0; });
  says("size 2 is 4294967297", [](auto& s) { s.sizes[2] = (int64_t{1} << 32) + 1; });
  says("box size 1 is 257, expected 1 to 256", [](auto& s) { s.box[1] = 257; });
  says("box size 2 is 0", [](auto& s) { s.box[2] = 0; });
  says("a line of a box has 256 bytes, expected 128 with swizzle", [](auto& s) { s.box[0] = 128; });
  says("a line of a box has 24 bytes, expected a multiple of 16", [](auto& s) {
    s.swizzle = false;
    s.box[0] = 12;
  });
}

}  // namespace shale::kernels
