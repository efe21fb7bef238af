#include "shale/base/text.h"

#include "shale/base/device.h"
#include "shale/base/shape.h"
#include "shale/test/support/catch.h"

namespace shale {

TEST_CASE("cat joins texts, numbers, characters, booleans and types with to_string", "[text]") {
  const std::string word = "b";
  CHECK(cat("a", word, std::string_view("c"), 'd') == "abcd");
  CHECK(cat(-1, " ", int64_t{1} << 40, " ", 7u, " ", uint8_t{200}) == "-1 1099511627776 7 200");
  CHECK(cat(0.5f, " ", 3.0, " ", true, " ", false) == "0.5 3 true false");
  CHECK(cat(Shape{2, 3}, " on ", Device{.type = DeviceType::kCuda, .index = 1}) ==
        "[2,3] on cuda:1");
}

TEST_CASE("numbers print short where that is exact, else in full", "[text]") {
  CHECK(to_string(0.1) == "0.1");
  CHECK(to_string(1e6) == "1e+06");
  CHECK(to_string(1.0 / 3) == "0.33333333333333331");
  CHECK(to_string(-0.0) == "-0");
  CHECK(to_string(0.1f) == "0.1");
  CHECK(to_string(1.0f / 3) == "0.333333343");
}

TEST_CASE("format_bytes picks the unit", "[text]") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(17) == "17 B");
  CHECK(format_bytes(1024) == "1.0 KiB");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes(512.0 * 1024 * 1024) == "512 MiB");
  CHECK(format_bytes(1.5 * 1024 * 1024 * 1024) == "1.5 GiB");
  CHECK(format_bytes(5e18) == "4547474 TiB");
}

TEST_CASE("devices print as people type them", "[text]") {
  CHECK(to_string(Device{}) == "cpu");
  CHECK(to_string(Device{.type = DeviceType::kCuda}) == "cuda:0");
  CHECK(to_string(Device{.type = DeviceType::kEmu, .arch = 90}) == "emu:90");
  CHECK(to_string(DeviceType::kEmu) == "emu");
}

}  // namespace shale
