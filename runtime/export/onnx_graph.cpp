#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <optional>
#include <set>
#include <span>

#include "shale/base/error.h"
#include "shale/base/version.h"
#include "shale/runtime/export/onnx_internal.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::onnx {
namespace {

static_assert(std::endian::native == std::endian::little);

// Field numbers of onnx.proto (github.com/onnx/onnx); one namespace for each message type.
namespace model {
enum : uint32_t { kIrVersion = 1, kProducer, kProducerVersion, kGraph = 7, kOpset, kMetadata = 14 };
}
namespace graph {
enum : uint32_t { kNode = 1, kName, kInitializer = 5, kInput = 11, kOutput, kValueInfo };
}
namespace node_of {
enum : uint32_t { kInput = 1, kOutput, kName, kType, kAttribute };
}
namespace attribute_of {
enum : uint32_t { kName = 1, kFloat, kInt, kString, kInts = 8, kType = 20 };
enum : int64_t { kIsFloat = 1, kIsInt, kIsString, kIsInts = 7 };
}  // namespace attribute_of
namespace tensor_of {
enum : uint32_t { kDims = 1, kType, kName = 8, kRaw, kExternal = 13, kLocation };
}

constexpr int64_t kIr = 8, kOpset = 17;
// 2 GiB less 1 MiB for headers
constexpr int64_t kMaxMessage = (int64_t{1} << 31) - (int64_t{1} << 20);

// Encodes a message with two string fields, such as StringStringEntryProto: field 1 is the key,
// field 2 the value.
ProtoMessage pair(std::string_view key, std::string_view value) {
  return ProtoMessage().text(1, key).text(2, value);
}

ProtoMessage type_of(int type, const std::vector<int64_t>& dims) {
  ProtoMessage shape;
  for (const int64_t size : dims) {
    ProtoMessage dim;
    if (size >= 0) {
      dim.integer(1, size);
    } else {
      dim.text(2, size == -1 ? "batch" : cat(-size, "*batch"));
    }
    shape.message(1, dim);
  }
  return ProtoMessage().message(1, ProtoMessage().integer(1, type).message(2, shape));
}

ProtoMessage value_info(const std::string& name, const Value& value) {
  return ProtoMessage().text(1, name).message(2, type_of(onnx_type(value.dtype, name), value.dims));
}

ProtoMessage encode(const Node& node) {
  ProtoMessage message;
  for (const std::string& name : node.inputs) message.text(node_of::kInput, name);
  message.text(node_of::kOutput, node.output).text(node_of::kName, node.output);
  message.text(node_of::kType, node.type);
  for (const ProtoMessage& one : node.attributes) message.message(node_of::kAttribute, one);
  return message;
}

int64_t bytes_of(const Initializer& x) {
  return x.tensor.defined() ? x.tensor.bytes() : std::ssize(x.bytes);
}

std::string values_of(const std::string& name, const Initializer& x) {
  if (!x.tensor.defined()) return x.bytes;
  std::string bytes = host_bytes(x.tensor);
  for (size_t i = 0; x.type == kFloat && i < bytes.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i, sizeof(value));
    if (value != value) throw DataError(cat("export_onnx: ", name, " has NaN, expected numbers"));
  }
  return bytes;
}

// Appends to an AtomicFile.
class Output {
 public:
  explicit Output(const std::string& path) : file(path) {}
  void write(std::string_view text) {
    file.write_at(size, std::as_bytes(std::span(text)));
    size += std::ssize(text);
  }
  AtomicFile file;
  int64_t size = 0;
};

// Encodes a TensorProto without its values.
ProtoMessage tensor_head(const std::string& name, const Initializer& x) {
  ProtoMessage head;
  for (const int64_t size : x.dims) head.integer(tensor_of::kDims, size);
  return head.integer(tensor_of::kType, x.type).text(tensor_of::kName, name);
}

