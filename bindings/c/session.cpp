#include "shale/bindings/c/session.h"

#include <unistd.h>

#include <deque>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::c {
namespace {

struct Slot {
  uint64_t use = 0;  // number of objects that this slot has had
  Kind kind = Kind::kNone;
  std::shared_ptr<void> object;
};

// Table of handles. It outlives sessions, so that handles of earlier ones are detected.
struct Handles {
  std::deque<Slot> slots;
  std::deque<size_t> free;  // free slots, reused in order of release
  std::unique_ptr<Session> session;
};

Handles& handles() {
  // never destroyed, see State in call.cpp
  static Handles& handles = *std::make_unique<Handles>().release();
  return handles;
}

// Fields of a handle, from low to high bits: index of the slot, use count of the slot, kind.
constexpr int kSlotBits = 28, kUseBits = 32;
static_assert(sizeof(void*) == 8);

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kRuntime: return "a runtime";
    case Kind::kTensor: return "a tensor";
    case Kind::kModule: return "a module";
    case Kind::kOptimizer: return "an optimizer";
    case Kind::kMetrics: return "a metrics file";
    case Kind::kTextModel: return "a text model";
    case Kind::kNone: break;
  }
  return "nothing";
}

uint64_t number_of(Kind kind, uint64_t use, size_t slot) {
  return (uint64_t(kind) << (kSlotBits + kUseBits)) |
         ((use & ((uint64_t{1} << kUseBits) - 1)) << kSlotBits) | slot;
}

Slot& slot_of(Kind kind, const void* handle, std::string_view argument) {
  if (handle == nullptr) fail_argument(argument, " is NULL, expected ", name_of(kind));
  const auto number = reinterpret_cast<uintptr_t>(handle);
  const size_t index = number & ((uint64_t{1} << kSlotBits) - 1);
  const auto given = static_cast<Kind>(number >> (kSlotBits + kUseBits));
  std::deque<Slot>& slots = handles().slots;
  const bool known = index < slots.size() && given >= Kind::kRuntime && given <= Kind::kTextModel;
  if (known && number == number_of(given, slots[index].use, index) && slots[index].kind == given) {
    if (given == kind) return slots[index];
    fail_argument(argument, " is ", name_of(given), ", expected ", name_of(kind));
  }
  if (known && given == kind) {
    fail_argument(argument, " is ", name_of(kind), " that was destroyed");
  }
  fail_argument(argument, " is not a handle, expected ", name_of(kind));
}

void free_slot(size_t index) {
  Slot& slot = handles().slots[index];
  slot.kind = Kind::kNone;
  const std::shared_ptr<void> object = std::move(slot.object);
  handles().free.push_back(index);
}

void free_all(Kind kind) {
  for (size_t i = handles().slots.size(); i-- > 0;) {
    if (handles().slots[i].kind == kind) free_slot(i);
  }
}

}  // namespace

Session& session() {
  if (handles().session == nullptr) {
    throw CallError(SHALE_ERROR_STATE, "there is no runtime; call shale_runtime_create() first");
  }
  return *handles().session;
}

Context& host_context() {
  Session& s = session();
  if (s.context->device().type == DeviceType::kCpu) return *s.context;
  if (s.host == nullptr) {
    s.host = std::make_shared<Context>(ContextOptions{.seed = s.context->seed()});
    if (!s.inference.empty()) s.inference.emplace_back(*s.host);
  }
  return *s.host;
}

bool has_session() {
  return handles().session != nullptr;
}

void begin_session(std::unique_ptr<Session> session) {
  handles().session = std::move(session);
}

void end_session() {
  Session& s = session();
  s.inference.clear();
  free_all(Kind::kMetrics);
  free_all(Kind::kTextModel);
  free_all(Kind::kTensor);  // frees their autograd graphs too, which may need modules
  free_all(Kind::kOptimizer);
  free_all(Kind::kModule);
  s.retired.clear();
  free_all(Kind::kRuntime);
  s.group.reset();
  s.host.reset();
  s.context.reset();
  s.world.reset();
  process_log().set_rank(0);
  handles().session.reset();
}

void check_process() {
  if (has_session() && session().process != getpid()) {
    throw CallError(SHALE_ERROR_STATE,
                    cat("the runtime belongs to process ", session().process, ", but process ",
                        getpid(), ", a fork of that process, called it; start a new process ",
                        "instead (\"spawn\" in Python's multiprocessing)"));
  }
}

std::string rank_text() {
  if (!has_session() || session().world == nullptr || session().world->size() == 1) return {};
  return cat(" (rank ", session().world->rank(), " of ", session().world->size(), ")");
}

