#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/io/pickle.h"
#include "shale/runtime/io/safetensors_format.h"

namespace shale {

// A tensor in memory. Its elements may be shared with other tensors.
struct TorchTensor {
  const SafetensorsDType* type = nullptr;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // strides in elements, 0 or more
  const std::byte* data = nullptr;
};

// A file of torch.save, by PyTorch 1.6 and later (a zip archive) or older (pickles, then storages).
// Nothing in it is executed.
class TorchArchive {
 public:
  // `bytes` must outlive this object. Throws DataError, which begins with `source`, for malformed
  // or big-endian data, for TorchScript, and for objects other than tensors, dicts, lists, texts
  // and numbers.
  TorchArchive(std::span<const std::byte> bytes, std::string source);

  // True if a file begins like data of torch.save.
  static bool starts(std::span<const std::byte> bytes);

  PickleValue root() const { return object_->root(); }
  // Returns nullopt if the value is not a tensor. Throws DataError if the tensor's storage is
  // missing or has another size than stated, or if the tensor exceeds it.
  std::optional<TorchTensor> tensor(const PickleValue& value) const;

 private:
  struct Storage {
    const SafetensorsDType* type = nullptr;  // null: untyped bytes
    int64_t bytes = 0;
    const std::byte* data = nullptr;
  };
  void read_zip_archive(std::span<const std::byte> bytes);
  void read_pickles(std::span<const std::byte> bytes);
  void add_storages();
  const Storage& storage(const PickleValue& reference) const;
  [[noreturn]] void fail(std::string_view problem) const;

  std::string source_;
  std::unique_ptr<Pickle> object_;
  std::map<std::string, Storage, std::less<>> storages_;  // storages by their keys in the file
};

// PyTorch's names of an element type. dtype: such as "torch.float32". storage: the class of its
// storages in files of torch.save, such as "torch.FloatStorage"; newer types have none.
struct TorchTypeName {
  std::string_view dtype, type, storage;  // type: safetensors' name
};
// Throws DTypeError if PyTorch has no such type.
const TorchTypeName& torch_type_name(const SafetensorsDType& type);
// Returns the element type of a name such as "torch.float32" or "torch.FloatStorage"; null if the
// name is unknown.
const SafetensorsDType* find_torch_dtype(std::string_view name);

}  // namespace shale
