#include "shale/runtime/io/stored_tensors.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/io/convert_internal.h"
#include "shale/runtime/io/dcp.h"
#include "shale/runtime/io/safetensors_index.h"
#include "shale/runtime/io/torch_archive.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTorchIndex = "pytorch_model.bin.index.json";
constexpr const char* kTorchFiles[] = {"pytorch_model.bin", "model.pth", "consolidated.00.pth"};

// Removes prefixes that torch.compile, DistributedDataParallel and others add to parameter names.
std::string without_wrappers(std::string name) {
  constexpr std::string_view kWrappers[] = {"_orig_mod.", "_checkpoint_wrapped_module.",
                                            "_fsdp_wrapped_module."};
  for (const std::string_view wrapper : kWrappers) {
    for (size_t at = name.find(wrapper); at != name.npos; at = name.find(wrapper, at)) {
      name.erase(at, wrapper.size());
    }
  }
  constexpr std::string_view kReplica = "module.";
  return name.starts_with(kReplica) ? name.substr(kReplica.size()) : name;
}

constexpr std::string_view kModelKeys[] = {"model", "state_dict", "model_state_dict"};

// Returns the dict with the tensors of a file. It is the dict below `preferred_key`, else that
// below a key such as "model", else the outermost dict.
PickleValue state_dict_of(const PickleValue& root, std::string_view preferred_key) {
  if (!root.is(PickleKind::kDict)) root.fail("the content", "a dict of tensors by name");
  const auto below = [&](std::string_view key) {
    const auto inner = root.find(key);
    return inner && inner->is(PickleKind::kDict) ? inner : std::nullopt;
  };
  if (const auto inner = below(preferred_key)) return *inner;
  for (const std::string_view key : kModelKeys) {
    if (const auto inner = below(key)) return *inner;
  }
  return root;
}

}  // namespace

bool is_key_of_model(std::string_view key) {
  return std::find(std::begin(kModelKeys), std::end(kModelKeys), key) != std::end(kModelKeys);
}

std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

StridedElements StoredPart::locate(const SafetensorsDType& type, std::string_view name) const {
  if (archive.empty()) return elements;
  const TorchArchive data(archive, cat(file->path(), ": tensor '", excerpt(name), "'"));
  const auto tensor = data.tensor(data.root());
  if (!tensor) data.root().fail("the content", "a tensor");
  if (tensor->type != &type || tensor->shape != shape) {
    const SafetensorsEntry found{.name = {}, .type = tensor->type, .shape = tensor->shape};
    const SafetensorsEntry expected{.name = {}, .type = &type, .shape = shape};
    throw DataError(cat(file->path(), ": tensor '", excerpt(name), "' has a part ",
                        to_string(found), ", expected ", to_string(expected)));
  }
  return {tensor->data, tensor->strides};
}

std::string StoredTensor::description() const {
  return to_string(SafetensorsEntry{.name = {}, .type = type, .shape = shape});
}

void read_box(const StoredTensor& tensor, const std::vector<int64_t>& begin,
              const std::vector<int64_t>& sizes, const BoxTarget& target) {
  const DType dtype = *tensor.type->dtype;
  for (const StoredPart& part : tensor.parts) {
    std::vector<io_internal::CopyDim> dims;
    int64_t from = 0, to = 0;  // offsets in elements
    std::vector<int64_t> first;
    for (size_t d = 0; d < sizes.size(); ++d) {
      first.push_back(std::max(begin[d], part.begin[d]));
      const int64_t last = std::min(begin[d] + sizes[d], part.begin[d] + part.shape[d]);
      dims.push_back({std::max(last - first[d], int64_t{0}), 0, target.strides[d]});
      to += (first[d] - begin[d]) * target.strides[d];
    }
    if (std::any_of(dims.begin(), dims.end(), [](const auto& dim) { return dim.size == 0; })) {
      continue;
    }
    const StridedElements elements = part.locate(*tensor.type, tensor.name);
    for (size_t d = 0; d < dims.size(); ++d) {
      dims[d].source = elements.strides[d];
      from += (first[d] - part.begin[d]) * elements.strides[d];
    }
    io_internal::convert_strided(
        {elements.data + from * dtype_size(dtype), dtype},
        {static_cast<std::byte*>(target.data) + to * dtype_size(target.dtype), target.dtype},
        std::move(dims));
    part.file->check();
  }
}