void* add_handle(Kind kind, std::shared_ptr<void> object) {
  Handles& h = handles();
  size_t index = h.slots.size();
  if (!h.free.empty()) {
    index = h.free.front();
    h.free.pop_front();
  } else if (index >> kSlotBits != 0) {
    throw CallError(SHALE_ERROR_STATE, cat("all ", index, " handles are in use; destroy some"));
  } else {
    h.slots.emplace_back();
  }
  Slot& slot = h.slots[index];
  slot.kind = kind;
  slot.object = std::move(object);
  ++slot.use;
  return reinterpret_cast<void*>(number_of(kind, slot.use, index));
}

std::shared_ptr<void> find_handle(Kind kind, const void* handle, std::string_view argument) {
  return slot_of(kind, handle, argument).object;
}

std::shared_ptr<void> take_handle(Kind kind, const void* handle, std::string_view argument) {
  std::shared_ptr<void> object = slot_of(kind, handle, argument).object;
  free_slot(reinterpret_cast<uintptr_t>(handle) & ((uint64_t{1} << kSlotBits) - 1));
  return object;
}

void check_runtime(shale_runtime runtime) {
  session();
  find_handle(Kind::kRuntime, runtime, "runtime");
}

Tensor any_tensor_of(shale_tensor handle, std::string_view argument) {
  session();
  return std::static_pointer_cast<TensorObject>(find_handle(Kind::kTensor, handle, argument))
      ->tensor;
}

Tensor tensor_of(shale_tensor handle, std::string_view argument) {
  Tensor x = any_tensor_of(handle, argument);
  if (x.storage() != nullptr) return x;
  throw CallError(SHALE_ERROR_STATE,
                  cat(argument_text(argument, x), " ", x.shape(),
                      " has no memory now; call shale_module_shard() for its model first, and use "
                      "the tensor only inside the body of shale_module_run() for its module"));
}

Tensor optional_tensor(shale_tensor handle, std::string_view argument) {
  return handle == nullptr ? Tensor() : tensor_of(handle, argument);
}

std::shared_ptr<ModuleObject> module_of(shale_module handle, std::string_view argument) {
  session();
  return std::static_pointer_cast<ModuleObject>(find_handle(Kind::kModule, handle, argument));
}

std::shared_ptr<ModuleObject> root_of(shale_module handle, std::string_view argument) {
  auto object = module_of(handle, argument);
  if (object->module != &object->tree->root()) {
    fail_argument(argument, " is the module ", object->module->full_name(),
                  ", expected the root of its tree");
  }
  return object;
}

void check_sharded(const Tree& tree) {
  if (tree.root().attachment() != nullptr) return;
  throw CallError(SHALE_ERROR_STATE, "the model is not sharded; call shale_module_shard() first");
}

std::shared_ptr<ModuleObject> sharded_root_of(shale_module handle) {
  auto object = root_of(handle);
  check_sharded(*object->tree);
  return object;
}

std::shared_ptr<OptimizerObject> optimizer_of(shale_optimizer handle) {
  session();
  return std::static_pointer_cast<OptimizerObject>(
      find_handle(Kind::kOptimizer, handle, "optimizer"));
}

void give_tensor(const Tensor& tensor, shale_tensor* out) {
  *out = static_cast<shale_tensor>(
      add_handle(Kind::kTensor, std::make_shared<TensorObject>(TensorObject{tensor})));
}

shale_status call_for_tensor(std::string_view name, shale_tensor* out,
                             const std::function<Tensor()>& body) noexcept {
  return call(name, [&] {
    wanted(out, "out");
    give_tensor(body(), out);
  });
}

void for_each_tree(const std::function<void(const Tree&)>& visit) {
  std::set<const Tree*> seen;
  for (const Slot& slot : handles().slots) {
    if (slot.kind != Kind::kModule) continue;
    const Tree* tree = std::static_pointer_cast<ModuleObject>(slot.object)->tree.get();
    if (seen.insert(tree).second) visit(*tree);
  }
}

// Keeps retired modules while an autograd graph exists, because it may call their hooks.
void purge_retired() {
  if (!has_session() || session().retired.empty()) return;
  for (const Slot& slot : handles().slots) {
    if (slot.kind != Kind::kTensor) continue;
    const Tensor& tensor = std::static_pointer_cast<TensorObject>(slot.object)->tensor;
    if (tensor.impl().grad_fn != nullptr) return;
  }
  session().retired.clear();
}

void retire(std::shared_ptr<Tree> tree) {
  session().retired.push_back(std::move(tree));
  purge_retired();
}

}  // namespace shale::c
