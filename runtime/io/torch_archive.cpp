#include "shale/runtime/io/torch_archive.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/io/zip_archive.h"

namespace shale {
namespace {

constexpr TorchTypeName kTorchTypes[] = {
    {"torch.float32", "F32", "torch.FloatStorage"},
    {"torch.float16", "F16", "torch.HalfStorage"},
    {"torch.bfloat16", "BF16", "torch.BFloat16Storage"},
    {"torch.float64", "F64", "torch.DoubleStorage"},
    {"torch.int64", "I64", "torch.LongStorage"},
    {"torch.int32", "I32", "torch.IntStorage"},
    {"torch.int16", "I16", "torch.ShortStorage"},
    {"torch.int8", "I8", "torch.CharStorage"},
    {"torch.uint8", "U8", "torch.ByteStorage"},
    {"torch.bool", "BOOL", "torch.BoolStorage"},
    {"torch.complex64", "C64", "torch.ComplexFloatStorage"},
    {"torch.uint16", "U16", ""},
    {"torch.uint32", "U32", ""},
    {"torch.uint64", "U64", ""},
    {"torch.float8_e4m3fn", "F8_E4M3", ""},
    {"torch.float8_e5m2", "F8_E5M2", ""},
    {"torch.float8_e4m3fnuz", "F8_E4M3FNUZ", ""},
    {"torch.float8_e5m2fnuz", "F8_E5M2FNUZ", ""},
    {"torch.float8_e8m0fnu", "F8_E8M0", ""},
};

constexpr std::string_view kUntyped = "torch.storage.UntypedStorage";
constexpr std::string_view kTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kTensorOfDtype = "torch._utils._rebuild_tensor_v3";
constexpr std::string_view kParameter = "torch._utils._rebuild_parameter";

bool may_name(std::string_view name) {
  constexpr std::string_view kOthers[] = {
      kUntyped,
      kTensor,
      kTensorOfDtype,
      kParameter,
      "torch.Size",
      "torch.device",
      "collections.OrderedDict",
      "argparse.Namespace"};  // options that training programs store beside the weights
  return std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers) ||
         find_torch_dtype(name) != nullptr;
}

constexpr PickleRules kRules{.may_name = may_name,
                             .advice =
                                 "save the weights alone: torch.save(model.state_dict(), "
                                 "FILE)"};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Throws unless all elements are inside the storage. begin: offset of the first element, in
// elements.
void check_extent(const TorchTensor& tensor, int64_t begin, int64_t storage_bytes,
                  const PickleValue& value) {
  const int64_t size = tensor.type->bits / 8;
  int64_t last = begin;
  bool fits = begin >= 0 && tensor.shape.size() == tensor.strides.size() &&
              std::ssize(tensor.shape) <= kMaxSafetensorsRank;
  bool is_empty = false;
  for (size_t d = 0; fits && d < tensor.shape.size(); ++d) {
    int64_t span = 0;
    is_empty |= tensor.shape[d] == 0;
    fits = tensor.shape[d] >= 0 && tensor.strides[d] >= 0 &&
           (tensor.shape[d] == 0 ||
            (!__builtin_mul_overflow(tensor.shape[d] - 1, tensor.strides[d], &span) &&
             !__builtin_add_overflow(last, span, &last)));
  }
  fits = fits && safetensors_bytes(*tensor.type, tensor.shape).has_value();
  // `begin` may be at most the end of the storage, also for an empty tensor
  fits = fits && begin <= storage_bytes / size;
  if (!is_empty) fits = fits && last < storage_bytes / size;
  if (!fits)
    value.fail("a tensor that exceeds its storage", "a shape, strides and offset within it");
}

}  // namespace

const SafetensorsDType* find_torch_dtype(std::string_view name) {
  for (const TorchTypeName& type : kTorchTypes) {
    if (name == type.dtype || (!type.storage.empty() && name == type.storage)) {
      return find_safetensors_dtype(type.type);
    }
  }
  return nullptr;
}

const TorchTypeName& torch_type_name(const SafetensorsDType& type) {
  for (const TorchTypeName& known : kTorchTypes) {
    if (known.type == type.name) return known;
  }
  throw DTypeError(cat("torch: there is no element type for ", type.name));
}

bool TorchArchive::starts(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  // A safetensors file may begin with the same bytes, as the length of its header. Its header then
  // follows, and begins with '{'.
  if (text.size() > 8 && text[8] == '{') return false;
  return text.starts_with("PK\x03\x04") || text.starts_with("\x80\x02");
}

TorchArchive::TorchArchive(std::span<const std::byte> bytes, std::string source)
    : source_(std::move(source)) {
  if (text_of(bytes).starts_with("PK")) {
    read_zip_archive(bytes);
  } else {
    read_pickles(bytes);
  }
}

void TorchArchive::fail(std::string_view problem) const {
  throw DataError(cat(source_, ": ", problem));
}

// Lists the storages that the object refers to. A reference is ("storage", class, key, device,
// number of elements).
void TorchArchive::add_storages() {
  for (const PickleValue& reference : object_->references()) {
    const PickleValue id = reference.reference();
    if (!id.is(PickleKind::kTuple) || id.size() < 5 || id.at(0).text() != "storage" ||
        (id.size() > 5 && !id.at(5).is(PickleKind::kNone))) {
      id.fail("a reference", "a storage");
    }
    const std::string_view name = id.at(1).name();
    const SafetensorsDType* type = name == kUntyped ? nullptr : find_torch_dtype(name);
    if (name != kUntyped && (type == nullptr || !name.ends_with("Storage"))) {
      id.at(1).fail("the class of a storage", "a name such as FloatStorage");
    }
    Storage storage{.type = type, .bytes = id.at(4).integer()};
    if (storage.bytes < 0 ||
        (type != nullptr &&
         __builtin_mul_overflow(storage.bytes, type->bits / 8, &storage.bytes))) {
      id.at(4).fail("a storage's size", "0 or more elements that fit into 64 bits");
    }
    const auto [it, is_new] = storages_.try_emplace(std::string(id.at(2).text()), storage);
    if (!is_new && (it->second.type != type || it->second.bytes != storage.bytes)) {
      fail(cat("storage '", excerpt(it->first), "' has two types or sizes"));
    }
  }
}