ProtoMessage graph_head(const Graph& graph, const OnnxOptions& options) {
  const Recording& recording = graph.recording;
  const auto& values = recording.values;
  ProtoMessage message;
  message.text(graph::kName, "shale");
  for (const Node& node : graph.nodes) message.message(graph::kNode, encode(node));
  for (size_t i = 0; i < recording.inputs.size(); ++i) {
    const auto index = static_cast<size_t>(recording.inputs[i]);
    message.message(graph::kInput, value_info(options.input_names[i], values[index]));
  }
  for (size_t i = 0; i < recording.outputs.size(); ++i) {
    const auto index = static_cast<size_t>(recording.outputs[i]);
    message.message(graph::kOutput, value_info(options.output_names[i], values[index]));
  }
  std::set<std::string> used;
  for (const Node& node : graph.nodes) used.insert(node.output);
  for (const auto& [index, name] : graph.names) {
    if (used.erase(name) == 0) continue;
    message.message(graph::kValueInfo, value_info(name, values[static_cast<size_t>(index)]));
  }
  return message;
}

ProtoMessage model_head(const OnnxOptions& options) {
  ProtoMessage message;
  message.integer(model::kIrVersion, kIr).text(model::kProducer, "shale");
  message.text(model::kProducerVersion, shale_version());
  message.message(model::kOpset, ProtoMessage().text(1, "").integer(2, kOpset));
  for (const auto& [key, value] : options.metadata) {
    message.message(model::kMetadata, pair(key, value));
  }
  return message;
}

}  // namespace

int onnx_type(DType dtype, std::string_view what) {
  switch (dtype) {
    case DType::kF32: return kFloat;
    case DType::kI32: return kInt32;
    case DType::kU8: return kUint8;
    default: break;
  }
  throw ConfigError(
      cat("export_onnx: ", what, " is ", dtype_name(dtype),
          ", expected fp32, int32 or uint8; use a model in fp32 outside of autocast"));
}

ProtoMessage attribute(const char* name, int64_t value) {
  using namespace attribute_of;
  return ProtoMessage().text(kName, name).integer(kInt, value).integer(kType, kIsInt);
}

ProtoMessage attribute(const char* name, float value) {
  using namespace attribute_of;
  return ProtoMessage()
      .text(kName, name)
      .real32(attribute_of::kFloat, value)
      .integer(kType, kIsFloat);
}

ProtoMessage attribute(const char* name, const char* text) {
  using namespace attribute_of;
  return ProtoMessage().text(kName, name).text(kString, text).integer(kType, kIsString);
}

ProtoMessage attribute(const char* name, const std::vector<int64_t>& values) {
  using namespace attribute_of;
  ProtoMessage message;
  message.text(kName, name);
  for (const int64_t value : values) message.integer(kInts, value);
  return message.integer(kType, kIsInts);
}

std::string Graph::fresh(std::string_view type) {
  return cat("/", type, "_", ++count_);
}

std::string Graph::node(const char* type, std::vector<std::string> inputs,
                        std::vector<ProtoMessage> attributes) {
  nodes.push_back({type, fresh(type), std::move(inputs), std::move(attributes)});
  return nodes.back().output;
}

std::string Graph::constant(const std::vector<float>& values, const std::vector<int64_t>& dims) {
  const std::string name = fresh("constant");
  initializers[name] = {
      .dims = dims,
      .bytes = {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}};
  return name;
}

std::string Graph::number(float value) {
  return constant({value}, {});
}

std::string Graph::integers(const std::vector<int64_t>& list) {
  const std::string name = fresh("integers");
  initializers[name] = {
      .type = kInt64,
      .dims = {std::ssize(list)},
      .bytes = {reinterpret_cast<const char*>(list.data()), list.size() * sizeof(int64_t)}};
  return name;
}

std::string Graph::reshape(const std::string& x, const std::vector<int64_t>& dims) {
  std::vector<int64_t> target;
  for (const int64_t size : dims) target.push_back(size < 0 ? -1 : size);
  if (std::ranges::count(target, -1) > 1) {
    throw BatchError("a reshape has several sizes that depend on the batch size");
  }
  return node("Reshape", {x, integers(target)});
}

