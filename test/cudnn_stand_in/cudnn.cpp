// A libcudnn.so.9 for machines without GPUs. It holds descriptors to the documented rules of
// cuDNN's graphs and says what it refused, and computes convolutions in f64, in host memory: that
// of an emulated device.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "stand_in.h"

namespace shale::test {
namespace {

using namespace kernels::cudnn;
using A = Attribute;
using T = AttributeType;
using D = DescriptorType;

CudnnCounts counts;
std::string said;
void* stream_now = nullptr;

// A rule that was broken, as the status that the library returns.
struct Refused : std::runtime_error {
  Refused(Status code, const std::string& what) : std::runtime_error(what), status(code) {}
  Status status;
};
void want(bool holds, const std::string& rule, Status status = kBadParam) {
  if (!holds) throw Refused(status, rule);
}

struct Rule {
  T type;
  int64_t least = 1, most = 1;  // elements
  bool required = true;
};
using Rules = std::map<A, Rule>;

Rules convolution_rules(A alpha) {
  Rules rules;
  for (int i = 0; i < 6; ++i) {
    rules[static_cast<A>(static_cast<int>(alpha) + i)] = {i < 2 ? T::kFloat : T::kDescriptor};
  }
  return rules;
}

const Rules& rules_of(D type) {
  static const std::map<D, Rules> all = {
      {D::kTensor,
       {{A::kTensorDataType, {T::kDataType}},
        {A::kTensorDimensions, {T::kInt64, 1, 8}},
        {A::kTensorStrides, {T::kInt64, 1, 8}},
        {A::kTensorUniqueId, {T::kInt64}},
        {A::kTensorByteAlignment, {T::kInt64}},
        {A::kTensorIsVirtual, {T::kBoolean, 1, 1, false}}}},
      {D::kConvolution,
       {{A::kConvolutionSpatialDims, {T::kInt64}},
        {A::kConvolutionCompType, {T::kDataType}},
        {A::kConvolutionConvMode, {T::kConvolutionMode}},
        {A::kConvolutionFilterStrides, {T::kInt64, 1, 3}},
        {A::kConvolutionPrePaddings, {T::kInt64, 1, 3}},
        {A::kConvolutionPostPaddings, {T::kInt64, 1, 3}},
        {A::kConvolutionDilations, {T::kInt64, 1, 3}}}},
      {D::kConvolutionForward, convolution_rules(A::kForwardAlpha)},
      {D::kConvolutionBackwardData, convolution_rules(A::kBackwardDataAlpha)},
      {D::kConvolutionBackwardFilter, convolution_rules(A::kBackwardFilterAlpha)},
      {D::kPointwise,
       {{A::kPointwiseMode, {T::kPointwiseMode}}, {A::kPointwiseMathPrec, {T::kDataType}}}},
      {D::kOperationPointwise,
       {{A::kOperationPointwiseDescriptor, {T::kDescriptor}},
        {A::kOperationPointwiseX, {T::kDescriptor}},
        {A::kOperationPointwiseB, {T::kDescriptor, 1, 1, false}},
        {A::kOperationPointwiseY, {T::kDescriptor}}}},
      {D::kGenStats,
       {{A::kGenStatsMode, {T::kGenStatsMode}},
        {A::kGenStatsMathPrec, {T::kDataType}},
        {A::kGenStatsX, {T::kDescriptor}},
        {A::kGenStatsSum, {T::kDescriptor}},
        {A::kGenStatsSquareSum, {T::kDescriptor}}}},
      {D::kOperationGraph,
       {{A::kGraphHandle, {T::kHandle}}, {A::kGraphOps, {T::kDescriptor, 1, 16}}}},
      {D::kEngineHeuristics,
       {{A::kHeuristicsOperationGraph, {T::kDescriptor}}, {A::kHeuristicsMode, {T::kHeurMode}}}},
      {D::kEngine, {}},
      {D::kEngineConfig, {{A::kEngineConfigEngine, {T::kDescriptor}}}},
      {D::kExecutionPlan,
       {{A::kPlanHandle, {T::kHandle}}, {A::kPlanEngineConfig, {T::kDescriptor}}}},
      {D::kVariantPack,
       {{A::kPackUniqueIds, {T::kInt64, 1, 16}},
        {A::kPackDataPointers, {T::kVoidPtr, 1, 16}},
        {A::kPackWorkspace, {T::kVoidPtr}}}}};
  const auto found = all.find(type);
  want(found != all.end(), cat("descriptor type ", static_cast<int>(type), " is not known"),
       kNotSupported);
  return found->second;
}

size_t bytes_of(T type) {
  if (type == T::kBoolean) return sizeof(bool);
  const bool wide =
      type == T::kInt64 || type == T::kVoidPtr || type == T::kHandle || type == T::kDescriptor;
  return wide ? 8 : 4;
}

// What a tensor was when it was finalized.
struct Tensor {
  int64_t uid = 0, alignment = 1;
  DataType type = DataType::kFloat;
  std::vector<int64_t> dims, strides;
  bool is_virtual = false;

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

struct Object;
struct Operation {
  D type{};
  const Object* object = nullptr;
  std::vector<Tensor> reads;
  std::vector<Tensor> writes;
};

// Tensors and operations are copied to what is made of them: descriptors may be destroyed before.
struct Object {
  D type{};
  bool finalized = false;
  std::map<A, std::vector<char>> values{};
  std::map<A, int64_t> sizes{};
  std::vector<std::shared_ptr<Object>> kept{};
  int engine = 0;

