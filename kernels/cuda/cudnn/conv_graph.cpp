#include "shale/kernels/cuda/cudnn/conv_graph.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/cuda/cudnn/library.h"

namespace shale::kernels::cudnn {
namespace {

constexpr int64_t kMostWorkspace = int64_t{256}
                                   << 20;  // bytes; engines that need more workspace are not used

// Returns true for success and false for "not supported"; throws for any other status.
bool succeeded(Status status, const char* what) {
  if (status == kSuccess) return true;
  if (status / 1000 == kNotSupported / 1000) return false;
  throw InternalError(cat("conv: cuDNN ", version(), ": ", what, ": ",
                          library()->get_error_string(status), " (", status, ")"));
}
void check(Status status, const char* what) {
  if (!succeeded(status, what)) throw UnavailableError(cat("conv: cuDNN does not support ", what));
}

// Owns a cuDNN descriptor, and destroys it.
class Owned {
 public:
  explicit Owned(DescriptorType type) {
    check(library()->create_descriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
  }
  Owned(Owned&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (descriptor_ != nullptr) library()->destroy_descriptor(descriptor_);
  }
  Descriptor get() const { return descriptor_; }
  Descriptor release() { return std::exchange(descriptor_, nullptr); }

  void set(Attribute name, AttributeType type, int64_t count, const void* elements) {
    check(library()->set_attribute(descriptor_, name, type, count, elements),
          "cudnnBackendSetAttribute");
  }
  void set(Attribute name, DataType value) { set(name, AttributeType::kDataType, 1, &value); }
  void set(Attribute name, int64_t value) { set(name, AttributeType::kInt64, 1, &value); }
  void set(Attribute name, float value) { set(name, AttributeType::kFloat, 1, &value); }
  void set(Attribute name, const Owned& value) {
    set(name, AttributeType::kDescriptor, 1, &value.descriptor_);
  }
  void set(Attribute name, std::initializer_list<int64_t> values) {
    set(name, AttributeType::kInt64, static_cast<int64_t>(values.size()), values.begin());
  }
  // Returns false if the library does not support what the descriptor describes.
  bool finalize() const {
    return succeeded(library()->finalize(descriptor_), "cudnnBackendFinalize");
  }

 private:
  Descriptor descriptor_ = nullptr;
};

DataType data_type(DType dtype) {
  return dtype == DType::kBF16  ? DataType::kBfloat16
         : dtype == DType::kF16 ? DataType::kHalf
                                : DataType::kFloat;
}

// Unique ids of the tensors in a graph.
enum Uid : int64_t { kX = 1, kWeights, kY, kBias, kSum, kSquareSum, kProduct, kBiased };

// The library takes sizes in the order N, C, H, W for any memory order, which the strides define.
Owned tensor(Uid uid, DataType type, std::array<int64_t, 4> nchw, bool is_virtual = false) {
  const auto [n, c, h, w] = nchw;
  constexpr int64_t kAlignment = 16;
  Owned t(DescriptorType::kTensor);
  t.set(Attribute::kTensorDataType, type);
  t.set(Attribute::kTensorDimensions, {n, c, h, w});
  t.set(Attribute::kTensorStrides, {h * w * c, 1, w * c, c});
  t.set(Attribute::kTensorUniqueId, uid);
  t.set(Attribute::kTensorByteAlignment, kAlignment);
  t.set(Attribute::kTensorIsVirtual, AttributeType::kBoolean, 1, &is_virtual);
  check(t.finalize() ? kSuccess : kNotSupported, "a tensor of these sizes");
  return t;
}

// The descriptors of a graph, in the order of their creation.
class Description {
 public:
  Description(const ConvGraph& graph, Handle handle) : g_(graph) {
    const DataType type = data_type(g_.dtype);
    const bool weight_grad = g_.op == ConvOp::kWeightGrad;
    const Owned& x = add(tensor(kX, type, {g_.images, g_.channels, g_.rows, g_.cols}));
    const Owned& w = add(tensor(kWeights, weight_grad ? DataType::kFloat : type,
                                {g_.outs, g_.channels, g_.kernel_rows, g_.kernel_cols}));
    const bool fused = g_.bias || g_.relu;
    const Owned& y = add(tensor(kY, type, y_sizes()));
    if (g_.op == ConvOp::kForward) {
      const Owned& product =
          fused ? add(tensor(kProduct, DataType::kFloat, y_sizes(), /*is_virtual=*/true)) : y;
      convolution(DescriptorType::kConvolutionForward, Attribute::kForwardAlpha, x, w, product);
      if (fused) add_pointwise(product, y);
      if (g_.statistics) add_statistics(y);
    } else if (weight_grad) {
      convolution(DescriptorType::kConvolutionBackwardFilter, Attribute::kBackwardFilterAlpha, x, w,
                  y);
    } else {
      convolution(DescriptorType::kConvolutionBackwardData, Attribute::kBackwardDataAlpha, x, w, y);
    }
    graph_.set(Attribute::kGraphHandle, AttributeType::kHandle, 1, &handle);
    graph_.set(Attribute::kGraphOps, AttributeType::kDescriptor,
               static_cast<int64_t>(operations_.size()), operations_.data());
    supported_ = graph_.finalize();
  }
  bool supported() const { return supported_; }
  const Owned& graph() const { return graph_; }

