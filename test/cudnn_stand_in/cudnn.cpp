// A libcudnn.so.9 for machines without GPUs. It checks descriptors against the documented rules of
// cuDNN graphs, and reports each rule that is violated. It computes convolutions in f64 in host
// memory, for emulated devices.
#include <algorithm>

#include "execution.h"
#include "stand_in.h"

namespace shale::test {
namespace {

CudnnCounts counts;
std::string said;
void* stream_now = nullptr;

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
    if (o.type == D::kExecutionPlan) ++counts.plans;
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
    if (run->engine == kNonDeterministicEngine) ++counts.non_deterministic;
    if (stream_now == nullptr) return execute(*run, {});
    counts.queue(stream_now, [run, stream = stream_now] {
      execute(*run, [=](const void* data, size_t bytes) { counts.written(stream, data, bytes); });
    });
  });
}

}  // extern "C"
