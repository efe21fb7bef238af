#include "shale/runtime/io/dcp.h"

#include <cmath>
#include <filesystem>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/stored_values.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::fixture_path;
using test::message_of;
using test::read_all;
using test::read_file;
using test::TempDir;

namespace {

namespace fs = std::filesystem;

// Replaces `text` in .metadata of a copy of the fixture by `by`, of the same length, and returns
// the error message.
std::string complaint(const std::string& text, const std::string& by) {
  const TempDir dir;
  for (const char* name : {"__0_0.distcp", "__1_0.distcp"}) {
    fs::copy_file(fixture_path(cat("checkpoints/titan_0_2/", name)), dir.file(name));
  }
  std::string metadata = read_file(fixture_path("checkpoints/titan_0_2/.metadata"));
  REQUIRE(text.size() == by.size());
  const size_t at = metadata.find(text);
  REQUIRE(at != metadata.npos);
  metadata.replace(at, text.size(), by);
  static_cast<void>(dir.write(kDcpMetadata, metadata));
  return message_of<DataError>([&] {
    const StoredTensors files(dir.path().string());
    for (const auto& [name, tensor] : files.tensors()) read_all(files, name);
  });
}

}  // namespace

TEST_CASE("a checkpoint of two ranks has its tensors whole", "[io]") {
  const StoredTensors files(fixture_path("checkpoints/titan_0_2"));
  // Tensors of the optimizer, the step and the schedule do not belong to the model.
  CHECK(files.tensors().size() == 12);
  CHECK(files.find("optimizer.state.tok_embeddings.weight.exp_avg") == nullptr);
  const StoredTensor* wk = files.find("layers.0.attention.wk.weight");
  REQUIRE(wk != nullptr);
  CHECK(wk->parts.size() == 2);
  CHECK(wk->description() == "F32[4,8]");
  // The formula is that of the tensor whose name is first.
  const std::vector<float> values = read_all(files, wk->name);
  for (size_t i = 0; i < values.size(); ++i) {
    CHECK(values[i] == static_cast<float>(std::sin(static_cast<double>(i) * 0.37) * 0.5));
  }
}

TEST_CASE("metadata that does not fit the files is refused", "[io]") {
  CHECK(contains(complaint("__0_0.distcp", "../../secret"), "relative_path '../../secret'"));
  CHECK(contains(complaint("torch.distributed.checkpoint.filesystem\x94\x8c\x0c_StorageInfo",
                           "torch.distributed.checkpoint.filesystem\x94\x8c\x0c_storageinfo"),
                 "uses torch.distributed.checkpoint.filesystem._storageinfo"));
  CHECK(contains(complaint("float32", "float64"), "has a part F32["));
}

TEST_CASE("a missing or shorter data file is an error", "[io]") {
  const TempDir dir;
  fs::copy_file(fixture_path("checkpoints/titan_0_2/.metadata"), dir.file(".metadata"));
  CHECK_THROWS_AS(StoredTensors(dir.path().string()), MissingInputError);
  for (const char* name : {"__0_0.distcp", "__1_0.distcp"}) {
    const std::string whole = read_file(fixture_path(cat("checkpoints/titan_0_2/", name)));
    static_cast<void>(dir.write(name, whole.substr(0, 5000)));
  }
  CHECK(contains(message_of<DataError>([&] { StoredTensors(dir.path().string()); }),
                 "which has 5000"));
}

}  // namespace shale
