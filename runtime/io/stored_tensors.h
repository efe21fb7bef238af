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

// True for keys below which training programs put the tensors of a model: "model", "state_dict",
// "model_state_dict".
bool is_key_of_model(std::string_view key);

// Elements of a rectangular part of a tensor, in memory with any alignment.
struct StridedElements {
  const std::byte* data = nullptr;
  std::vector<int64_t> strides;  // in elements
};

// A rectangular part of a stored tensor.
struct StoredPart {
  const MappedFile* file = nullptr;
  std::vector<int64_t> begin;  // in the tensor
  std::vector<int64_t> shape;
  StridedElements elements = {};
  // Data of torch.save with this part as its only tensor, for locate(); empty: see `elements`.
  std::span<const std::byte> archive = {};

  // Throws DataError if the archive is malformed or has another tensor than expected.
  StridedElements locate(const SafetensorsDType& type, std::string_view name) const;
};

// A tensor of a stored model. Its parts cover it without overlap.
struct StoredTensor {
  std::string name;
  const SafetensorsDType* type = nullptr;
  std::vector<int64_t> shape;
  std::vector<StoredPart> parts;

  // Path of the first file with data, for messages.
  const std::string& path() const { return parts.empty() ? name : parts.front().file->path(); }
  std::string description() const;  // "F32[4,768]"
};

// Destination of read_box(): elements in f32, bf16 or f16, in host memory.
struct BoxTarget {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<int64_t> strides;  // in elements, one for each dimension of the tensor
};
// Copies the elements [begin, begin + sizes) of a tensor of F32, BF16 or F16, converted as
// io_internal::convert() does. Throws DataError as StoredPart::locate(), and if the file became
// unreadable.
void read_box(const StoredTensor& tensor, const std::vector<int64_t>& begin,
              const std::vector<int64_t>& sizes, const BoxTarget& target);

// The tensors of a model, by name, from files that are mapped while this object lives.
class StoredTensors {
 public:
  StoredTensors() = default;
  // Opens a file or folder:
  //   safetensors                as SafetensorsFolder does
  //   torch.save                 .pt, .pth, .bin; the tensors of its dict, or of the dict below
  //                              `preferred_key`, else below a key of a model
  //   a folder                   model.safetensors or its index; else pytorch_model.bin or its
  //                              index, model.pth, consolidated.00.pth; else the .metadata of
  //                              torch.distributed.checkpoint
  // Prefixes that wrappers add to names, such as "_orig_mod.", are left out. Throws
  // MissingInputError, DataError.
  explicit StoredTensors(const std::string& path, std::string_view preferred_key = {});

  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  // null if not found

  // Keeps a file mapped.
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
