#include "shale/comm/checkpoint/manifest.h"

#include <cstdio>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/test/support/catch.h"

namespace shale {

using test::contains;
using test::message_of;

namespace {

// Appends the checksum line to the body.
std::string sealed(const std::string& body) {
  char line[32];
  std::snprintf(line, sizeof line, ",\"crc32c\":\"%08x\"}\n",
                crc32c(std::as_bytes(std::span(body))));
  return body + line;
}

const std::string kBody =
    R"({"format":"shale-checkpoint","format_version":2,"writer":"w","step":3,)"
    R"("state":{"a":{"b":[1.5]}},"config":{},"chunk_bytes":4096,)"
    R"("files":[{"name":"a.st","bytes":5000,"crc32c":"0123456789abcdef"},)"
    R"({"name":"b.st","bytes":4096,"crc32c":"00000000"}],)"
    R"("tensors":{"w":{"dtype":"BF16","shape":[2,3],)"
    R"("boxes":[{"begin":[0,0],"size":[2,3],"parts":[[0,1,1,4],[1,1,1,2]]}]}})"
    "\n";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t place = text.find(from);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

// Replaces `from` by `to` in the body, adds a valid checksum as an attacker would, and returns the
// error message.
std::string complaint(const std::string& from, const std::string& to) {
  CAPTURE(from, to);
  const std::string text = sealed(replaced(kBody, from, to));
  const std::string message =
      message_of<DataError>([&] { parse_checkpoint_manifest(text, "m.json"); });
  CHECK(message.starts_with("m.json: "));
  return message;
}

}  // namespace

TEST_CASE("a manifest is read, and written again as it was", "[io]") {
  const CheckpointManifest manifest = parse_checkpoint_manifest(sealed(kBody), "m.json");
  CHECK(manifest.step == 3);
  CHECK(manifest.state == R"({"a":{"b":[1.5]}})");
  REQUIRE(manifest.files.size() == 2);
  CHECK(manifest.files[0].chunk_crcs == std::vector<uint32_t>{0x01234567, 0x89abcdef});
  const CheckpointTensor& tensor = manifest.tensors.at("w");
  CHECK(tensor.dtype == DType::kBF16);
  CHECK(tensor.bytes() == 12);
  CHECK(tensor.boxes[0].parts[1].first == 4);
  const std::string text = to_json(manifest);
  CHECK(to_json(parse_checkpoint_manifest(text, "again")) == text);
}

TEST_CASE("a manifest of version 1 is read, and written again as one of version 2", "[io]") {
  const std::string old =
      replaced(replaced(kBody, R"("format_version":2)", R"("format_version":1)"),
               "[[0,1,1,4],[1,1,1,2]]", "[[0,0,4],[1,4,2]]");
  CHECK(to_json(parse_checkpoint_manifest(sealed(old), "m.json")) ==
        to_json(parse_checkpoint_manifest(sealed(kBody), "m.json")));
}

TEST_CASE("parts in a row are one entry, whichever files they lie in", "[io]") {
  CheckpointManifest manifest = parse_checkpoint_manifest(sealed(kBody), "m.json");
  CheckpointTensor& tensor = manifest.tensors.at("w");
  const auto written = [&](const std::vector<CheckpointTensor::Part>& parts) {
    tensor.boxes[0].parts = parts;
    const std::string text = to_json(manifest);
    const CheckpointManifest read = parse_checkpoint_manifest(text, "again");
    const auto& again = read.tensors.at("w").boxes[0].parts;
    REQUIRE(again.size() == parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      CHECK(again[i].file == parts[i].file);
      CHECK(again[i].first == parts[i].first);
      CHECK(again[i].count == parts[i].count);
    }
    const size_t begin = text.find("\"parts\":");
    return text.substr(begin + 8, text.find("}", begin) - begin - 8);
  };
  CHECK(written({{0, 0, 2}, {1, 2, 2}, {0, 4, 2}}) == "[[0,1,2,2],[0,1,1,2]]");
  CHECK(written({{1, 0, 2}, {0, 2, 2}, {1, 4, 2}}) == "[[1,-1,2,2],[1,1,1,2]]");
  CHECK(written({{1, 0, 2}, {1, 2, 2}, {1, 4, 2}}) == "[[1,0,3,2]]");
  CHECK(written({{0, 0, 1}, {1, 1, 2}, {0, 3, 3}}) == "[[0,1,1,1],[1,1,1,2],[0,1,1,3]]");
}

TEST_CASE("a manifest of 127 units on 4,096 ranks is as long as its files and tensors", "[io]") {
  constexpr int64_t kRanks = 4096, kUnits = 127, kParameters = 12, kElements = 2048;
  CheckpointManifest manifest;
  manifest.step = 1;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    manifest.files.push_back({.name = cat("shard_", rank), .bytes = 4096, .chunk_crcs = {7}});
  }
  // All parameters of a unit are on equally many ranks, with one part on each of these ranks.
  for (int64_t tensor = 0; tensor < 3 * kUnits * kParameters; ++tensor) {
    const int64_t begin = tensor % kParameters * kRanks / kParameters;
    const int64_t end = (tensor % kParameters + 1) * kRanks / kParameters;
    CheckpointTensor& whole = manifest.tensors[cat("tensor_", tensor)];
    whole.shape = {(end - begin) * kElements};
    CheckpointTensor::Box& box = whole.boxes.emplace_back();
    box.box = whole_box(whole.shape);
    for (int64_t rank = begin; rank < end; ++rank) {
      box.parts.push_back({.file = rank, .first = (rank - begin) * kElements, .count = kElements});
    }
  }
  const std::string text = to_json(manifest);
  CHECK(text.size() < 100 * size_t(kRanks + 3 * kUnits * kParameters));
  CHECK(parse_checkpoint_manifest(text, "m.json").tensors.at("tensor_0").boxes[0].parts.size() ==
        kRanks / kParameters);
}

