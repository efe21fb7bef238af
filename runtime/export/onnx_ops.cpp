#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "shale/base/error.h"
#include "shale/runtime/export/onnx_internal.h"

namespace shale::onnx {
namespace {

using Names = std::vector<std::string>;
using Sizes = std::vector<int64_t>;

// A recorded op together with the graph that receives its nodes.
struct Op {
  Graph& g;
  const RecordedOp& op;
  const char* type;  // ONNX node type if a single node replaces the op

  bool has(size_t i) const { return op.inputs[i].value >= 0; }
  // Returns the name of an input, or of a scalar constant if the input is a number.
  std::string in(size_t i) const {
    const Operand& x = op.inputs[i];
    return has(i) ? g.name_of(x.value) : g.number(x.number);
  }
  const Value& value(int index) const { return g.recording.values[static_cast<size_t>(index)]; }
  const Sizes& dims(size_t i) const { return value(op.inputs[i].value).dims; }
  const Value& result() const { return value(op.outputs.front()); }
  const std::vector<double>* find(std::string_view name) const {
    const auto found = std::ranges::find(op.attributes, name, &OpAttribute::name);
    return found == op.attributes.end() ? nullptr : &found->values;
  }
  double at(std::string_view name) const { return find(name)->front(); }
  int64_t integer(std::string_view name) const { return std::llround(at(name)); }
  void set(const std::string& name, size_t i = 0) const { g.set(op.outputs[i], name); }

  [[noreturn]] void refuse(std::string_view what) const {
    throw ConfigError(cat("export_onnx: the op ", op.name, " cannot be exported with ", what));
  }
  // Returns the name of input i after a cast to `dtype`. Needed because elementwise ops accept
  // masks of another dtype.
  std::string converted(size_t i, DType dtype) const {
    const bool is_other = has(i) && value(op.inputs[i].value).dtype != dtype;
    return is_other ? g.cast(in(i), onnx_type(dtype, op.name)) : in(i);
  }
  std::string plus(const std::string& x, size_t i) const {
    return has(i) ? g.node("Add", {x, in(i)}) : x;
  }
  Names all() const {
    Names names;
    for (size_t i = 0; i < op.inputs.size(); ++i) names.push_back(converted(i, result().dtype));
    return names;
  }
};

// ---- Parts that several ops share ----

// Adds nodes for x weightᵀ + bias. weight and bias are indices of the op's inputs; bias 0: no bias.
std::string dense(const Op& o, const std::string& x, size_t weight, size_t bias = 0) {
  const bool has_bias = bias > 0 && o.has(bias);
  if (o.dims(0).size() == 2) {
    Names inputs = {x, o.in(weight)};
    if (has_bias) inputs.push_back(o.in(bias));
    return o.g.node("Gemm", inputs, {attribute("transB", int64_t{1})});
  }
  const std::string y = o.g.node("MatMul", {x, o.g.transpose(o.in(weight), {1, 0})});
  return has_bias ? o.plus(y, bias) : y;
}

std::string sigmoid_times(Graph& g, const std::string& x) {
  return g.node("Mul", {x, g.node("Sigmoid", {x})});
}

// Adds the nodes of GELU; operator set 17 has no GELU node.
std::string gelu_of(const Op& o, const std::string& x) {
  Graph& g = o.g;
  const auto times = [&](const std::string& a, float b) { return g.node("Mul", {a, g.number(b)}); };
  std::string inner;
  if (o.at("exact") != 0) {
    inner = g.node("Erf", {times(x, 1 / std::numbers::sqrt2_v<float>)});
  } else {
    const std::string cube = g.node("Mul", {g.node("Mul", {x, x}), x});
    const std::string sum = g.node("Add", {x, times(cube, 0.044715f)});
    inner = g.node("Tanh", {times(sum, std::sqrt(2 / std::numbers::pi_v<float>))});
  }
  return g.node("Mul", {times(x, 0.5f), g.node("Add", {inner, g.number(1)})});
}

// Returns the name of a constant [queries, keys]: 0 where the query attends to the key, else -inf.
std::string causal_mask(const Op& o, int64_t queries, int64_t keys) {
  if (queries < 0 || keys < 0) throw BatchError("causal attention has a batch-dependent length");
  if (queries > keys) o.refuse("more queries than keys under the causal mask");
  std::vector<float> mask;
  const int64_t window = o.integer("window");
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t ago = i + keys - queries - j;
      const bool is_seen = ago >= 0 && (window == 0 || ago < window);
      mask.push_back(is_seen ? 0 : -std::numeric_limits<float>::infinity());
    }
  }
  return o.g.constant(mask, {queries, keys});
}