void TorchArchive::read_zip_archive(std::span<const std::byte> bytes) {
  const ZipMembers members = read_zip(bytes, source_);
  constexpr std::string_view kPickle = "/data.pkl";
  // All members are in one folder. It has the name that the file had when it was first written.
  const auto is_pickle = [&](const auto& member) {
    return member.first.ends_with(kPickle) &&
           member.first.find('/') + kPickle.size() == member.first.size();
  };
  const auto pickle = std::find_if(members.begin(), members.end(), is_pickle);
  if (pickle == members.end()) fail("a zip archive without data.pkl, so not of torch.save");
  const std::string folder = pickle->first.substr(0, pickle->first.find('/') + 1);
  const auto order = members.find(folder + "byteorder");
  if (order != members.end() && text_of(order->second) != "little") {
    fail(cat("byte order is '", excerpt(text_of(order->second)), "', expected 'little'"));
  }
  object_ = std::make_unique<Pickle>(text_of(pickle->second), kRules, source_);
  add_storages();
  for (auto& [key, storage] : storages_) {
    const auto data = members.find(cat(folder, "data/", key));
    if (data == members.end()) fail(cat("storage '", excerpt(key), "' is missing"));
    if (std::ssize(data->second) != storage.bytes) {
      fail(cat("storage '", excerpt(key), "' has ", data->second.size(), " bytes, expected ",
               storage.bytes));
    }
    storage.data = data->second.data();
  }
}

// Reads the format before PyTorch 1.6. It consists of five pickles (a magic number, a version,
// facts about the machine, the object, the list of storage keys), then the number of elements and
// the bytes of each storage.
void TorchArchive::read_pickles(std::span<const std::byte> bytes) {
  std::string_view text = text_of(bytes);
  const auto next = [&] {
    auto pickle = std::make_unique<Pickle>(text, kRules, source_);
    text.remove_prefix(pickle->bytes());
    return pickle;
  };
  // Pickle of torch.save's magic number, an integer of 10 bytes.
  constexpr std::string_view kMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
                                    15);
  constexpr int64_t kVersion = 1001;
  if (!text.starts_with(kMagic)) fail("a pickle, but not of torch.save");
  text.remove_prefix(kMagic.size());
  if (next()->root().integer() != kVersion) fail("an unknown version of torch.save");
  if (!next()->root().get("little_endian").flag()) fail("big-endian data, expected little-endian");
  object_ = next();
  add_storages();
  const auto keys = next();
  for (size_t i = 0; i < keys->root().size(); ++i) {
    const auto it = storages_.find(keys->root().at(i).text());
    if (it == storages_.end()) fail("a storage that no tensor uses, expected none");
    Storage& storage = it->second;
    const int64_t size = storage.type == nullptr ? 1 : storage.type->bits / 8;
    int64_t elements = 0;
    if (text.size() < sizeof elements) fail("a storage is cut off");
    std::memcpy(&elements, text.data(), sizeof elements);
    text.remove_prefix(sizeof elements);
    if (elements != storage.bytes / size || std::ssize(text) < storage.bytes) {
      fail(cat("storage '", excerpt(it->first), "' has ", elements, " elements and ", text.size(),
               " bytes follow, expected ", storage.bytes, " bytes"));
    }
    storage.data = reinterpret_cast<const std::byte*>(text.data());
    text.remove_prefix(static_cast<size_t>(storage.bytes));
  }
  for (const auto& [key, storage] : storages_) {
    if (storage.data == nullptr) fail(cat("storage '", excerpt(key), "' is missing"));
  }
}

const TorchArchive::Storage& TorchArchive::storage(const PickleValue& reference) const {
  if (!reference.is(PickleKind::kPersistent)) reference.fail("a tensor's storage", "a storage");
  return storages_.find(reference.reference().at(2).text())->second;
}

std::optional<TorchTensor> TorchArchive::tensor(const PickleValue& value) const {
  if (value.is_object_of(kParameter) && value.size() >= 1 &&
      !value.at(0).is_object_of(kParameter)) {
    return tensor(value.at(0));
  }
  const bool has_dtype = value.is_object_of(kTensorOfDtype);
  if (!has_dtype && !value.is_object_of(kTensor)) return std::nullopt;
  const Storage& from = storage(value.at(0));
  TorchTensor tensor{.type = has_dtype ? find_torch_dtype(value.at(6).name()) : from.type,
                     .shape = value.at(2).integers(),
                     .strides = value.at(3).integers()};
  if (tensor.type == nullptr) value.fail("a tensor without a dtype", "one with a dtype");
  // Index of the argument that says that elements are to be negated or conjugated.
  const size_t flags = has_dtype ? 7 : 6;
  if (value.size() > flags && !value.at(flags).is(PickleKind::kNone) &&
      value.at(flags).size() > 0) {
    value.fail("a tensor with lazy negation or conjugation",
               "one after resolve_neg() and resolve_conj()");
  }
  const int64_t begin = value.at(1).integer();
  check_extent(tensor, begin, from.bytes, value);
  tensor.data = from.data + begin * (tensor.type->bits / 8);
  return tensor;
}

}  // namespace shale