  template <typename V>
  std::vector<V> all(A name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<V> result(found->second.size() / sizeof(V));
    std::copy_n(reinterpret_cast<const V*>(found->second.data()), result.size(), result.begin());
    return result;
  }
  template <typename V>
  V one(A name) const {
    return all<V>(name).at(0);
  }
};

std::map<Descriptor, std::shared_ptr<Object>>& objects() {
  static std::map<Descriptor, std::shared_ptr<Object>> all;
  return all;
}
std::shared_ptr<Object> object_of(Descriptor descriptor) {
  want(descriptor != nullptr, "a descriptor is null", kBadParamNullPointer);
  const auto found = objects().find(descriptor);
  want(found != objects().end(), "a descriptor was never made, or is destroyed");
  return found->second;
}
// One that another's attribute names, kept by it.
const Object& part(const Object& of, A name, size_t index = 0) {
  const auto wanted = of.all<Descriptor>(name).at(index);
  for (const auto& kept : of.kept) {
    if (kept.get() == wanted) return *kept;
  }
  throw Refused(kBadParam, "an attribute names a descriptor that was not kept");
}

Tensor tensor_of(const Object& of, A name) {
  const Object& t = part(of, name);
  want(t.type == D::kTensor, cat("attribute ", static_cast<int>(name), " is not a tensor"));
  return {.uid = t.one<int64_t>(A::kTensorUniqueId),
          .alignment = t.one<int64_t>(A::kTensorByteAlignment),
          .type = t.one<DataType>(A::kTensorDataType),
          .dims = t.all<int64_t>(A::kTensorDimensions),
          .strides = t.all<int64_t>(A::kTensorStrides),
          .is_virtual =
              !t.values.contains(A::kTensorIsVirtual) ? false : t.one<bool>(A::kTensorIsVirtual)};
}

bool is_convolution(D type) {
  return type == D::kConvolutionForward || type == D::kConvolutionBackwardData ||
         type == D::kConvolutionBackwardFilter;
}
A attribute(const Object& conv, int number) {
  const A alpha = conv.type == D::kConvolutionForward        ? A::kForwardAlpha
                  : conv.type == D::kConvolutionBackwardData ? A::kBackwardDataAlpha
                                                             : A::kBackwardFilterAlpha;
  return static_cast<A>(static_cast<int>(alpha) + number);
}

Operation operation_of(const Object& o) {
  Operation op{.type = o.type, .object = &o};
  if (is_convolution(o.type)) {
    const Tensor w = tensor_of(o, attribute(o, 3)), x = tensor_of(o, attribute(o, 4));
    const Tensor y = tensor_of(o, attribute(o, 5));
    if (o.type == D::kConvolutionForward) op.reads = {w, x}, op.writes = {y};
    if (o.type == D::kConvolutionBackwardData) op.reads = {w, y}, op.writes = {x};
    if (o.type == D::kConvolutionBackwardFilter) op.reads = {x, y}, op.writes = {w};
  } else if (o.type == D::kOperationPointwise) {
    op.reads = {tensor_of(o, A::kOperationPointwiseX)};
    if (o.values.contains(A::kOperationPointwiseB)) {
      op.reads.push_back(tensor_of(o, A::kOperationPointwiseB));
    }
    op.writes = {tensor_of(o, A::kOperationPointwiseY)};
  } else {
    want(o.type == D::kGenStats, "a graph has something that is no operation");
    op.reads = {tensor_of(o, A::kGenStatsX)};
    op.writes = {tensor_of(o, A::kGenStatsSum), tensor_of(o, A::kGenStatsSquareSum)};
  }
  return op;
}

std::vector<Operation> operations_of(const Object& graph) {
  std::vector<Operation> operations;
  for (size_t i = 0; i < graph.all<Descriptor>(A::kGraphOps).size(); ++i) {
    operations.push_back(operation_of(part(graph, A::kGraphOps, i)));
  }
  return operations;
}

// ---- What a descriptor must hold when it is finalized ----

void check_tensor(const Object& o) {
  const auto dims = o.all<int64_t>(A::kTensorDimensions);
  const auto strides = o.all<int64_t>(A::kTensorStrides);
  const int64_t alignment = o.one<int64_t>(A::kTensorByteAlignment);
  want(dims.size() == strides.size(), "a tensor has as many strides as dimensions");
  for (const int64_t size : dims) want(size > 0, "a tensor's dimensions are positive");
  for (const int64_t stride : strides) want(stride > 0, "a tensor's strides are positive");
  const int64_t element = o.one<DataType>(A::kTensorDataType) == DataType::kFloat ? 4 : 2;
  want(alignment >= element && (alignment & (alignment - 1)) == 0,
       "a tensor's alignment is a power of two, an element's size at least");
}

void check_windows(const Object& o) {
  const auto dims = static_cast<size_t>(o.one<int64_t>(A::kConvolutionSpatialDims));
  for (const A name : {A::kConvolutionFilterStrides, A::kConvolutionPrePaddings,
                       A::kConvolutionPostPaddings, A::kConvolutionDilations}) {
    const auto values = o.all<int64_t>(name);
    want(values.size() == dims, "a convolution's lists have a number for each spatial dimension");
    const bool padding = name == A::kConvolutionPrePaddings || name == A::kConvolutionPostPaddings;
    for (const int64_t value : values) {
      want(value >= (padding ? 0 : 1), "strides and dilations are positive, paddings not negative");
    }
  }
}

void check_convolution(const Object& o) {
  const Object& windows = part(o, attribute(o, 2));
  want(windows.type == D::kConvolution, "a convolution operation has a convolution descriptor");
  const Tensor w = tensor_of(o, attribute(o, 3)), x = tensor_of(o, attribute(o, 4));
  const Tensor y = tensor_of(o, attribute(o, 5));
  const auto stride = windows.all<int64_t>(A::kConvolutionFilterStrides);
  const auto before = windows.all<int64_t>(A::kConvolutionPrePaddings);
  const auto after = windows.all<int64_t>(A::kConvolutionPostPaddings);
  const auto dilation = windows.all<int64_t>(A::kConvolutionDilations);
  want(x.dims.size() == 4 && w.dims.size() == 4 && y.dims.size() == 4 && stride.size() == 2,
       "a convolution of images has tensors of 4 dimensions");
  want(x.dims[0] == y.dims[0], "x and y have as many images");
  want(y.dims[1] == w.dims[0] && x.dims[1] % w.dims[1] == 0, "channels fit the weights");
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach = (w.dims[i + 2] - 1) * dilation[i] + 1;
    want(y.dims[i + 2] == (x.dims[i + 2] + before[i] + after[i] - reach) / stride[i] + 1,
         "y has the size that windows leave");
  }
}

void check_pointwise(const Object& o) {
  const Object& function = part(o, A::kOperationPointwiseDescriptor);
  want(function.type == D::kPointwise, "a pointwise operation has a pointwise descriptor");
  const bool two = function.one<PointwiseMode>(A::kPointwiseMode) == PointwiseMode::kAdd;
  want(two == o.values.contains(A::kOperationPointwiseB), "a function has as many operands");
  const Operation op = operation_of(o);
  for (const Tensor& from : op.reads) {
    want(from.dims.size() == op.writes[0].dims.size(), "operands have as many dimensions");
    for (size_t i = 0; i < from.dims.size(); ++i) {
      want(from.dims[i] == op.writes[0].dims[i] || from.dims[i] == 1, "operands can be broadcast");
    }
  }
}

void check_statistics(const Object& o) {
  const Operation op = operation_of(o);
  for (const Tensor& sum : op.writes) {
    want(sum.dims == std::vector<int64_t>{1, op.reads[0].dims[1], 1, 1},
         "statistics are [1, C, 1, 1]");
    want(sum.type == DataType::kFloat, "statistics are in f32");
  }
}

void check_graph(const Object& o) {
  std::map<int64_t, Tensor> tensors;
  std::map<int64_t, int> written, read;
  for (const Operation& op : operations_of(o)) {
    const auto meet = [&](const Tensor& t) {
      const auto [place, is_new] = tensors.try_emplace(t.uid, t);
      want(is_new || place->second == t, cat("unique id ", t.uid, " is two tensors'"));
    };
    for (const Tensor& t : op.reads) meet(t), ++read[t.uid];
    for (const Tensor& t : op.writes) meet(t), ++written[t.uid];
  }
  for (const auto& [uid, tensor] : tensors) {
    want(written[uid] <= 1, cat("tensor ", uid, " is written once"));
    if (!tensor.is_virtual) continue;
    want(written[uid] == 1 && read[uid] > 0,
         cat("virtual tensor ", uid, " is written and read in the graph"));
  }
}

void check_pack(const Object& o) {
  const auto uids = o.all<int64_t>(A::kPackUniqueIds);
  const auto data = o.all<void*>(A::kPackDataPointers);
  want(uids.size() == data.size(), "a variant pack has a pointer for each id");
  want(std::set<int64_t>(uids.begin(), uids.end()).size() == uids.size(), "ids are unique");
  for (const void* const at : data) want(at != nullptr, "a pointer is null", kBadParamNullPointer);
}

void check_finalized(const Object& o) {
  for (const auto& [name, rule] : rules_of(o.type)) {
    want(!rule.required || o.values.contains(name),
         cat("attribute ", static_cast<int>(name), " is missing"));
  }
  if (o.type == D::kTensor) check_tensor(o);
  if (o.type == D::kConvolution) check_windows(o);
  if (is_convolution(o.type)) check_convolution(o);
  if (o.type == D::kOperationPointwise) check_pointwise(o);
  if (o.type == D::kGenStats) check_statistics(o);
  if (o.type == D::kOperationGraph) check_graph(o);
  if (o.type == D::kVariantPack) check_pack(o);
  if (o.type == D::kExecutionPlan) ++counts.plans;
}

// ---- Execution ----

constexpr int64_t kWorkspaceBytes = 96;  // of every plan, all of which it writes

double load(const Tensor& t, const void* data, int64_t i) {
  if (t.type == DataType::kFloat) return static_cast<const float*>(data)[i];
  if (t.type == DataType::kHalf) return float(static_cast<const f16*>(data)[i]);
  return float(static_cast<const bf16*>(data)[i]);
}
void store(const Tensor& t, void* data, int64_t i, double value) {
  const auto f = static_cast<float>(value);
  if (t.type == DataType::kFloat) static_cast<float*>(data)[i] = f;
  if (t.type == DataType::kHalf) static_cast<f16*>(data)[i] = f16(f);
  if (t.type == DataType::kBfloat16) static_cast<bf16*>(data)[i] = bf16(f);
}

// Tensors by id, as arrays of f64 in the order of their dimensions.
struct Values {
  std::map<int64_t, std::vector<double>> of;

