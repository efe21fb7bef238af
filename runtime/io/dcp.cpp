#include "shale/runtime/io/dcp.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/io/file.h"
#include "shale/runtime/io/pickle.h"
#include "shale/runtime/io/torch_archive.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMetadataClass = "torch.distributed.checkpoint.metadata.Metadata";
constexpr std::string_view kTensorClass =
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata";
constexpr std::string_view kBytesClass =
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata";
// maximum number of parts of a tensor; all pairs of parts are compared
constexpr int64_t kMaxParts = 8192;

// Returns true for classes that PyTorch 2.0 to 2.15 write into .metadata.
bool is_known_class(std::string_view name) {
  constexpr std::string_view kNames[] = {
      kMetadataClass,
      kTensorClass,
      kBytesClass,
      "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
      "torch.distributed.checkpoint.metadata.TensorProperties",
      "torch.distributed.checkpoint.metadata.MetadataIndex",
      "torch.distributed.checkpoint.metadata.StorageMeta",
      "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
      "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
      "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
      "torch.distributed.checkpoint.filesystem._StorageInfo",
      "torch.serialization._get_layout",
      "torch.Size",
      "pathlib.PosixPath",
      "pathlib._local.PosixPath",
      "collections.OrderedDict"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         find_torch_dtype(name) != nullptr;
}

// Byte range of a file that holds a part of a tensor.
struct Slice {
  std::string file;
  int64_t begin = 0;
  int64_t bytes = 0;
};
// key: name of the tensor, offset of the part in it
using Slices = std::map<std::pair<std::string_view, std::vector<int64_t>>, Slice>;

Slices slices_of(const PickleValue& storage_data) {
  Slices slices;
  for (size_t i = 0; i < storage_data.size(); ++i) {
    const PickleValue index = storage_data.key(i).state(), place = storage_data.at(i).state();
    const auto offset = index.find("offset");
    if (!offset || offset->is(PickleKind::kNone)) continue;  // the entry is not a tensor
    const auto transforms = place.find("transform_descriptors");
    if (transforms && !transforms->is(PickleKind::kNone)) {
      transforms->fail("transform_descriptors", "None: parts that are not compressed");
    }
    Slice slice{std::string(place.get("relative_path").text()), place.get("offset").integer(),
                place.get("length").integer()};
    if (!is_plain_file_name(slice.file)) {
      place.fail(cat("relative_path '", excerpt(slice.file), "'"),
                 "a file name of letters, digits, '_', '.' and '-'");
    }
    slices[{index.get("fqn").text(), offset->integers()}] = std::move(slice);
  }
  return slices;
}

std::optional<int64_t> volume_of(const std::vector<int64_t>& shape) {
  return safetensors_bytes(*find_safetensors_dtype("U8"), shape);
}

bool overlap(const StoredPart& a, const StoredPart& b) {
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (a.begin[d] + a.shape[d] <= b.begin[d] || b.begin[d] + b.shape[d] <= a.begin[d]) {
      return false;
    }
  }
  return true;
}

class Reader {
 public:
  Reader(const std::string& folder, StoredTensors& tensors) : folder_(folder), tensors_(tensors) {}

