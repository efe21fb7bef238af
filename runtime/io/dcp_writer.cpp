#include "shale/runtime/io/dcp_writer.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/io/dcp.h"
#include "shale/runtime/io/file.h"
#include "shale/runtime/io/safetensors_index.h"
#include "shale/runtime/io/stored_tensors.h"
#include "shale/runtime/io/torch_archive.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDataFile = "__0_0.distcp";
constexpr const char* kClasses = "torch.distributed.checkpoint.metadata";
constexpr uint64_t kDataAlignment = 64;  // alignment of a tensor's data, as in torch.save

// Writes a pickle of protocol 2 without using the memo.
class PickleWriter {
 public:
  PickleWriter& op(std::string_view bytes) {
    text_ += bytes;
    return *this;
  }
  PickleWriter& none() { return op("N"); }
  PickleWriter& no() { return op("\x89"); }
  PickleWriter& mark() { return op("("); }
  PickleWriter& tuple() { return op("t"); }  // makes a tuple of the values since mark()
  PickleWriter& text(std::string_view value) {
    return op("X").number(static_cast<uint32_t>(value.size())).op(value);
  }
  PickleWriter& integer(int64_t value) { return op("\x8a\x08").number(value); }
  PickleWriter& global(std::string_view module, std::string_view name) {
    return op("c").op(module).op("\n").op(name).op("\n");
  }
  PickleWriter& integers(const std::vector<int64_t>& values) {
    mark();
    for (const int64_t value : values) integer(value);
    return tuple();
  }
  PickleWriter& size(const std::vector<int64_t>& values) {  // writes a torch.Size
    return global("torch", "Size").integers(values).op("\x85R");
  }
  // Begins an object. Its state is a dict of the values up to end_object().
  PickleWriter& object(std::string_view module, std::string_view name) {
    return global(module, name).op(")\x81}(");
  }
  PickleWriter& end_object() { return op("ub"); }
  std::string finish() { return "\x80\x02" + std::move(text_) + "."; }

 private:
  template <typename T>
  PickleWriter& number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  std::string text_;
};

std::string_view after_dot(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

std::string tensor_pickle(const SafetensorsSpec& spec) {
  const TorchTypeName type = torch_type_name(safetensors_dtype(spec.dtype));
  int64_t elements = 1;
  for (const int64_t size : spec.shape) elements *= size;
  PickleWriter pickle;
  pickle.global("torch._utils", "_rebuild_tensor_v2").mark();
  pickle.mark().text("storage").global("torch", after_dot(type.storage));
  pickle.text("0").text("cpu").integer(elements).tuple().op("Q");
  pickle.integer(0).integers(spec.shape).integers(dense_strides(spec.shape)).no();
  pickle.global("collections", "OrderedDict").op(")R").tuple().op("R");
  return pickle.finish();
}

void add_tensor_metadata(PickleWriter& pickle, const SafetensorsSpec& spec) {
  const std::vector<int64_t> origin(spec.shape.size(), 0);
  pickle.object(kClasses, "TensorStorageMetadata").text("properties");
  pickle.global(kClasses, "TensorProperties").op(")\x81").mark();
  pickle.global("torch", after_dot(torch_type_name(safetensors_dtype(spec.dtype)).dtype));
  pickle.global("torch.serialization", "_get_layout").text("torch.strided").op("\x85R").no();
  pickle.global(kClasses, "_MEM_FORMAT_ENCODING").integer(0).op("\x85R").no();
  pickle.tuple().op("b");
  pickle.text("size").size(spec.shape).text("chunks").op("]");
  pickle.object(kClasses, "ChunkStorageMetadata").text("offsets").size(origin);
  pickle.text("sizes").size(spec.shape).end_object().op("a").end_object();
}

}  // namespace

DcpWriter::DcpWriter(std::string folder, std::vector<SafetensorsSpec> tensors,
                     std::map<std::string, std::string> aliases)
    : folder_(std::move(folder)),
      tensors_(std::move(tensors)),
      aliases_(std::move(aliases)),
      file_((Folder::make(folder_), (fs::path(folder_) / kDataFile).string())) {
  check_safetensors_specs(tensors_);
  const Folder opened = Folder::open(folder_);
  for (const char* name : {kSafetensorsSingleFile, kSafetensorsIndexFile}) {
    if (!opened.has(name)) continue;
    throw ConfigError(cat(folder_, ": already has a model in ", name, "; use another folder"));
  }
  for (const SafetensorsSpec& spec : tensors_) {
    Place place{.begin = file_bytes_};
    ZipLayout& zip = place.zip;
    place.front = zip.add("archive/data.pkl", tensor_pickle(spec));
    place.front += zip.add("archive/byteorder", "little");
    place.front += zip.add("archive/version", "3\n");
    place.front +=
        zip.add_header("archive/data/0", static_cast<uint64_t>(spec.bytes()), kDataAlignment);
    place.bytes = static_cast<int64_t>(zip.bytes() + zip.directory().size());
    file_bytes_ += place.bytes;
    places_.push_back(std::move(place));
  }
  file_.reserve(file_bytes_);
  start_tensors();
}