std::string Graph::shape(const std::vector<int64_t>& dims) {
  if (std::ranges::all_of(dims, [](int64_t size) { return size >= 0; })) return integers(dims);
  const std::string batch = node("Shape", {name_of(recording.inputs.front())},
                                 {attribute("start", int64_t{0}), attribute("end", int64_t{1})});
  const int64_t of_input = -recording.values[size_t(recording.inputs.front())].dims.front();
  std::vector<std::string> parts;
  for (const int64_t size : dims) {
    if (size >= 0) {
      parts.push_back(integers({size}));
    } else if (-size % of_input == 0) {
      parts.push_back(node("Mul", {batch, integers({-size / of_input})}));
    } else {
      throw BatchError("a tensor's size is a fraction of the batch size");
    }
  }
  return node("Concat", parts, {attribute("axis", int64_t{0})});
}

std::string Graph::slice(const std::string& x, int64_t dim, int64_t begin, int64_t end) {
  return node("Slice", {x, integers({begin}), integers({end}), integers({dim})});
}

void Graph::set(int value, const std::string& name) {
  names[value] = name;
}

const std::string& Graph::name_of(int index) {
  const Value& value = recording.values[static_cast<size_t>(index)];
  std::string& name = names[index];
  if (!name.empty()) return name;
  if (!value.is_constant) throw InternalError("export_onnx: a value is used before its op");
  name = value.name.empty() ? fresh("constant") : value.name;
  initializers[name] = {
      .type = onnx_type(value.dtype, name), .dims = value.dims, .tensor = value.tensor};
  return name;
}

std::string Graph::channels_first(const std::string& x) {
  std::string& first = channels_first_[x];
  if (first.empty()) first = transpose(x, {0, 3, 1, 2});
  return first;
}

std::string Graph::channels_last(const std::string& x) {
  const std::string last = transpose(x, {0, 2, 3, 1});
  channels_first_[last] = x;
  return last;
}

void Graph::remove_unused(const std::vector<std::string>& results) {
  std::set<std::string> used(results.begin(), results.end());
  std::vector<Node> kept;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (!used.contains(node->output)) continue;
    used.insert(node->inputs.begin(), node->inputs.end());
    kept.push_back(std::move(*node));
  }
  nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  std::erase_if(initializers, [&](const auto& entry) { return !used.contains(entry.first); });
}

void write_graph(const Graph& graph, const std::string& path, const OnnxOptions& options) {
  const std::string nodes = graph_head(graph, options).bytes();
  int64_t weights = 0;
  for (const auto& [name, x] : graph.initializers) weights += bytes_of(x);
  const int64_t most = std::min(options.max_file_bytes, kMaxMessage);
  const bool is_external = weights + std::ssize(nodes) > most;
  const std::string data_path = path + ".data";
  std::optional<Output> data;
  if (is_external) data.emplace(data_path);

  // Makes the headers of all tensors first, because the graph's message begins with its size.
  std::vector<std::string> heads;
  int64_t offset = 0;
  size_t graph_size = nodes.size();
  for (const auto& [name, x] : graph.initializers) {
    ProtoMessage tensor = tensor_head(name, x);
    const auto bytes = static_cast<size_t>(bytes_of(x));
    const bool is_beside = is_external && x.tensor.defined();
    if (is_beside) {
      const std::string file = data_path.substr(data_path.rfind('/') + 1);
      tensor.message(tensor_of::kExternal, pair("location", file));
      tensor.message(tensor_of::kExternal, pair("offset", std::to_string(offset)));
      tensor.message(tensor_of::kExternal, pair("length", std::to_string(bytes)));
      tensor.integer(tensor_of::kLocation, 1);
      offset += bytes_of(x);
    } else {
      tensor.head(tensor_of::kRaw, bytes);
    }
    ProtoMessage field;
    field.head(graph::kInitializer, tensor.bytes().size() + (is_beside ? 0 : bytes));
    heads.push_back(field.bytes() + tensor.bytes());
    graph_size += heads.back().size() + (is_beside ? 0 : bytes);
  }
  Output file(path);
  file.write(model_head(options).head(model::kGraph, graph_size).bytes());
  file.write(nodes);
  size_t index = 0;
  for (const auto& [name, x] : graph.initializers) {
    file.write(heads[index++]);
    (is_external && x.tensor.defined() ? *data : file).write(values_of(name, x));
  }
  if (data) data->file.finish(data->size);
  file.file.finish(file.size);
  if (data) data->file.commit(data->size);
  file.file.commit(file.size);
}

}  // namespace shale::onnx