// Adds the nodes of attention. q: [B,T,H,D] with sizes of_q; k, v: [B,T,Hkv,D] with sizes of_k.
// Returns the name of the result [B,T,H,D].
std::string attend(const Op& o, const std::string& q, std::string k, std::string v,
                   const Sizes& of_q, const Sizes& of_k) {
  if (o.at("masked") != 0) o.refuse("lengths, documents or a block mask");
  Graph& g = o.g;
  if (of_q[2] != of_k[2]) {  // grouped-query attention: repeats k and v for each query head
    Sizes heads(static_cast<size_t>(of_q[2]));
    for (size_t h = 0; h < heads.size(); ++h) heads[h] = int64_t(h) / (of_q[2] / of_k[2]);
    const std::string index = g.integers(heads);
    k = g.node("Gather", {k, index}, {attribute("axis", int64_t{2})});
    v = g.node("Gather", {v, index}, {attribute("axis", int64_t{2})});
  }
  const std::string scaled = g.node("Mul", {q, g.number(static_cast<float>(o.at("scale")))});
  std::string s =
      g.node("MatMul", {g.transpose(scaled, {0, 2, 1, 3}), g.transpose(k, {0, 2, 3, 1})});
  if (const auto cap = static_cast<float>(o.at("softcap")); cap != 0) {
    s = g.node("Mul", {g.node("Tanh", {g.node("Div", {s, g.number(cap)})}), g.number(cap)});
  }
  if (o.at("causal") != 0) s = g.node("Add", {s, causal_mask(o, of_q[1], of_k[1])});
  const std::string p = g.node("Softmax", {s}, {attribute("axis", int64_t{-1})});
  return g.transpose(g.node("MatMul", {p, g.transpose(v, {0, 2, 1, 3})}), {0, 2, 1, 3});
}

// ---- Ops ----

void linear(const Op& o) {
  if (o.at("fp8") != 0) o.refuse("fp8 operands");
  o.set(o.plus(dense(o, o.in(0), 1, 2), 3));
}

void ffn(const Op& o) {
  o.set(o.plus(dense(o, gelu_of(o, dense(o, o.in(0), 1, 2)), 3, 4), 5));
}

void swiglu(const Op& o) {
  const std::string gate = sigmoid_times(o.g, dense(o, o.in(0), 1));
  o.set(o.plus(dense(o, o.g.node("Mul", {gate, dense(o, o.in(0), 2)}), 3), 4));
}

void layer_norm(const Op& o) {
  const std::string sum = o.plus(o.in(0), 1);
  Names inputs = {sum, o.in(2)};
  if (o.has(3)) inputs.push_back(o.in(3));
  o.set(o.g.node(
      "LayerNormalization", inputs,
      {attribute("axis", int64_t{-1}), attribute("epsilon", static_cast<float>(o.at("eps")))}));
  o.set(sum, 1);
}

void rms_norm(const Op& o) {
  Graph& g = o.g;
  const std::string sum = o.plus(o.in(0), 1);
  const std::string mean =
      g.node("ReduceMean", {g.node("Mul", {sum, sum})}, {attribute("axes", Sizes{-1})});
  const std::string rms =
      g.node("Sqrt", {g.node("Add", {mean, g.number(static_cast<float>(o.at("eps")))})});
  o.set(g.node("Mul", {g.node("Div", {sum, rms}), o.in(2)}));
  o.set(sum, 1);
}

void attention(const Op& o) {
  o.set(attend(o, o.in(0), o.in(1), o.in(2), o.dims(0), o.dims(1)));
}

void packed_attention(const Op& o) {
  const Sizes& packed = o.dims(0);
  const int64_t width = packed[2] / 3, head = o.integer("head_size");
  const Sizes shape = {packed[0], packed[1], width / head, head};
  const auto part = [&](int64_t i) {
    return o.g.reshape(o.g.slice(o.in(0), 2, i * width, (i + 1) * width), shape);
  };
  const std::string y = attend(o, part(0), part(1), part(2), shape, shape);
  o.set(o.g.reshape(y, o.result().dims));
}

void conv2d(const Op& o) {
  const int64_t stride = o.integer("stride"), padding = o.integer("padding");
  Names inputs = {o.g.channels_first(o.in(0)), o.in(1)};
  if (o.has(2)) inputs.push_back(o.in(2));
  o.set(o.g.channels_last(
      o.g.node("Conv", inputs,
               {attribute("strides", Sizes(2, stride)), attribute("pads", Sizes(4, padding))})));
}

