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
  std::string name = {};      // parameters and buffers: full name; else empty
  const char* producer = "";  // op that computed it; empty: an input or a constant
  std::vector<int64_t> dims = {};
  DType dtype = DType::kF32;
  Tensor tensor = {};
  bool is_constant = false;
  uint32_t checksum = 0;  // checksum of a constant that forward made; 0: none
};

struct Operand {
  int value = -1;  // index of a value; -1: the number, or an absent tensor
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
  std::vector<int> inputs, outputs;  // indices of values
};

using Forward = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

// Runs forward once and records its ops. Throws as export_onnx() does.
Recording record_forward(const Module& module, const Forward& forward,
                         const std::vector<Tensor>& inputs);

// Combines recordings with a batch of 2 n and of 3 n: sizes that grow with the batch become
// negative. Throws BatchError if the recordings differ in anything else.
Recording merge_batches(Recording of_two, const Recording& of_three, int64_t n);

// Elements of a tensor, dense, in host memory.
std::string host_bytes(const Tensor& x);

// ---- The graph ----

inline constexpr int kFloat = 1, kUint8 = 2, kInt32 = 6, kInt64 = 7, kBool = 9;  // TensorProto
// Type of a dtype in ONNX files; throws ConfigError for other dtypes than f32, i32 and u8.
int onnx_type(DType dtype, std::string_view what);

// Attribute of a node, encoded.
ProtoMessage attribute(const char* name, int64_t value);
ProtoMessage attribute(const char* name, float value);
ProtoMessage attribute(const char* name, const char* text);
ProtoMessage attribute(const char* name, const std::vector<int64_t>& values);

struct Node {
  std::string type, output;
  std::vector<std::string> inputs;
  std::vector<ProtoMessage> attributes;
};

// A constant or a parameter: a tensor, or bytes.
struct Initializer {
  int type = kFloat;
  std::vector<int64_t> dims;
  Tensor tensor = {};
  std::string bytes = {};
};

// Nodes in order, and the initializers they use by name.
class Graph {
 public:
  explicit Graph(const Recording& of) : recording(of) {}

  // Adds a node; returns the name of its result.
  std::string node(const char* type, std::vector<std::string> inputs,
                   std::vector<ProtoMessage> attributes = {});
  std::string number(float value);                         // name of a scalar
  std::string integers(const std::vector<int64_t>& list);  // name of a vector, i64
  std::string constant(const std::vector<float>& values, const std::vector<int64_t>& dims);
  // Returns the name of a shape vector; sizes that depend on the batch are computed from input 0.
  std::string shape(const std::vector<int64_t>& dims);
  std::string slice(const std::string& x, int64_t dim, int64_t begin, int64_t end);
  std::string transpose(const std::string& x, const std::vector<int64_t>& order) {
    return node("Transpose", {x}, {attribute("perm", order)});
  }
  std::string reshape(const std::string& x, const std::vector<int64_t>& dims);
  std::string cast(const std::string& x, int type) {
    return node("Cast", {x}, {attribute("to", int64_t{type})});
  }
  // Names a value of the recording.
  void set(int value, const std::string& name);
  // Name of a value of the recording.
  const std::string& name_of(int value);
  // Images with channels first, as ONNX has them. Pairs of transposes in both directions vanish.
  std::string channels_first(const std::string& x);
  std::string channels_last(const std::string& x);

  // Removes nodes and initializers that these results do not need.
  void remove_unused(const std::vector<std::string>& results);

  const Recording& recording;
  std::vector<Node> nodes;
  std::map<std::string, Initializer> initializers;
  std::map<int, std::string> names;  // names of the recording's values, by index

 private:
  std::string fresh(std::string_view type);

  std::map<std::string, std::string> channels_first_;  // by the name with channels last
  int64_t count_ = 0;
};

// Adds the nodes of an op. Throws ConfigError if the op cannot be exported, BatchError.
void add_op(Graph& graph, const RecordedOp& op);

// Writes the file. Throws as export_onnx() does.
void write_graph(const Graph& graph, const std::string& path, const OnnxOptions& options);

}  // namespace shale::onnx
