#include "shale/runtime/export/onnx.h"

#include <algorithm>
#include <optional>
#include <set>

#include "shale/base/error.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/export/onnx_internal.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {
namespace {

using onnx::Graph;
using onnx::Recording;

// Returns copies of the inputs for a forward with a larger batch. An input that has the batch size
// of the first input is repeated `count` times along its first dimension. The copies share no
// memory with each other or with other tensors that forward uses.
std::vector<Tensor> copies(const std::vector<Tensor>& inputs, int count) {
  const auto rows = [](const Tensor& x) { return x.ndim() > 0 ? x.size(0) : -1; };
  std::vector<Tensor> results;
  for (const Tensor& x : inputs) {
    const bool has_batch = rows(x) >= 0 && rows(x) == rows(inputs.front());
    const Tensor list = rows(x) >= 0 ? x : reshape(x, {1});
    const Tensor copy = concat(std::vector<Tensor>(has_batch ? size_t(count) : 1, list), 0);
    results.push_back(rows(x) >= 0 ? copy : reshape(copy, {}));
  }
  return results;
}

// Returns the given names, or makes names if none are given: "input", or "input_0", "input_1", ...
std::vector<std::string> names_of(std::vector<std::string> given, const std::string& what,
                                  size_t count) {
  if (given.empty()) {
    for (size_t i = 0; i < count; ++i) given.push_back(count == 1 ? what : cat(what, "_", i));
  }
  if (given.size() != count || std::set(given.begin(), given.end()).size() != count) {
    throw ConfigError(cat("export_onnx: found ", given.size(), " names of ", what, "s, expected ",
                          count, " different names"));
  }
  return given;
}

// Converts the recording to nodes of the graph, and writes the names of inputs and outputs to
// `options`.
void build(Graph& graph, OnnxOptions& options) {
  const Recording& recording = graph.recording;
  options.input_names = names_of(options.input_names, "input", recording.inputs.size());
  options.output_names = names_of(options.output_names, "output", recording.outputs.size());
  for (size_t i = 0; i < recording.inputs.size(); ++i) {
    graph.set(recording.inputs[i], options.input_names[i]);
  }
  for (const onnx::RecordedOp& op : recording.ops) onnx::add_op(graph, op);
  for (size_t i = 0; i < recording.outputs.size(); ++i) {
    graph.nodes.push_back({.type = "Identity",
                           .output = options.output_names[i],
                           .inputs = {graph.name_of(recording.outputs[i])},
                           .attributes = {}});
  }
  graph.remove_unused(options.output_names);
  for (const std::string& name : options.input_names) {
    const auto uses = [&](const onnx::Node& n) { return std::ranges::count(n.inputs, name) > 0; };
    if (std::ranges::any_of(graph.nodes, uses)) continue;
    throw ConfigError(cat("export_onnx: the outputs do not depend on '", name,
                          "', expected a forward that uses the inputs it is given"));
  }
  for (const auto* names : {&options.input_names, &options.output_names}) {
    for (const std::string& name : *names) {
      if (!graph.initializers.contains(name)) continue;
      throw ConfigError(cat("export_onnx: '", name,
                            "' is the name of a parameter, expected another "
                            "for an input or output"));
    }
  }
}

}  // namespace

OnnxExport export_onnx(const Module& module, const onnx::Forward& forward,
                       const std::vector<Tensor>& inputs, const std::string& path,
                       const OnnxOptions& options) {
  if (inputs.empty()) throw ConfigError("export_onnx: found no inputs, expected at least one");
  for (const Tensor& x : inputs) check_defined("export_onnx", "an input", x);
  for (const Parameter* parameter : module.parameters()) {
    if (parameter->value.impl().storage != nullptr) continue;
    throw ConfigError(cat("export_onnx: ", parameter->full_name(),
                          " has no memory outside its "
                          "module's forward; call materialize(), or use ZeRO stage 0 to 2"));
  }
  const Inference inference(inputs.front().context());
  forward(inputs);  // creates lazily created tensors, such as tables
  OnnxExport result;
  OnnxOptions names;
  std::optional<Recording> recording;
  std::optional<Graph> graph;
  const auto write = [&] {
    if (!path.empty()) onnx::write_graph(*graph, path, names);
    result.nodes = std::ssize(graph->nodes);
    for (const auto& [name, x] : graph->initializers) {
      if (x.tensor.defined()) result.weight_bytes += x.tensor.bytes();
    }
    return result;
  };
  try {
    const int64_t batch = inputs.front().ndim() > 0 ? inputs.front().size(0) : 0;
    if (!options.free_batch || batch == 0)
      throw onnx::BatchError("free_batch is off, or the first input has no rows");
    recording =
        onnx::merge_batches(onnx::record_forward(module, forward, copies(inputs, 2)),
                            onnx::record_forward(module, forward, copies(inputs, 3)), batch);
    build(graph.emplace(*recording), names = options);
    return write();
  } catch (const onnx::BatchError& error) {
    result.fixed_batch = error.what();
  } catch (const ShapeError& error) {  // forward accepts only the batch size of `inputs`
    result.fixed_batch = error.what();
  }
  recording = onnx::record_forward(module, forward, copies(inputs, 1));
  build(graph.emplace(*recording), names = options);
  return write();
}

}  // namespace shale