void max_pool2d(const Op& o) {
  const int64_t stride = o.integer("stride"), padding = o.integer("padding");
  o.set(o.g.channels_last(
      o.g.node("MaxPool", {o.g.channels_first(o.in(0))},
               {attribute("kernel_shape", Sizes(2, o.integer("kernel"))),
                attribute("strides", Sizes(2, stride)), attribute("pads", Sizes(4, padding))})));
}

// Inputs: x, gain, bias, residual, running mean and variance.
void batch_norm(const Op& o) {
  Graph& g = o.g;
  const size_t rank = o.dims(0).size();
  if (rank != 2 && rank != 4) o.refuse("an input of other than 2 or 4 dimensions");
  const auto enter = [&](const std::string& x) { return rank == 4 ? g.channels_first(x) : x; };
  std::string y = g.node("BatchNormalization", {enter(o.in(0)), o.in(1), o.in(2), o.in(4), o.in(5)},
                         {attribute("epsilon", static_cast<float>(o.at("eps")))});
  if (o.has(3)) y = g.node("Add", {y, enter(o.in(3))});
  if (o.at("relu") != 0) y = g.node("Relu", {y});
  o.set(rank == 4 ? g.channels_last(y) : y);
}

void reshape(const Op& o) {
  o.set(o.g.reshape(o.in(0), o.result().dims));
}

void transpose(const Op& o) {
  Sizes order(o.dims(0).size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[size_t(o.integer("a"))], order[size_t(o.integer("b"))]);
  o.set(o.g.transpose(o.in(0), order));
}

void slice(const Op& o) {
  const int64_t dim = o.integer("dim"), begin = o.integer("begin");
  const int64_t size = o.result().dims[size_t(dim)], all = o.dims(0)[size_t(dim)];
  if (size == all) return o.set(o.in(0));
  if (size < 0 || all < 0) throw BatchError("a slice cuts a batch-dependent size");
  o.set(o.g.slice(o.in(0), dim, begin, begin + size));
}

void concat(const Op& o) {
  o.set(o.g.node("Concat", o.all(), {attribute("axis", o.integer("dim"))}));
}

void same(const Op& o) {
  o.set(o.in(0));
}

void full(const Op& o) {
  if (o.result().dtype != DType::kF32) o.refuse("another dtype than fp32");
  const std::string value = o.g.number(static_cast<float>(o.at("value")));
  o.set(o.g.node("Expand", {value, o.g.shape(o.result().dims)}));
}

// Inputs: ids, table, positions.
void embedding(const Op& o) {
  if (o.integer("whole_rows") != 0) o.refuse("a table that is sharded over ranks");
  std::string y = o.g.node("Gather", {o.in(1), o.in(0)});
  if (o.has(2)) {
    const int64_t first = o.integer("first_position"), count = o.result().dims[1];
    if (count < 0) throw BatchError("the number of positions depends on the batch size");
    y = o.g.node("Add", {y, o.g.slice(o.in(2), 0, first, first + count)});
  }
  o.set(y);
}

ProtoMessage axis_of(const Op& o) {
  return attribute("axis", o.integer("dim"));
}

void gather(const Op& o) {
  o.set(o.g.node("GatherElements", {o.in(0), o.in(1)}, {axis_of(o)}));
}

void index_select(const Op& o) {
  o.set(o.g.node("Gather", {o.in(0), o.in(1)}, {axis_of(o)}));
}

void scatter_add(const Op& o) {
  o.set(o.g.node("ScatterElements", {o.in(0), o.in(1), o.in(2)},
                 {axis_of(o), attribute("reduction", "add")}));
}

// Adds a reduction over the dimensions of the attribute "dims", or over all dimensions if there is
// none.
void reduce(const Op& o) {
  const size_t rank = o.dims(0).size();
  Sizes axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (const auto* dims = o.find("dims")) axes.assign(dims->begin(), dims->end());
  if (axes.empty()) return same(o);
  const bool keeps = o.result().dims.size() == rank;
  const ProtoMessage keep = attribute("keepdims", int64_t{keeps});
  // Only ReduceSum takes its axes as an input; other reductions take them as an attribute.
  if (o.type == std::string_view("ReduceSum")) {
    return o.set(o.g.node(o.type, {o.in(0), o.g.integers(axes)}, {keep}));
  }
  o.set(o.g.node(o.type, {o.in(0)}, {attribute("axes", axes), keep}));
}

