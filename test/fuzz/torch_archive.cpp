#include "shale/runtime/io/torch_archive.h"

#include <algorithm>

#include "shale/test/fuzz/fuzz.h"

namespace shale {
namespace {

// Checks that all elements of a tensor are inside the input.
void check_place(const TorchTensor& tensor, std::span<const std::byte> file) {
  fuzz::require(tensor.type != nullptr && tensor.shape.size() == tensor.strides.size(),
                "a tensor has a type, and a stride for each dimension");
  if (std::count(tensor.shape.begin(), tensor.shape.end(), 0) > 0) return;
  int64_t last = 0;
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    fuzz::require(tensor.shape[d] > 0 && tensor.strides[d] >= 0, "sizes and strides count up");
    last += (tensor.shape[d] - 1) * tensor.strides[d];
  }
  const int64_t begin = tensor.data - file.data();
  fuzz::require(begin >= 0 && begin + (last + 1) * tensor.type->bits / 8 <= std::ssize(file),
                "a tensor is inside its file");
}

}  // namespace
}  // namespace shale

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  fuzz::accepts<DataError>([&] {
    const TorchArchive archive(file, "x.pt");
    if (!archive.root().is(PickleKind::kDict)) return;
    for (size_t i = 0; i < archive.root().size(); ++i) {
      const auto tensor = archive.tensor(archive.root().at(i));
      if (tensor) check_place(*tensor, file);
    }
  });
  return 0;
}
