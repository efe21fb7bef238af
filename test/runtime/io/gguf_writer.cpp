#include "shale/runtime/io/gguf_writer.h"

#include <cmath>
#include <cstring>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += {kDigits[static_cast<unsigned char>(c) >> 4], kDigits[c & 15]};
  }
  return text;
}

}  // namespace

// The expected file has been read by llama.cpp's own reader, gguf-py, with these keys and tensors.
TEST_CASE("a GGUF file is the reference's to the byte", "[io]") {
  const TempDir dir;
  const std::string path = dir.file("a.gguf");
  GgufWriter writer(
      path,
      {{"general.architecture", "gpt2"},
       {"gpt2.block_count", uint32_t{2}},
       {"gpt2.attention.layer_norm_epsilon", 1e-5f}},
      {{.name = "token_embd.weight", .shape = {2, 3}}, {.name = "output_norm.bias", .shape = {3}}});
  writer.write(std::vector<float>{0, 1, 2});
  CHECK_FALSE(std::filesystem::exists(path));
  writer.write(std::vector<float>{3, 4, 5});
  writer.write(std::vector<float>{1, 2, 3});
  writer.commit();
  const std::string head =
      "474755460300000002000000000000000300000000000000140000000000000067656e6572616c2e61726368"
      "6974656374757265080000000400000000000000677074321000000000000000677074322e626c6f636b5f63"
      "6f756e7404000000020000002100000000000000677074322e617474656e74696f6e2e6c617965725f6e6f72"
      "6d5f657073696c6f6e06000000acc527371100000000000000746f6b656e5f656d62642e7765696768740200"
      "00000300000000000000020000000000000000000000000000000000000010000000000000006f7574707574"
      "5f6e6f726d2e626961730100000003000000000000000000000020000000000000000000";
  const std::string bytes = read_file(path);
  CHECK(bytes.size() == 320);
  const std::string found = hex(bytes);
  CHECK(found.substr(0, head.size()) == head);
  const auto floats = [&](size_t at, size_t count) {
    std::vector<float> values(count);
    std::memcpy(values.data(), bytes.data() + at, count * 4);
    return values;
  };
  CHECK(floats(256, 6) == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(floats(288, 3) == std::vector<float>{1, 2, 3});
  // The padding between tensors consists of zeros.
  CHECK(found.substr(2 * (256 + 24), 16) == "0000000000000000");
}

TEST_CASE("Q8_0 is a scale and 32 rounded integers, as ggml makes them", "[io]") {
  const TempDir dir;
  const std::string path = dir.file("q.gguf");
  std::vector<float> x(64);
  for (size_t i = 0; i < 31; ++i) x[i] = static_cast<float>(i) - 15.5f;
  x[31] = -127.f;  // the largest value makes the scale 1
  // The block x[32..63] has zeros only, so that its scale is 0.
  GgufWriter writer(path, {}, {{.name = "a", .type = GgufType::kQ8_0, .shape = {2, 32}}});
  writer.write(x);
  writer.commit();
  const std::string bytes = read_file(path);
  const auto* data = reinterpret_cast<const int8_t*>(bytes.data()) + bytes.size() - 96;
  CHECK(hex(bytes.substr(bytes.size() - 96, 2)) == "003c");  // the scale 1 in f16
  for (size_t i = 0; i < 31; ++i) {
    CHECK(data[2 + i] == static_cast<int8_t>(std::round(x[i])));  // halves round away from zero
  }
  CHECK(data[2 + 31] == -127);
  for (size_t i = 34; i < 68; ++i) CHECK(data[i] == 0);
}

TEST_CASE("elements of a GGUF file have the type that was asked for", "[io]") {
  const TempDir dir;
  const std::string path = dir.file("t.gguf");
  GgufWriter writer(path, {},
                    {{.name = "half", .type = GgufType::kF16, .shape = {2}},
                     {.name = "brain", .type = GgufType::kBF16, .shape = {2}}});
  writer.write(std::vector<float>{1, -2});
  writer.write(std::vector<float>{1, 1.00390625f});  // the second value is a tie, rounded to even
  writer.commit();
  const std::string bytes = read_file(path);
  CHECK(hex(bytes.substr(bytes.size() - 64, 4)) == "003c00c0");
  CHECK(hex(bytes.substr(bytes.size() - 32, 4)) == "803f803f");
}

TEST_CASE("what a GGUF file cannot hold is an error", "[io]") {
  const TempDir dir;
  const std::string path = dir.file("e.gguf");
  const GgufTensor small{.name = "a", .type = GgufType::kQ8_0, .shape = {2, 33}};
  CHECK(message_of<ConfigError>([&] { GgufWriter(path, {}, {small}); }) ==
        "gguf: rows of a have 33 elements, expected a multiple of 32 for q8_0");
  CHECK(contains(message_of<ConfigError>(
                     [&] { GgufWriter(path, {}, {{.name = std::string(64, 'x'), .shape = {1}}}); }),
                 "has 64 bytes, expected at most 63"));
  const GgufTensor one{.name = "a", .type = GgufType::kQ8_0, .shape = {1, 32}};
  CHECK(contains(message_of<InternalError>([&] { GgufWriter(path, {}, {one, one}); }), "twice"));
  GgufWriter writer(path, {}, {one});
  std::vector<float> x(32, 1.f);
  x[7] = std::nanf("");
  CHECK(contains(message_of<DataError>([&] { writer.write(x); }), "a has the value nan"));
  CHECK(contains(message_of<InternalError>([&] { writer.write(std::vector<float>(33)); }),
                 "33 elements for a, expected at most 32 and a multiple of 32"));
  CHECK(contains(message_of<InternalError>([&] { writer.commit(); }), "a is not complete"));
  CHECK_FALSE(std::filesystem::exists(path));
}

}  // namespace shale::test