TEST_CASE("each rule of the manifest is held against a right checksum", "[io]") {
  const std::vector<std::vector<std::string>> cases = {
      // Columns: text to replace, its replacement, part of the expected message.
      {R"("step":3)", R"("step":3,"step":3)", "appears twice"},
      {R"("step":3)", R"("step":3,"extra":1)", "unknown key 'extra'"},
      {R"("step":3,)", "", "no 'step'"},
      {R"("step":3)", R"("step":-3)", "-3, expected an integer from 0"},
      {R"("step":3)", R"("step":3.0)", "3.0, expected an integer"},
      {R"("step":3)", R"("step":9223372036854775808)", "expected an integer"},
      {R"("step":3)", R"("step":"3")", "expected an integer"},
      {R"("format":"shale-checkpoint")", R"("format":"other")", "found \"other\""},
      {R"("format_version":2)", R"("format_version":3)", "format_version: 3, expected"},
      {R"("format_version":2)", R"("format_version":1)", "expected 3 integers"},
      {R"("writer":"w")", R"("writer":1)", "expected a string"},
      {R"("state":{"a":{"b":[1.5]}})", R"("state":[])", "'state' is not an object"},
      {R"("config":{})", R"("config":null)", "'config' is not an object"},
      {R"("chunk_bytes":4096)", R"("chunk_bytes":0)", "'chunk_bytes': 0"},
      {R"("chunk_bytes":4096)", R"("chunk_bytes":1000000000)", "'chunk_bytes': 1000000000"},
      {R"("name":"a.st")", R"("name":"../a.st")", "expected letters"},
      {R"("name":"a.st")", R"("name":"/a.st")", "expected letters"},
      {R"("name":"a.st")", R"("name":".st")", "expected letters"},
      {R"("name":"a.st")", R"("name":"")", "expected letters"},
      {R"("name":"a.st")", R"("name":"a\u0000")", "expected letters"},
      {R"("name":"a.st")", R"("name":"manifest.json")", "expected letters"},
      {R"("name":"a.st")", R"("name":"b.st")", "'b.st' appears twice"},
      {R"("bytes":5000)", R"("bytes":7)", "bytes: 7"},
      {R"("bytes":5000)", R"("bytes":9000)", "expected 8 for each of 3 chunks"},
      {R"("bytes":5000)", R"("bytes":9223372036854775807)", "expected an integer"},
      {"0123456789abcdef", "0123456789abcdeF", "other than 0-9"},
      {"0123456789abcdef", "0123456789abcde", "expected 8 for each of 2"},
      {R"("bytes":5000,)", R"("bytes":5000,"more":1,)", "unknown key 'more'"},
      {R"("tensors":{"w")", R"("tensors":{"")", "a name of 0 bytes"},
      {R"("tensors":{"w")", "\"tensors\":{\"" + std::string(513, 'w') + "\"", "513 bytes"},
      {R"("dtype":"BF16")", R"("dtype":"BF17")", "unknown dtype"},
      {R"("dtype":"BF16")", R"("dtype":"F4")", "unknown dtype"},  // no checkpoint has this dtype
      {R"("shape":[2,3])", R"("shape":[2,-3])", "expected an integer from 0"},
      {R"("shape":[2,3])", R"("shape":[2,4])", "end at 3, expected 4"},
      {R"("shape":[2,3])", R"("shape":[1,1,1,1,1,1,1,1,1])", "9 entries, expected at most 8"},
      {R"("shape":[2,3])", R"("shape":[4294967296,4294967296])", "2^63 bits or more"},
      {R"("size":[2,3])", R"("size":[2,2])", "end at 2, expected 3"},
      {R"([[0,1,1,4],[1,1,1,2]])", R"([[0,1,1,4]])", "not in any file"},
      {R"([[0,1,1,4],[1,1,1,2]])", R"([[0,1,1,4],[1,1,1,3]])", "has 3 elements"},
      {R"([[0,1,1,4],[1,1,1,2]])", R"([[0,1,3,2]])", "in file 2"},
      {R"([[0,1,1,4],[1,1,1,2]])", R"([[1,-1,3,2]])", "in file -1"},
      {R"([[0,1,1,4],[1,1,1,2]])", R"([[0,0,4]])", "expected 4 integers"},
      {R"([[0,1,1,4],[1,1,1,2]])", R"([[0,0,1,0]])", "expected an integer from 1"},
      {R"([[0,1,1,4],[1,1,1,2]])", R"([[0,0,0,6]])", "expected an integer from 1"},
      {R"([[0,1,1,4],[1,1,1,2]])", R"([[0,0,100001,6]])", "expected an integer from 1"},
      {R"([[0,1,1,4],[1,1,1,2]])", R"([[0,0,1,9223372036854775807]])", "has 9223372036854775807"},
      {R"([[0,1,1,4],[1,1,1,2]])", R"([[0,0,2,9223372036854775807]])", "beyond 2^63"},
      {R"([[0,1,1,4],[1,1,1,2]])", R"([[0,0,1,6],[0,0,1,9223372036854775807]])", "beyond 2^63"},
      {R"({"w":{"dtype":"BF16")", R"({"\u00e9":{"dtype":1)", "expected a string"},
      {R"([1.5])", std::string(100, '[') + std::string(100, ']'), "nested deeper"},
      {R"([1.5])", "[1e999]", "JSON"},
      {R"([1.5])", "[1.5", "not valid JSON"},
      {R"("w":{)", "\"w\xff\":{", "not valid JSON"}};
  for (const auto& one : cases) CHECK(contains(complaint(one[0], one[1]), one[2]));
}

TEST_CASE("a text that is no manifest is refused, whatever it is", "[io]") {
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string(1000, '\0'), kBody, sealed(""), sealed("{"),
        sealed("[1]"), sealed(kBody) + "\n", sealed("{\"a\":1\n")}) {
    CHECK_THROWS_AS(parse_checkpoint_manifest(text, "m.json"), DataError);
  }
}

TEST_CASE("every flipped bit of a manifest is found", "[io]") {
  std::string text = sealed(kBody);
  CHECK_NOTHROW(parse_checkpoint_manifest(text, "m.json"));
  int64_t unnoticed = 0;
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    try {
      parse_checkpoint_manifest(text, "m.json");
      ++unnoticed;
    } catch (const DataError&) {
    }
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
  }
  CHECK(unnoticed == 0);
}

TEST_CASE("a manifest cut short at any byte is found", "[io]") {
  const std::string text = sealed(kBody);
  int64_t unnoticed = 0;
  for (size_t size = 0; size < text.size(); ++size) {
    try {
      parse_checkpoint_manifest(text.substr(0, size), "m.json");
      ++unnoticed;
    } catch (const DataError&) {
    }
  }
  CHECK(unnoticed == 0);
}

}  // namespace shale