  void read(const PickleValue& root) {
    if (!root.is_object_of(kMetadataClass)) root.fail("the content", kMetadataClass);
    const PickleValue metadata = root.state();
    slices_ = slices_of(metadata.get("storage_data"));
    read_paths(metadata);
    const PickleValue entries = metadata.get("state_dict_metadata");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries.at(i).is_object_of(kBytesClass)) continue;
      if (!entries.at(i).is_object_of(kTensorClass))
        entries.at(i).fail("an entry", "a tensor or bytes");
      const std::string_view key = entries.key(i).text();
      if (const auto name = name_of(key)) add_tensor(*name, key, entries.at(i).state());
    }
  }

 private:
  [[noreturn]] void fail(std::string_view name, std::string_view problem) const {
    throw DataError(cat((fs::path(folder_) / kDcpMetadata).string(), ": tensor '", excerpt(name),
                        "' ", problem));
  }

  // Reads planner_data. It maps the key of each entry to the path of keys, in nested dicts, that
  // was joined to make it.
  void read_paths(const PickleValue& metadata) {
    const auto paths = metadata.find("planner_data");
    if (!paths || !paths->is(PickleKind::kDict)) return;
    for (size_t i = 0; i < paths->size(); ++i) {
      const PickleValue path = paths->at(i);
      if (!path.is(PickleKind::kTuple) || path.size() == 0) path.fail("a path", "a tuple of keys");
      paths_.emplace(paths->key(i).text(), path);
      if (path.size() < 2 || !path.at(0).is(PickleKind::kString)) continue;
      const std::string_view first = path.at(0).text();
      if (is_key_of_model(first) && model_key_.empty()) model_key_ = first;
    }
  }

  // Returns the model's name of a tensor: the key without the prefix of the model's dict, if the
  // model is in a dict of its own. Returns nullopt for an entry that is not the model's, such as an
  // optimizer state.
  std::optional<std::string> name_of(std::string_view key) const {
    const auto it = paths_.find(key);
    if (it == paths_.end()) return std::string(key);
    const PickleValue& path = it->second;
    if (model_key_.empty() ? path.size() > 1 : path.at(0).text() != model_key_) return std::nullopt;
    std::string_view name = key;
    if (!model_key_.empty()) name.remove_prefix(std::min(name.size(), model_key_.size() + 1));
    return std::string(name);
  }

  void add_tensor(const std::string& name, std::string_view key, const PickleValue& entry) {
    const PickleValue properties = entry.get("properties").state();
    const PickleValue dtype =
        properties.is(PickleKind::kDict) ? properties.get("dtype") : properties.at(0);
    StoredTensor tensor{name, find_torch_dtype(dtype.name()), entry.get("size").integers(), {}};
    if (tensor.type == nullptr) fail(name, "has no dtype");
    if (std::ssize(tensor.shape) > kMaxSafetensorsRank) {
      fail(name,
           cat("has ", tensor.shape.size(), " dimensions, expected at most ", kMaxSafetensorsRank));
    }
    const PickleValue chunks = entry.get("chunks");
    if (static_cast<int64_t>(chunks.size()) > kMaxParts) {
      fail(name, cat("has ", chunks.size(), " parts, expected at most ", kMaxParts));
    }
    for (size_t i = 0; i < chunks.size(); ++i) add_part(key, chunks.at(i).state(), tensor);
    check_cover(tensor);
    tensors_.add(std::move(tensor));
  }

  void add_part(std::string_view key, const PickleValue& chunk, StoredTensor& tensor) {
    StoredPart part{.begin = chunk.get("offsets").integers(),
                    .shape = chunk.get("sizes").integers()};
    const size_t dims = tensor.shape.size();
    bool fits = part.begin.size() == dims && part.shape.size() == dims;
    for (size_t d = 0; fits && d < dims; ++d) {
      fits = part.begin[d] >= 0 && part.shape[d] >= 0 && part.shape[d] <= tensor.shape[d] &&
             part.begin[d] <= tensor.shape[d] - part.shape[d];
    }
    if (!fits) fail(tensor.name, "has a part that exceeds the tensor's shape");
    if (std::find(part.shape.begin(), part.shape.end(), 0) != part.shape.end()) return;
    const auto it = slices_.find({key, part.begin});
    if (it == slices_.end()) fail(tensor.name, "has a part without an entry in storage_data");
    const Slice& slice = it->second;
    part.file = &file(slice.file);
    const auto bytes = part.file->bytes();
    if (slice.begin < 0 || slice.bytes < 0 || slice.begin > std::ssize(bytes) ||
        slice.bytes > std::ssize(bytes) - slice.begin) {
      fail(tensor.name, cat("has ", slice.bytes, " bytes at ", slice.begin, " of ", slice.file,
                            ", which has ", bytes.size(), " bytes"));
    }
    part.archive =
        bytes.subspan(static_cast<size_t>(slice.begin), static_cast<size_t>(slice.bytes));
    if (part.archive.empty()) fail(tensor.name, "has a part without data");
    tensor.parts.push_back(std::move(part));
  }

  void check_cover(const StoredTensor& tensor) const {
    const auto expected = volume_of(tensor.shape);
    if (!expected) fail(tensor.name, "has an impossible shape");
    int64_t found = 0;  // number of elements; cannot overflow, because the parts are disjoint
    for (size_t i = 0; i < tensor.parts.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (overlap(tensor.parts[i], tensor.parts[j])) fail(tensor.name, "has parts that overlap");
      }
      found += *volume_of(tensor.parts[i].shape);
    }
    if (found != *expected) {
      fail(tensor.name, cat("has parts of ", found, " elements, expected ", *expected));
    }
  }

  const MappedFile& file(const std::string& name) {
    const auto it = files_.find(name);
    if (it != files_.end()) return *it->second;
    const MappedFile& mapped = tensors_.map((fs::path(folder_) / name).string());
    files_[name] = &mapped;
    return mapped;
  }

  std::string folder_;
  StoredTensors& tensors_;
  Slices slices_;
  std::map<std::string_view, PickleValue> paths_;
  // key of the model in the outermost dict; empty: the outermost dict is the model
  std::string_view model_key_;
  std::map<std::string, const MappedFile*> files_;
};

}  // namespace

void add_dcp(const std::string& folder, StoredTensors& tensors) {
  const MappedFile file((fs::path(folder) / kDcpMetadata).string());
  const Pickle metadata(file.text(), {.may_name = is_known_class}, file.path());
  Reader(folder, tensors).read(metadata.root());
  file.check();
}

}  // namespace shale