StoredTensors::StoredTensors(const std::string& path, std::string_view preferred_key) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw MissingInputError(cat(
        path, ": no such file or folder; download the weights first: Shale does not download any"));
  }
  if (fs::is_directory(path, error)) {
    add_folder(path);
  } else if (TorchArchive::starts(MappedFile(path, {.allow_empty = true}).bytes())) {
    add_torch_file(path, preferred_key);
  } else {
    add_safetensors(path);
  }
}

void StoredTensors::add_folder(const std::string& folder) {
  std::error_code error;
  const auto path_of = [&](const char* name) { return (fs::path(folder) / name).string(); };
  const auto has = [&](const char* name) { return fs::exists(path_of(name), error); };
  const auto torch_file = std::find_if(std::begin(kTorchFiles), std::end(kTorchFiles), has);
  if (has(kSafetensorsSingleFile) || has(kSafetensorsIndexFile)) {
    add_safetensors(folder);
  } else if (has(kTorchIndex)) {
    add_torch_index(folder, path_of(kTorchIndex));
  } else if (torch_file != std::end(kTorchFiles)) {
    add_torch_file(path_of(*torch_file));
  } else if (has(kDcpMetadata)) {
    add_dcp(folder, *this);
  } else {
    throw MissingInputError(cat(folder, ": no weights found, expected ", kSafetensorsSingleFile,
                                ", ", kSafetensorsIndexFile, ", pytorch_model.bin, ", kTorchIndex,
                                ", or the ", kDcpMetadata, " of torch.distributed.checkpoint"));
  }
}

const StoredTensor* StoredTensors::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

const MappedFile& StoredTensors::map(const std::string& path) {
  return *files_.emplace_back(std::make_unique<MappedFile>(path));
}

void StoredTensors::add(StoredTensor tensor) {
  const std::string name = tensor.name;
  const auto [it, is_new] = tensors_.try_emplace(name, std::move(tensor));
  if (!is_new) {
    throw DataError(cat(it->second.path(), ": tensor '", excerpt(name), "' appears twice"));
  }
}

void StoredTensors::add_safetensors(const std::string& path) {
  safetensors_ = std::make_unique<SafetensorsFolder>(path);
  for (const auto& [name, tensor] : safetensors_->tensors()) {
    const std::vector<int64_t>& shape = tensor.entry->shape;
    StoredPart part{.file = &tensor.file->file(),
                    .begin = std::vector<int64_t>(shape.size(), 0),
                    .shape = shape,
                    .elements = {tensor.bytes().data(), dense_strides(shape)}};
    add({name, tensor.entry->type, shape, {std::move(part)}});
  }
}

void StoredTensors::add_torch_file(const std::string& path, std::string_view preferred_key) {
  const MappedFile& file = map(path);
  const TorchArchive archive(file.bytes(), path);
  const PickleValue tensors = state_dict_of(archive.root(), preferred_key);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto tensor = archive.tensor(tensors.at(i));
    if (!tensor || !tensors.key(i).is(PickleKind::kString)) continue;
    StoredPart part{.file = &file,
                    .begin = std::vector<int64_t>(tensor->shape.size(), 0),
                    .shape = tensor->shape,
                    .elements = {tensor->data, tensor->strides}};
    add({without_wrappers(std::string(tensors.key(i).text())),
         tensor->type,
         tensor->shape,
         {std::move(part)}});
  }
  file.check();
}

void StoredTensors::add_torch_index(const std::string& folder, const std::string& index_path) {
  const MappedFile index(index_path, {.allow_empty = true});
  std::set<std::string> files;
  for (const auto& [tensor, file] : parse_safetensors_index(index.text(), index_path)) {
    files.insert(file);
  }
  index.check();
  for (const std::string& file : files) add_torch_file((fs::path(folder) / file).string());
}

}  // namespace shale
