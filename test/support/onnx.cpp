#include "shale/test/support/onnx.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include "shale/base/error.h"
#include "shale/base/protobuf.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/shape.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

using Fields = std::vector<ProtoField>;

Fields fields_of(std::string_view message) {
  Fields fields;
  ProtoReader reader(message, "onnx");
  while (const auto field = reader.next()) fields.push_back(*field);
  return fields;
}

std::string_view text_of(std::string_view message, uint32_t number) {
  for (const ProtoField& field : fields_of(message)) {
    if (field.number == number) return field.bytes;
  }
  return {};
}

OnnxFile::Tensor initializer(std::string_view message) {
  OnnxFile::Tensor tensor;
  for (const ProtoField& field : fields_of(message)) {
    if (field.number == 1) tensor.dims.push_back(field.integer());
    if (field.number == 2) tensor.type = int(field.integer());
    if (field.number == 9) tensor.bytes = std::ssize(field.bytes);
  }
  int64_t bytes = tensor.type == 7 ? 8 : tensor.type == 2 ? 1 : 4;
  for (const int64_t size : tensor.dims) bytes *= size;
  if (tensor.bytes >= 0 && tensor.bytes != bytes) {
    throw DataError(cat("onnx: an initializer of ", tensor.bytes, " bytes, expected ", bytes));
  }
  return tensor;
}

OnnxFile::Tensor typed(std::string_view message) {
  OnnxFile::Tensor tensor;
  for (const ProtoField& field : fields_of(text_of(text_of(message, 2), 1))) {
    if (field.number == 1) tensor.type = int(field.integer());
    if (field.number != 2) continue;
    for (const ProtoField& dim : fields_of(field.bytes)) {
      int64_t size = 0;
      for (const ProtoField& of : fields_of(dim.bytes)) {
        size = of.number == 1 ? of.integer() : of.bytes == "batch" ? -1 : -2;
      }
      tensor.dims.push_back(size);
    }
  }
  return tensor;
}

void read_graph(std::string_view graph, OnnxFile& file) {
  for (const ProtoField& field : fields_of(graph)) {
    const std::string_view bytes = field.bytes;
    switch (field.number) {
      case 1: {
        OnnxFile::Node node;
        for (const ProtoField& of : fields_of(bytes)) {
          if (of.number == 1) node.inputs.emplace_back(of.bytes);
          if (of.number == 2) node.outputs.emplace_back(of.bytes);
          if (of.number == 4) node.type = of.bytes;
        }
        file.nodes.push_back(node);
        break;
      }
      case 5: file.initializers[std::string(text_of(bytes, 8))] = initializer(bytes); break;
      case 11: file.inputs[std::string(text_of(bytes, 1))] = typed(bytes); break;
      case 12: file.outputs[std::string(text_of(bytes, 1))] = typed(bytes); break;
      case 13: file.values[std::string(text_of(bytes, 1))] = typed(bytes); break;
      default: break;
    }
  }
}

void check_names(const OnnxFile& file) {
  std::set<std::string> known;
  const auto define = [&](const std::string& name) {
    if (name.empty() || !known.insert(name).second) {
      throw DataError(cat("onnx: '", name, "' is defined twice, or has no name"));
    }
  };
  for (const auto& [name, tensor] : file.inputs) define(name);
  for (const auto& [name, tensor] : file.initializers) define(name);
  for (const OnnxFile::Node& node : file.nodes) {
    for (const std::string& name : node.inputs) {
      if (!known.contains(name))
        throw DataError(cat("onnx: '", name, "' is used before it is defined"));
    }
    for (const std::string& name : node.outputs) define(name);
  }
  for (const auto* some : {&file.outputs, &file.values}) {
    for (const auto& [name, tensor] : *some) {
      if (!known.contains(name)) throw DataError(cat("onnx: '", name, "' does not exist"));
    }
  }
}

void write_values(std::ostream& list, const std::string& folder, const std::string& name,
                  const char* role, const std::string& of, const shale::Tensor& x) {
  const std::string file = cat(name, ".", role, "_", of, ".bin");
  const NoGrad no_grad(x.context());
  const shale::Tensor dense = contiguous(x);
  std::string bytes(size_t(dense.bytes()), '\0');
  x.context().copy(bytes.data(), dense.data(), dense.bytes());
  x.context().synchronize();
  std::ofstream(folder + "/" + file, std::ios::binary) << bytes;
  list << role << ' ' << of << ' ' << file << ' ' << dtype_name(x.dtype());
  for (const int64_t size : x.shape()) list << ' ' << size;
  list << '\n';
}

}  // namespace

int64_t OnnxFile::count(const std::string& type) const {
  return std::ranges::count(nodes, type, &Node::type);
}

OnnxFile read_onnx(const std::string& path) {
  const std::string text = read_file(path);
  OnnxFile file;
  for (const ProtoField& field : fields_of(text)) {
    if (field.number == 1) file.ir = field.integer();
    if (field.number == 7) read_graph(field.bytes, file);
    if (field.number == 14) {
      file.metadata[std::string(text_of(field.bytes, 1))] = text_of(field.bytes, 2);
    }
    if (field.number != 8) continue;
    for (const ProtoField& of : fields_of(field.bytes)) {
      if (of.number == 2) file.opset = of.integer();
    }
  }
  check_names(file);
  return file;
}

CheckedExport check_export(
    const std::string& name, const Module& module,
    const std::function<std::vector<shale::Tensor>(const std::vector<shale::Tensor>&)>& forward,
    const std::vector<shale::Tensor>& inputs, const OnnxOptions& options) {
  const TempDir temp;
  const char* const kept = std::getenv("SHALE_ONNX_OUT");
  const std::string folder = kept != nullptr ? kept : temp.path().string();
  const std::string path = cat(folder, "/", name, ".onnx");
  CheckedExport checked{.result = export_onnx(module, forward, inputs, path, options), .file = {}};
  checked.file = read_onnx(path);
  std::ifstream frozen(fixture_path("../oracles/onnx_files.txt"));
  int64_t nodes = 0;
  for (std::string key; frozen >> key >> nodes;) {
    if (key == name + "_nodes") checked.frozen_nodes = nodes;
  }
  if (kept == nullptr) return checked;
  const Inference inference(inputs.front().context());
  const auto write = [&](const std::string& suffix, const std::vector<shale::Tensor>& in) {
    std::ofstream list(cat(folder, "/", name, suffix, ".txt"));
    list << "model " << name << ".onnx\n";
    for (size_t i = 0; i < in.size(); ++i) {
      write_values(list, folder, name + suffix, "input", std::to_string(i), in[i]);
    }
    const auto out = forward(in);
    for (size_t i = 0; i < out.size(); ++i) {
      write_values(list, folder, name + suffix, "output", std::to_string(i), out[i]);
    }
  };
  write("", inputs);
  if (!checked.result.fixed_batch.empty()) return checked;
  const int64_t batch = inputs.front().size(0);
  std::vector<shale::Tensor> more;
  for (const shale::Tensor& x : inputs) {
    const bool grows = x.ndim() > 0 && x.size(0) == batch;
    more.push_back(grows ? concat({slice(x, 0, batch - 1, batch), x}, 0) : x);
  }
  write(".more", more);
  return checked;
}

}  // namespace shale::test