// Writes the bytes before the current tensor's data. Completes tensors without elements.
void DcpWriter::start_tensors() {
  for (; current_ < tensors_.size(); end_tensor()) {
    file_.write_at(places_[current_].begin, std::as_bytes(std::span(places_[current_].front)));
    if (tensors_[current_].bytes() > 0) return;
  }
}

void DcpWriter::end_tensor() {
  Place& place = places_[current_];
  const auto crc_at = static_cast<int64_t>(place.zip.set_crc(crc_));
  file_.write_at(place.begin + crc_at, std::as_bytes(std::span(&crc_, 1)));
  const std::string directory = place.zip.directory();
  file_.write_at(place.begin + static_cast<int64_t>(place.zip.bytes()),
                 std::as_bytes(std::span(directory)));
  ++current_;
  written_ = 0, crc_ = 0;
}

void DcpWriter::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const int64_t left = current_ < tensors_.size() ? tensors_[current_].bytes() - written_ : 0;
  if (std::ssize(bytes) > left) {
    throw InternalError(cat(file_.path(), ": write of ", bytes.size(), " bytes, expected at most ",
                            left, ", the rest of the tensor"));
  }
  const Place& place = places_[current_];
  file_.write_at(place.begin + std::ssize(place.front) + written_, bytes);
  crc_ = zip_crc32(bytes, crc_);
  written_ += std::ssize(bytes);
  if (written_ < tensors_[current_].bytes()) return;
  end_tensor();
  start_tensors();
}

void DcpWriter::finish() {
  if (current_ < tensors_.size()) {
    throw InternalError(cat(file_.path(), ": tensor '", tensors_[current_].name, "' has only ",
                            written_, " of its ", tensors_[current_].bytes(), " bytes"));
  }
  file_.finish(file_bytes_);
}

// A folder without .metadata is not a checkpoint. So readers find the old checkpoint, the new one,
// or none.
void DcpWriter::commit() {
  finish();
  const Folder folder = Folder::open(folder_);
  if (folder.has(kDcpMetadata)) {
    folder.remove_file(kDcpMetadata);
    folder.sync();
  }
  file_.commit(file_bytes_);
  write_file_atomically((fs::path(folder_) / kDcpMetadata).string(), metadata());
}

// Returns the pickle of a Metadata object. For each name it has the tensor's sizes, its path in the
// state dict, and its place in the file.
std::string DcpWriter::metadata() const {
  std::vector<std::pair<std::string_view, size_t>> entries;  // name, index of the tensor
  for (size_t i = 0; i < tensors_.size(); ++i) entries.emplace_back(tensors_[i].name, i);
  for (const auto& [alias, name] : aliases_) {
    const auto is_it = [&](const SafetensorsSpec& spec) { return spec.name == name; };
    const auto it = std::find_if(tensors_.begin(), tensors_.end(), is_it);
    if (it == tensors_.end()) throw InternalError(cat("dcp: there is no tensor '", name, "'"));
    entries.emplace_back(alias, it - tensors_.begin());
  }
  PickleWriter pickle;
  pickle.object(kClasses, "Metadata").text("state_dict_metadata").op("}(");
  for (const auto& [name, i] : entries) add_tensor_metadata(pickle.text(name), tensors_[i]);
  pickle.op("u").text("planner_data").op("}(");
  for (const auto& [name, i] : entries) pickle.text(name).mark().text(name).tuple();
  pickle.op("u").text("storage_data").op("}(");
  for (const auto& [name, i] : entries) {
    pickle.object(kClasses, "MetadataIndex").text("fqn").text(name).text("offset");
    pickle.size(std::vector<int64_t>(tensors_[i].shape.size(), 0)).text("index").integer(0);
    pickle.end_object().object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
    pickle.text("relative_path").text(kDataFile).text("offset").integer(places_[i].begin);
    pickle.text("length").integer(places_[i].bytes).end_object();
  }
  pickle.op("u").text("storage_meta").none().text("version").text("1.0.0").end_object();
  return pickle.finish();
}

}  // namespace shale