  static int64_t numel(const Tensor& t) {
    int64_t count = 1;
    for (const int64_t size : t.dims) count *= size;
    return count;
  }
  static int64_t offset(const Tensor& t, int64_t i) {
    int64_t at = 0;
    for (size_t d = t.dims.size(); d-- > 0; i /= t.dims[d]) at += i % t.dims[d] * t.strides[d];
    return at;
  }
};

void convolve(const Operation& op, Values& values) {
  const Object& o = *op.object;
  const Object& windows = part(o, attribute(o, 2));
  const Tensor wt = tensor_of(o, attribute(o, 3)), xt = tensor_of(o, attribute(o, 4));
  const Tensor yt = tensor_of(o, attribute(o, 5));
  const auto stride = windows.all<int64_t>(A::kConvolutionFilterStrides);
  const auto padding = windows.all<int64_t>(A::kConvolutionPrePaddings);
  const auto dilation = windows.all<int64_t>(A::kConvolutionDilations);
  values.of[op.writes[0].uid].assign(static_cast<size_t>(Values::numel(op.writes[0])), 0.0);
  double* const w = values.of[wt.uid].data();
  double* const x = values.of[xt.uid].data();
  double* const y = values.of[yt.uid].data();
  const auto at = [](const Tensor& t, int64_t a, int64_t b, int64_t c, int64_t d) {
    return ((a * t.dims[1] + b) * t.dims[2] + c) * t.dims[3] + d;
  };
  for (int64_t n = 0; n < yt.dims[0]; ++n)
    for (int64_t k = 0; k < yt.dims[1]; ++k)
      for (int64_t i = 0; i < yt.dims[2]; ++i)
        for (int64_t j = 0; j < yt.dims[3]; ++j)
          for (int64_t u = 0; u < wt.dims[2]; ++u)
            for (int64_t v = 0; v < wt.dims[3]; ++v) {
              const int64_t h = i * stride[0] - padding[0] + u * dilation[0];
              const int64_t l = j * stride[1] - padding[1] + v * dilation[1];
              if (h < 0 || h >= xt.dims[2] || l < 0 || l >= xt.dims[3]) continue;
              for (int64_t c = 0; c < wt.dims[1]; ++c) {
                double& of_y = y[at(yt, n, k, i, j)];
                double& of_x = x[at(xt, n, c, h, l)];
                double& of_w = w[at(wt, k, c, u, v)];
                if (op.type == D::kConvolutionForward) of_y += of_x * of_w;
                if (op.type == D::kConvolutionBackwardData) of_x += of_y * of_w;
                if (op.type == D::kConvolutionBackwardFilter) of_w += of_y * of_x;
              }
            }
}

void apply(const Operation& op, Values& values) {
  if (is_convolution(op.type)) return convolve(op, values);
  const std::vector<double>& x = values.of[op.reads[0].uid];
  const std::vector<int64_t>& dims = op.reads[0].dims;
  const auto channel = [&](size_t i) {
    return static_cast<int64_t>(i) / (dims[2] * dims[3]) % dims[1];
  };
  if (op.type == D::kGenStats) {
    std::vector<double> sum(static_cast<size_t>(dims[1])), square = sum;
    for (size_t i = 0; i < x.size(); ++i) {
      sum[size_t(channel(i))] += x[i], square[size_t(channel(i))] += x[i] * x[i];
    }
    values.of[op.writes[0].uid] = sum, values.of[op.writes[1].uid] = square;
    return;
  }
  std::vector<double> y = x;
  if (op.reads.size() == 2) {
    const std::vector<double>& b = values.of[op.reads[1].uid];
    for (size_t i = 0; i < y.size(); ++i) y[i] += b[b.size() == 1 ? 0 : size_t(channel(i))];
  } else {
    for (double& value : y) value = std::max(value, 0.0);
  }
  values.of[op.writes[0].uid] = y;
}

// What an execution needs of its descriptors, which may be gone when it runs.
struct Execution {
  std::vector<std::shared_ptr<Object>> kept;
  std::vector<Operation> operations;
  std::map<int64_t, char*> pointers;
  char* workspace = nullptr;
};

Execution execution_of(const Object& plan, const Object& pack) {
  const Object& config = part(plan, A::kPlanEngineConfig);
  const std::shared_ptr<Object>& graph = config.kept.at(0);
  if (config.engine == kNonDeterministicEngine) ++counts.non_deterministic;
  Execution run{.kept = {graph}, .operations = operations_of(*graph)};
  const auto uids = pack.all<int64_t>(A::kPackUniqueIds);
  const auto data = pack.all<char*>(A::kPackDataPointers);
  for (size_t i = 0; i < uids.size(); ++i) run.pointers[uids[i]] = data[i];
  run.workspace = pack.one<char*>(A::kPackWorkspace);
  want(run.workspace != nullptr, "a plan that wants workspace gets some", kBadParamNullPointer);
  std::set<int64_t> known, computed;
  for (const Operation& op : run.operations) {
    for (const Tensor& t : op.reads) {
      want(!t.is_virtual || computed.contains(t.uid),
           "operations come in the order in which they need each other");
    }
    for (const std::vector<Tensor>* tensors : {&op.reads, &op.writes}) {
      for (const Tensor& t : *tensors) {
        if (t.is_virtual) continue;
        known.insert(t.uid);
        want(run.pointers.contains(t.uid), cat("tensor ", t.uid, " has no pointer"));
        want(reinterpret_cast<uintptr_t>(run.pointers[t.uid]) % size_t(t.alignment) == 0,
             cat("tensor ", t.uid, " is not aligned as it says"));
      }
    }
    for (const Tensor& t : op.writes) computed.insert(t.uid);
  }
  for (const int64_t uid : uids) want(known.contains(uid), cat("id ", uid, " is no tensor's"));
  return run;
}

void execute(Execution& run, void* stream) {
  const auto written = [&](const void* data, int64_t bytes) {
    if (stream != nullptr) counts.written(stream, data, static_cast<size_t>(bytes));
  };
  std::fill_n(run.workspace, kWorkspaceBytes, '\xff');
  written(run.workspace, kWorkspaceBytes);
  Values values;
  for (const Operation& op : run.operations) {
    for (const Tensor& t : op.reads) {
      if (values.of.contains(t.uid)) continue;
      for (int64_t i = 0; i < Values::numel(t); ++i) {
        values.of[t.uid].push_back(load(t, run.pointers[t.uid], Values::offset(t, i)));
      }
    }
    apply(op, values);
    for (const Tensor& t : op.writes) {
      if (t.is_virtual) continue;
      for (int64_t i = 0; i < Values::numel(t); ++i) {
        store(t, run.pointers[t.uid], Values::offset(t, i), values.of[t.uid][size_t(i)]);
      }
      written(run.pointers[t.uid], Values::numel(t) * (t.type == DataType::kFloat ? 4 : 2));
    }
  }
}

template <typename Fn>
Status answer(const Fn& fn) {
  try {
    fn();
    return kSuccess;
  } catch (const Refused& refused) {
    said = refused.what();
    return refused.status;
  }
}

void set(Descriptor descriptor, A name, T type, int64_t count, const void* elements) {
  Object& o = *object_of(descriptor);
  want(!o.finalized, "a finalized descriptor does not change", kNotInitialized);
  const Rules& rules = rules_of(o.type);
  const auto rule = rules.find(name);
  want(rule != rules.end(), cat("descriptors of type ", static_cast<int>(o.type),
                                " have no attribute ", static_cast<int>(name)));
  want(type == rule->second.type, cat("attribute ", static_cast<int>(name), " has another type"));
  want(count >= rule->second.least && count <= rule->second.most,
       cat("attribute ", static_cast<int>(name), " has another number of elements"));
  want(elements != nullptr, "elements are null", kBadParamNullPointer);
  const auto* const bytes = static_cast<const char*>(elements);
  o.values[name].assign(bytes, bytes + static_cast<size_t>(count) * bytes_of(type));
  if (type != T::kDescriptor) return;
  for (const Descriptor named : o.all<Descriptor>(name)) {
    const std::shared_ptr<Object> other = object_of(named);
    want(other->finalized, "a descriptor that another names is finalized", kBadParamNotFinalized);
    o.kept.push_back(other);
  }
}

void get(Descriptor descriptor, A name, T type, int64_t requested, int64_t* count, void* elements) {
  Object& o = *object_of(descriptor);
  want(o.finalized, "attributes are asked of a finalized descriptor", kBadParamNotFinalized);
  want(count != nullptr, "the count is null", kBadParamNullPointer);
  const auto fill = [&](D wanted, int made, const auto& make) {
    want(type == T::kDescriptor, "this attribute holds descriptors");
    *count = made;
    for (int64_t i = 0; i < std::min<int64_t>(requested, made); ++i) {
      Object& to = *object_of(static_cast<Descriptor*>(elements)[i]);
      want(to.type == wanted, "what is filled has the type of what it is filled with");
      make(to, static_cast<int>(i));
      to.finalized = true;
    }
  };
  if (o.type == D::kEngineHeuristics && name == A::kHeuristicsResults) {
    fill(D::kEngineConfig, kEngines,
         [&](Object& to, int i) { to.engine = i, to.kept = {o.kept.at(0)}; });
  } else if (o.type == D::kEngineConfig && name == A::kEngineConfigEngine) {
    fill(D::kEngine, 1, [&](Object& to, int) { to.engine = o.engine; });
  } else if (o.type == D::kEngine && name == A::kEngineNumericalNote) {
    want(type == T::kNumericalNote && requested >= 2, "notes have their type, and room");
    auto* const notes = static_cast<NumericalNote*>(elements);
    notes[0] = NumericalNote::kTensorCore, notes[1] = NumericalNote::kNonDeterministic;
    *count = o.engine == kNonDeterministicEngine ? 2 : 1;
  } else if (o.type == D::kExecutionPlan && name == A::kPlanWorkspaceSize) {
    want(type == T::kInt64 && requested == 1, "a workspace's size is one number");
    *static_cast<int64_t*>(elements) = kWorkspaceBytes, *count = 1;
  } else {
    throw Refused(kBadParam, "there is no such attribute to ask for");
  }
}

}  // namespace
}  // namespace shale::test

