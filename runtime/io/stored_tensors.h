#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/dtype.h"
#include "shale/runtime/io/mapped_file.h"
#include "shale/runtime/io/safetensors.h"
#include "shale/runtime/io/safetensors_format.h"

namespace shale {

// Strides of a dense row-major tensor, in elements.
std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape);

// True for keys under which training programs store the dict of a model's tensors: "model",
// "state_dict", "model_state_dict".
bool is_key_of_model(std::string_view key);

// Elements of a rectangular part of a tensor in memory, possibly unaligned.
struct StridedElements {
  const std::byte* data = nullptr;
  std::vector<int64_t> strides;  // strides in elements
};

// A rectangular part of a stored tensor.
struct StoredPart {
  const MappedFile* file = nullptr;
  std::vector<int64_t> begin;  // index of the part's first element in the tensor
  std::vector<int64_t> shape;
  StridedElements elements = {};
  // The part in the format of torch.save, as its only tensor, to be read by locate(). Empty: the
  // part is in `elements`.
  std::span<const std::byte> archive = {};

  // Returns the elements, from `archive` if necessary. Throws DataError if the archive is malformed
  // or has another tensor than expected.
  StridedElements locate(const SafetensorsDType& type, std::string_view name) const;
};

// A tensor of a stored model. Its parts cover it completely and do not overlap.
struct StoredTensor {
  std::string name;
  const SafetensorsDType* type = nullptr;
  std::vector<int64_t> shape;
  std::vector<StoredPart> parts;

  // Path of the first file with data, for messages.
  const std::string& path() const { return parts.empty() ? name : parts.front().file->path(); }
  std::string description() const;  // returns a text such as "F32[4,768]"
};

// Destination of read_box(): elements in f32, bf16 or f16, in host memory.
struct BoxTarget {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<int64_t> strides;  // strides in elements, one for each dimension of the tensor
};
// Copies the elements [begin, begin + sizes) of a tensor of type F32, BF16 or F16, and converts
// them like io_internal::convert(). Throws DataError like StoredPart::locate(), and if the file
// became unreadable.
void read_box(const StoredTensor& tensor, const std::vector<int64_t>& begin,
              const std::vector<int64_t>& sizes, const BoxTarget& target);

// The tensors of a model, by name. Their files stay mapped while this object lives.
class StoredTensors {
 public:
  StoredTensors() = default;
  // Opens a file or a folder.
  //
  // - A safetensors file is opened like SafetensorsFolder does.
  // - In a file of torch.save (.pt, .pth, .bin), the tensors are in the dict below `preferred_key`,
  //   else below a key for which is_key_of_model() is true, else in the outermost dict.
  // - In a folder, the first of these that exists is opened: model.safetensors or its index;
  //   pytorch_model.bin or its index; model.pth; consolidated.00.pth; the .metadata of
  //   torch.distributed.checkpoint.
  //
  // Prefixes that wrappers add to names, such as "_orig_mod.", are removed. Throws
  // MissingInputError, DataError.
  explicit StoredTensors(const std::string& path, std::string_view preferred_key = {});

  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  // returns null if there is no such tensor

  // Maps a file; it stays mapped while this object lives.
  const MappedFile& map(const std::string& path);
  // Throws DataError if the name is taken.
  void add(StoredTensor tensor);

 private:
  void add_folder(const std::string& folder);
  void add_safetensors(const std::string& path);
  void add_torch_file(const std::string& path, std::string_view preferred_key = {});
  void add_torch_index(const std::string& folder, const std::string& index_path);

  std::unique_ptr<SafetensorsFolder> safetensors_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

}  // namespace shale
