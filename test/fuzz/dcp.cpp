#include "shale/runtime/io/dcp.h"

#include <filesystem>
#include <vector>

#include "shale/runtime/io/dcp_writer.h"
#include "shale/test/fuzz/fuzz.h"
#include "shale/test/support/temp_dir.h"

namespace shale {
namespace {

// A folder with the data file of seeds/dcp. The fuzzer's input is the metadata file.
const test::TempDir& folder() {
  static const test::TempDir dir;
  static const bool is_written = [] {
    DcpWriter writer(dir.path(), {{"a", DType::kF32, {2, 3}}, {"b", DType::kBF16, {3}}},
                     {{"head", "a"}});
    writer.write(std::vector<std::byte>(24));
    writer.write(std::vector<std::byte>(6));
    writer.commit();
    return true;
  }();
  static_cast<void>(is_written);
  return dir;
}

// Reads all elements, so that sanitizers see what is read and that all of them are written.
void read_whole(const StoredTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  if (tensor.type->dtype != DType::kF32 || count > 1000) return;
  constexpr float kUnread = -7;  // a value that the data file, which has zeros, does not contain
  std::vector<float> values(static_cast<size_t>(count), kUnread);
  read_box(tensor, std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape,
           {values.data(), DType::kF32, dense_strides(tensor.shape)});
  for (const float value : values) fuzz::require(value != kUnread, "parts cover their tensor");
}

}  // namespace
}  // namespace shale

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  if (size == 0) return 0;
  static_cast<void>(folder().write(kDcpMetadata, fuzz::text_of(data, size)));
  fuzz::accepts<Error>([&] {
    const StoredTensors files(folder().path().string());
    for (const auto& [name, tensor] : files.tensors()) read_whole(tensor);
  });
  return 0;
}
