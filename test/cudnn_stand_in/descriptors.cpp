#include "descriptors.h"

#include <set>

namespace shale::test {

namespace {

Rules convolution_rules(A alpha) {
  Rules rules;
  for (int i = 0; i < 6; ++i) {
    rules[static_cast<A>(static_cast<int>(alpha) + i)] = {i < 2 ? T::kFloat : T::kDescriptor};
  }
  return rules;
}

}  // namespace

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
const Object& part(const Object& of, A name, size_t index) {
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

namespace {

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

}  // namespace

std::vector<Operation> operations_of(const Object& graph) {
  std::vector<Operation> operations;
  for (size_t i = 0; i < graph.all<Descriptor>(A::kGraphOps).size(); ++i) {
    operations.push_back(operation_of(part(graph, A::kGraphOps, i)));
  }
  return operations;
}

// ---- What each descriptor requires when it is finalized ----

namespace {

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

}  // namespace

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
}

}  // namespace shale::test
