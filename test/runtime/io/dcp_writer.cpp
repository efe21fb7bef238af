#include "shale/runtime/io/dcp_writer.h"

#include <filesystem>

#include "shale/base/error.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/io/dcp.h"
#include "shale/runtime/io/safetensors_writer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/stored_values.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using namespace std::string_literals;
using test::contains;
using test::message_of;
using test::read_all;
using test::read_file;
using test::TempDir;

namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

// Writes four tensors, one of them with a second name.
void write_some(const std::string& folder) {
  DcpWriter writer(folder,
                   {{"a.weight", DType::kF32, {4, 3}},
                    {"empty", DType::kF32, {0, 3}},
                    {"scalar", DType::kF32, {}},
                    {"half", DType::kBF16, {5}}},
                   {{"head", "a.weight"}});
  std::vector<float> values(13);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  writer.write(bytes_of(values).first(20));
  writer.write(bytes_of(values).subspan(20, 28));
  CHECK_THROWS_AS(writer.commit(), InternalError);
  writer.write(bytes_of(values).subspan(48));
  const std::vector<bf16> ones(5, bf16(1.f));
  writer.write(std::as_bytes(std::span(ones)));
  CHECK_THROWS_AS(writer.write(bytes_of(values)), InternalError);
  CHECK_FALSE(fs::exists(fs::path(folder) / kDcpMetadata));
  writer.commit();
}

}  // namespace

TEST_CASE("a written checkpoint is read back", "[io]") {
  const TempDir dir;
  const std::string folder = dir.file("dcp");
  write_some(folder);
  const StoredTensors files(folder);
  CHECK(files.tensors().size() == 5);
  CHECK(read_all(files, "a.weight")[11] == 11);
  CHECK(read_all(files, "head") == read_all(files, "a.weight"));
  CHECK(read_all(files, "scalar") == std::vector<float>{12});
  CHECK(read_all(files, "half") == std::vector<float>(5, 1.f));
  CHECK(files.find("empty")->description() == "F32[0,3]");
  write_some(dir.file("again"));  // a second write gives the same bytes
  for (const char* name : {kDcpMetadata, "__0_0.distcp"}) {
    CHECK(read_file(folder + "/" + name) == read_file(dir.file("again/"s + name)));
  }
}

// These are the bytes of a folder that PyTorch has read; test/oracles/dcp.py repeats this.
TEST_CASE("written checkpoints have the bytes that PyTorch has read", "[io]") {
  const TempDir dir;
  write_some(dir.file("dcp"));
  const auto crc = [&](const std::string& name) {
    const std::string text = read_file(dir.file("dcp/" + name));
    return crc32c(std::as_bytes(std::span(text)));
  };
  CHECK(crc(kDcpMetadata) == 0xbba19a3c);
  CHECK(crc("__0_0.distcp") == 0x24e36254);
}

TEST_CASE("a checkpoint is not written beside a model in safetensors", "[io]") {
  const TempDir dir;
  SafetensorsFolderWriter(dir.path(), {{"a", DType::kF32, {0}}}).commit();
  CHECK(
      contains(message_of<ConfigError>([&] { DcpWriter(dir.path(), {}); }), "use another folder"));
}

}  // namespace shale