 private:
  std::array<int64_t, 4> y_sizes() const { return {g_.images, g_.outs, g_.out_rows, g_.out_cols}; }
  std::array<int64_t, 4> channel_sizes() const { return {1, g_.outs, 1, 1}; }

  const Owned& add(Owned&& owned) {
    parts_.push_back(std::make_unique<Owned>(std::move(owned)));
    return *parts_.back();
  }
  const Owned& finished(Owned&& owned, const char* what) {
    check(owned.finalize() ? kSuccess : kNotSupported, what);
    return add(std::move(owned));
  }
  void operation(Owned&& owned, const char* what) {
    operations_.push_back(finished(std::move(owned), what).get());
  }

  // Adds the node of a convolution or of one of its gradients. The three node types number their
  // attributes alike: `alpha` is followed by beta, the convolution, and three tensors: W, X, Y
  // (forward), W, DX, DY (data gradient) or DW, X, DY (weight gradient).
  void convolution(DescriptorType type, Attribute alpha, const Owned& x, const Owned& w,
                   const Owned& y) {
    Owned windows(DescriptorType::kConvolution);
    const auto mode = ConvolutionMode::kCrossCorrelation;
    windows.set(Attribute::kConvolutionSpatialDims, int64_t{2});
    windows.set(Attribute::kConvolutionCompType, DataType::kFloat);
    windows.set(Attribute::kConvolutionConvMode, AttributeType::kConvolutionMode, 1, &mode);
    windows.set(Attribute::kConvolutionFilterStrides, {g_.stride, g_.stride});
    windows.set(Attribute::kConvolutionPrePaddings, {g_.padding, g_.padding});
    windows.set(Attribute::kConvolutionPostPaddings, {g_.padding, g_.padding});
    windows.set(Attribute::kConvolutionDilations, {1, 1});
    const Owned& described = finished(std::move(windows), "a convolution of these windows");
    const auto after = [&](int count) {
      return static_cast<Attribute>(static_cast<int>(alpha) + count);
    };
    Owned conv(type);
    conv.set(alpha, 1.0f);
    conv.set(after(1), 0.0f);
    conv.set(after(2), described);
    conv.set(after(3), w);
    conv.set(after(4), x);
    conv.set(after(5), y);
    operation(std::move(conv), "this convolution");
  }

  void pointwise(PointwiseMode mode, const Owned& x, const Owned* b, const Owned& y) {
    Owned function(DescriptorType::kPointwise);
    function.set(Attribute::kPointwiseMode, AttributeType::kPointwiseMode, 1, &mode);
    function.set(Attribute::kPointwiseMathPrec, DataType::kFloat);
    const Owned& described = finished(std::move(function), "a pointwise function");
    Owned apply(DescriptorType::kOperationPointwise);
    apply.set(Attribute::kOperationPointwiseDescriptor, described);
    apply.set(Attribute::kOperationPointwiseX, x);
    if (b != nullptr) apply.set(Attribute::kOperationPointwiseB, *b);
    apply.set(Attribute::kOperationPointwiseY, y);
    operation(std::move(apply), "a pointwise operation");
  }
  void add_pointwise(const Owned& product, const Owned& y) {
    const Owned* value = &product;
    if (g_.bias) {
      const Owned& bias = add(tensor(kBias, data_type(g_.dtype), channel_sizes()));
      const Owned& sum =
          g_.relu ? add(tensor(kBiased, DataType::kFloat, y_sizes(), /*is_virtual=*/true)) : y;
      pointwise(PointwiseMode::kAdd, *value, &bias, sum);
      value = &sum;
    }
    if (g_.relu) pointwise(PointwiseMode::kReluForward, *value, nullptr, y);
  }
  void add_statistics(const Owned& y) {
    const auto mode = GenStatsMode::kSumSquareSum;
    Owned stats(DescriptorType::kGenStats);
    stats.set(Attribute::kGenStatsMode, AttributeType::kGenStatsMode, 1, &mode);
    stats.set(Attribute::kGenStatsMathPrec, DataType::kFloat);
    stats.set(Attribute::kGenStatsX, y);
    stats.set(Attribute::kGenStatsSum, add(tensor(kSum, DataType::kFloat, channel_sizes())));
    stats.set(Attribute::kGenStatsSquareSum,
              add(tensor(kSquareSum, DataType::kFloat, channel_sizes())));
    operation(std::move(stats), "statistics");
  }