void column_sum(const Op& o) {
  Sizes axes(o.dims(0).size() - 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (axes.empty()) return same(o);
  o.set(o.g.node("ReduceSum", {o.in(0), o.g.integers(axes)}, {attribute("keepdims", int64_t{0})}));
}

void argmax(const Op& o) {
  const bool keeps = o.result().dims.size() == o.dims(0).size();
  o.set(o.g.cast(
      o.g.node("ArgMax", {o.in(0)},
               {attribute("axis", o.integer("dims")), attribute("keepdims", int64_t{keeps})}),
      kInt32));
}

void softmax(const Op& o) {
  o.set(o.g.node(o.type, {o.in(0)}, {attribute("axis", int64_t{-1})}));
}

// Adds an elementwise op that exists in ONNX with the same arguments.
void elementwise(const Op& o) {
  if (o.result().dtype != DType::kF32) o.refuse("a result of another dtype than fp32");
  o.set(o.g.node(o.type, o.all()));
}

void compare(const Op& o) {
  const Names inputs = {o.converted(0, DType::kF32), o.converted(1, DType::kF32)};
  o.set(o.g.cast(o.g.node(o.type, inputs), kUint8));
}

void cast(const Op& o) {
  onnx_type(o.result().dtype, "the result of cast");
  if (o.result().dtype != DType::kF32) o.refuse("another dtype than fp32 as its result");
  o.set(o.converted(0, DType::kF32));
}

void where(const Op& o) {
  const std::string condition = o.g.cast(o.in(0), kBool);
  const DType dtype = o.result().dtype;
  o.set(o.g.node("Where", {condition, o.converted(1, dtype), o.converted(2, dtype)}));
}

void rsqrt(const Op& o) {
  o.set(o.g.node("Reciprocal", {o.g.node("Sqrt", o.all())}));
}

void silu(const Op& o) {
  o.set(sigmoid_times(o.g, o.converted(0, DType::kF32)));
}

// Conversion of an op to ONNX. type: the ONNX node type, if the op becomes a single node.
struct Conversion {
  const char* op;
  void (*add)(const Op& op);
  const char* type = nullptr;
};

constexpr Conversion kConversions[] = {
    {"linear", linear},
    {"ffn", ffn},
    {"swiglu", swiglu},
    {"gelu", [](const Op& o) { o.set(gelu_of(o, o.in(0))); }},
    {"layer_norm", layer_norm},
    {"rms_norm", rms_norm},
    {"batch_norm", batch_norm},
    {"attention", attention},
    {"packed_attention", packed_attention},
    {"conv2d", conv2d},
    {"max_pool2d", max_pool2d},
    {"embedding", embedding},
    {"matmul", elementwise, "MatMul"},
    {"softmax", softmax, "Softmax"},
    {"log_softmax", softmax, "LogSoftmax"},

    {"reshape", reshape},
    {"transpose", transpose},
    {"slice", slice},
    {"concat", concat},
    {"contiguous", same},
    {"full", full},
    {"gather", gather},
    {"index_select", index_select},
    {"scatter_add", scatter_add},

    {"sum", reduce, "ReduceSum"},
    {"mean", reduce, "ReduceMean"},
    {"max", reduce, "ReduceMax"},
    {"min", reduce, "ReduceMin"},
    {"column_sum", column_sum},
    {"argmax", argmax},

    {"add", elementwise, "Add"},
    {"sub", elementwise, "Sub"},
    {"mul", elementwise, "Mul"},
    {"scale", elementwise, "Mul"},
    {"div", elementwise, "Div"},
    {"maximum", elementwise, "Max"},
    {"minimum", elementwise, "Min"},
    {"pow", elementwise, "Pow"},
    {"neg", elementwise, "Neg"},
    {"abs", elementwise, "Abs"},
    {"exp", elementwise, "Exp"},
    {"log", elementwise, "Log"},
    {"sqrt", elementwise, "Sqrt"},
    {"rsqrt", rsqrt},
    {"relu", elementwise, "Relu"},
    {"sigmoid", elementwise, "Sigmoid"},
    {"tanh", elementwise, "Tanh"},
    {"silu", silu},
    {"softplus", elementwise, "Softplus"},
    {"sin", elementwise, "Sin"},
    {"cos", elementwise, "Cos"},
    {"clamp", elementwise, "Clip"},
    {"less", compare, "Less"},
    {"less_equal", compare, "LessOrEqual"},
    {"equal", compare, "Equal"},
    {"where", where},
    {"cast", cast},
};

}  // namespace

void add_op(Graph& graph, const RecordedOp& op) {
  const auto* const row =
      std::ranges::find(kConversions, std::string_view(op.name),
                        [](const Conversion& c) { return std::string_view(c.op); });
  if (row == std::end(kConversions)) {
    throw ConfigError(cat("export_onnx: the op ", op.name, " cannot be exported"));
  }
  row->add({graph, op, row->type});
}

}  // namespace shale::onnx
