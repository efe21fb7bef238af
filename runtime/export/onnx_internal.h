#pragma once

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "shale/base/protobuf.h"
#include "shale/runtime/export/onnx.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale::onnx {

// Thrown when a graph does not exist for every batch size. The message says why.
class BatchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// ---- Recording ----

// A tensor of a recorded forward. A negative size -k stands for k times the batch size.
struct Value {
  std::string name = {};      // full name of a parameter or buffer; else empty
  const char* producer = "";  // name of the op that computed it; empty: an input or a constant
  std::vector<int64_t> dims = {};
  DType dtype = DType::kF32;
  Tensor tensor = {};
  bool is_constant = false;
  uint32_t checksum = 0;  // checksum of a constant that forward made; 0: none
};

struct Operand {
  int value = -1;  // index in Recording::values; -1: `number`, or an absent tensor
  float number = 0;
  bool operator==(const Operand&) const = default;
};

struct RecordedOp {
  const char* name = "";
  std::vector<Operand> inputs;
  std::vector<int> outputs;
  std::vector<OpAttribute> attributes;
};

struct Recording {
  std::vector<Value> values;
  std::vector<RecordedOp> ops;
  std::vector<int> inputs, outputs;  // indices in `values`
};

using Forward = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

// Runs forward once and records its ops. Throws as export_onnx() does.
Recording record_forward(const Module& module, const Forward& forward,
                         const std::vector<Tensor>& inputs);

// Combines two recordings, with batches of 2 n and of 3 n, into one for any batch. A size that
// grows with the batch becomes -k, which stands for k times the batch size. Throws BatchError if
// the recordings differ in anything else.
Recording merge_batches(Recording of_two, const Recording& of_three, int64_t n);

// Returns the elements of a tensor in row-major order, in host memory.
std::string host_bytes(const Tensor& x);

// ---- The graph ----

// enum TensorProto.DataType of onnx.proto
inline constexpr int kFloat = 1, kUint8 = 2, kInt32 = 6, kInt64 = 7, kBool = 9;
// Returns the number of a dtype in ONNX files. Throws ConfigError unless it is f32, i32 or u8.
int onnx_type(DType dtype, std::string_view what);

// Encodes an attribute of a node.
ProtoMessage attribute(const char* name, int64_t value);
ProtoMessage attribute(const char* name, float value);
ProtoMessage attribute(const char* name, const char* text);
ProtoMessage attribute(const char* name, const std::vector<int64_t>& values);

struct Node {
  std::string type, output;
  std::vector<std::string> inputs;
  std::vector<ProtoMessage> attributes;
};

// A constant or a parameter. The values are in `tensor` or in `bytes`.
struct Initializer {
  int type = kFloat;
  std::vector<int64_t> dims;
  Tensor tensor = {};
  std::string bytes = {};
};

// An ONNX graph: its nodes in order of execution, and its initializers (constants and parameters)
// by name.
class Graph {
 public:
  explicit Graph(const Recording& of) : recording(of) {}

  // Adds a node; returns the name of its result.
  std::string node(const char* type, std::vector<std::string> inputs,
                   std::vector<ProtoMessage> attributes = {});
  std::string number(float value);  // returns the name of a constant scalar
  // returns the name of a constant i64 vector
  std::string integers(const std::vector<int64_t>& list);
  std::string constant(const std::vector<float>& values, const std::vector<int64_t>& dims);
  // Returns the name of an i64 vector with these sizes. Sizes that depend on the batch are computed
  // from the batch size of input 0.
  std::string shape(const std::vector<int64_t>& dims);
  std::string slice(const std::string& x, int64_t dim, int64_t begin, int64_t end);
  std::string transpose(const std::string& x, const std::vector<int64_t>& order) {
    return node("Transpose", {x}, {attribute("perm", order)});
  }
  std::string reshape(const std::string& x, const std::vector<int64_t>& dims);
  std::string cast(const std::string& x, int type) {
    return node("Cast", {x}, {attribute("to", int64_t{type})});
  }
  // Sets the name of a value of the recording in the graph.
  void set(int value, const std::string& name);
  // Returns the name of a value of the recording in the graph.
  const std::string& name_of(int value);
  // Transposes images between [N, H, W, C] and ONNX's [N, C, H, W]. A transpose that would only
  // undo an earlier one is left out.
  std::string channels_first(const std::string& x);
  std::string channels_last(const std::string& x);

  // Removes nodes and initializers that `results` do not depend on.
  void remove_unused(const std::vector<std::string>& results);

  const Recording& recording;
  std::vector<Node> nodes;
  std::map<std::string, Initializer> initializers;
  std::map<int, std::string> names;  // names of the recording's values, by index

 private:
  std::string fresh(std::string_view type);

  // name of images with channels last -> name with channels first
  std::map<std::string, std::string> channels_first_;
  int64_t count_ = 0;
};

// Adds the nodes of an op. Throws ConfigError if the op cannot be exported, BatchError if it cannot
// be exported for every batch size.
void add_op(Graph& graph, const RecordedOp& op);

// Writes the file. Throws as export_onnx() does.
void write_graph(const Graph& graph, const std::string& path, const OnnxOptions& options);

}  // namespace shale::onnx