using namespace shale::test;

extern "C" {

CudnnCounts* shale_test_cudnn_counts() {
  return &counts;
}
const char* shale_test_cudnn_said() {
  return said.c_str();
}
size_t cudnnGetVersion() {
  return 91002;
}
const char* cudnnGetErrorString(Status) {
  return said.c_str();
}
Status cudnnCreate(Handle* handle) {
  static int made;
  *handle = reinterpret_cast<Handle>(&made);
  return kSuccess;
}
Status cudnnSetStream(Handle, void* stream) {
  stream_now = stream;
  return kSuccess;
}
Status cudnnBackendCreateDescriptor(D type, Descriptor* descriptor) {
  return answer([&] {
    rules_of(type);
    auto object = std::make_shared<Object>();
    object->type = type;
    *descriptor = object.get();
    objects()[*descriptor] = object;
  });
}
Status cudnnBackendDestroyDescriptor(Descriptor descriptor) {
  return answer([&] {
    object_of(descriptor);
    objects().erase(descriptor);
  });
}
Status cudnnBackendSetAttribute(Descriptor descriptor, A name, T type, int64_t count,
                                const void* elements) {
  return answer([&] { set(descriptor, name, type, count, elements); });
}
Status cudnnBackendGetAttribute(Descriptor descriptor, A name, T type, int64_t requested,
                                int64_t* count, void* elements) {
  return answer([&] { get(descriptor, name, type, requested, count, elements); });
}
Status cudnnBackendFinalize(Descriptor descriptor) {
  return answer([&] {
    Object& o = *object_of(descriptor);
    check_finalized(o);
    o.finalized = true;
  });
}
Status cudnnBackendExecute(Handle handle, Descriptor plan, Descriptor pack) {
  return answer([&] {
    want(handle != nullptr, "the handle is null", kBadParamNullPointer);
    const Object& p = *object_of(plan);
    const Object& with = *object_of(pack);
    want(p.type == D::kExecutionPlan && p.finalized && with.finalized,
         "plan and pack are finalized", kBadParamNotFinalized);
    auto run = std::make_shared<Execution>(execution_of(p, with));
    ++counts.executions;
    if (stream_now == nullptr) return execute(*run, nullptr);
    counts.queue(stream_now, [run, stream = stream_now] { execute(*run, stream); });
  });
}

}  // extern "C"