  const ConvGraph& g_;
  std::vector<std::unique_ptr<Owned>> parts_;
  std::vector<Descriptor> operations_;
  Owned graph_{DescriptorType::kOperationGraph};
  bool supported_ = false;
};

// Returns the descriptors in an attribute. cuDNN fills descriptors that its caller, this function,
// has created.
std::vector<Owned> descriptors_of(const Owned& from, Attribute name, DescriptorType type) {
  int64_t count = 0;
  check(library()->get_attribute(from.get(), name, AttributeType::kDescriptor, 0, &count, nullptr),
        "cudnnBackendGetAttribute");
  std::vector<Owned> found;
  std::vector<Descriptor> raw;
  for (int64_t i = 0; i < count; ++i) raw.push_back(found.emplace_back(type).get());
  check(library()->get_attribute(from.get(), name, AttributeType::kDescriptor, count, &count,
                                 raw.data()),
        "cudnnBackendGetAttribute");
  while (std::ssize(found) > count) found.pop_back();
  return found;
}

// Returns whether an engine keeps the guarantees that conv_plan() documents.
bool keeps_promises(const Owned& config) {
  const std::vector<Owned> engine =
      descriptors_of(config, Attribute::kEngineConfigEngine, DescriptorType::kEngine);
  if (engine.empty()) return false;
  std::array<NumericalNote, 32> notes{};
  int64_t count = 0;
  check(library()->get_attribute(engine[0].get(), Attribute::kEngineNumericalNote,
                                 AttributeType::kNumericalNote, std::ssize(notes), &count,
                                 notes.data()),
        "an engine's notes");
  return std::all_of(notes.begin(), notes.begin() + std::min<int64_t>(count, std::ssize(notes)),
                     [](NumericalNote note) { return note == NumericalNote::kTensorCore; });
}

class Plan final : public ConvPlan {
 public:
  // `plan` is an execution plan that has been finalized.
  Plan(const ConvGraph& graph, Handle handle, Owned&& plan, int64_t bytes)
      : graph_(graph), handle_(handle), plan_(plan.release()), bytes_(bytes) {}

  int64_t workspace_bytes() const override { return bytes_; }

  void execute(void* stream, const ConvPointers& p, void* workspace) const override {
    std::vector<int64_t> uids = {kX, kWeights, kY};
    std::vector<const void*> data = {p.x, p.weights, p.y};
    if (graph_.bias) uids.push_back(kBias), data.push_back(p.bias);
    if (graph_.statistics) {
      uids.insert(uids.end(), {kSum, kSquareSum});
      data.insert(data.end(), {p.sum, p.square_sum});
    }
    Owned pack(DescriptorType::kVariantPack);
    pack.set(Attribute::kPackUniqueIds, AttributeType::kInt64, std::ssize(uids), uids.data());
    pack.set(Attribute::kPackDataPointers, AttributeType::kVoidPtr, std::ssize(data), data.data());
    pack.set(Attribute::kPackWorkspace, AttributeType::kVoidPtr, 1, &workspace);
    check(pack.finalize() ? kSuccess : kNotSupported, "these pointers");
    static std::mutex mutex;  // a cuDNN handle has one stream at a time
    const std::lock_guard lock(mutex);
    check(library()->set_stream(handle_, stream), "cudnnSetStream");
    check(library()->execute(handle_, plan_, pack.get()), "cudnnBackendExecute");
  }

 private:
  ConvGraph graph_;
  Handle handle_;
  Descriptor plan_;  // never destroyed, because plans are cached until the process ends
  int64_t bytes_;
};

std::unique_ptr<ConvPlan> make_plan(Handle handle, const ConvGraph& graph) {
  const Description description(graph, handle);
  if (!description.supported()) return nullptr;
  for (const HeurMode mode : {HeurMode::kA, HeurMode::kFallback}) {
    Owned heuristics(DescriptorType::kEngineHeuristics);
    heuristics.set(Attribute::kHeuristicsOperationGraph, description.graph());
    heuristics.set(Attribute::kHeuristicsMode, AttributeType::kHeurMode, 1, &mode);
    if (!heuristics.finalize()) continue;
    for (const Owned& config :
         descriptors_of(heuristics, Attribute::kHeuristicsResults, DescriptorType::kEngineConfig)) {
      if (!keeps_promises(config)) continue;
      Owned plan(DescriptorType::kExecutionPlan);
      plan.set(Attribute::kPlanHandle, AttributeType::kHandle, 1, &handle);
      plan.set(Attribute::kPlanEngineConfig, config);
      if (!plan.finalize()) continue;
      int64_t bytes = 0, count = 0;
      check(library()->get_attribute(plan.get(), Attribute::kPlanWorkspaceSize,
                                     AttributeType::kInt64, 1, &count, &bytes),
            "a plan's workspace");
      if (bytes > kMostWorkspace) continue;
      return std::make_unique<Plan>(graph, handle, std::move(plan), bytes);
    }
  }
  return nullptr;
}

}  // namespace

const ConvPlan* conv_plan(int device, const ConvGraph& graph) {
  if (library() == nullptr) return nullptr;
  static std::mutex mutex;
  static std::map<int, Handle> handles;  // never destroyed, like the library
  static std::map<std::pair<int, ConvGraph>, std::unique_ptr<ConvPlan>> plans;
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = plans.try_emplace({device, graph});
  if (!is_new) return place->second.get();
  Handle& handle = handles[device];
  if (handle == nullptr) check(library()->create(&handle), "cudnnCreate");
  place->second = make_plan(handle, graph);
  return place->second.get();
}

}  // namespace shale::kernels::cudnn
