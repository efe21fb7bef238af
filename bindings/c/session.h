#pragma once

#include <sys/types.h>

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/bindings/c/call.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/world.h"
#include "shale/models/training/report/metrics.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/module.h"
#include "shale/runtime/ops/rope.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::c {

// Type of the object that a handle refers to.
enum class Kind : uint8_t { kNone, kRuntime, kTensor, kModule, kOptimizer, kMetrics, kTextModel };

// Tree of modules. It is destroyed with the last handle to one of its modules.
struct Tree {
  Tree() = default;
  ~Tree() {
    while (!modules.empty()) modules.pop_back();  // destroys children before their parents
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  std::vector<std::unique_ptr<Module>> modules;
  std::vector<Module*> units;  // units of data parallelism, without the root
  Module& root() const { return *modules.front(); }
};

// Objects that handles refer to.
struct RuntimeObject {};
struct TensorObject {
  Tensor tensor;
};
struct ModuleObject {
  std::shared_ptr<Tree> tree;
  Module* module = nullptr;
};
struct OptimizerObject {
  std::shared_ptr<Tree> tree;
  std::unique_ptr<optim::Optimizer> optimizer;
  bool is_prepared = false;  // ready for the optimizer step
};
struct MetricsObject {
  std::unique_ptr<MetricsWriter> writer;  // null on ranks other than 0
};

// State of the runtime, and all handles. There is at most one.
struct Session {
  pid_t process = 0;
  std::unique_ptr<comm::World> world;
  std::shared_ptr<Context> context;  // shared with external users of its memory
  // context on the CPU, shared like `context`; null if the device is the CPU, and until it is
  // needed
  std::shared_ptr<Context> host;
  std::unique_ptr<comm::ProcessGroup> group;
  std::list<Inference> inference;              // inference mode of each context, while it is on
  std::vector<std::shared_ptr<Tree>> retired;  // trees without handles, kept for autograd graphs
  std::set<const Storage*> read_only;          // external memory that must not be written
  std::map<std::pair<double, int64_t>, std::shared_ptr<const RopeTable>> ropes;
  std::set<std::string> cleaned;  // checkpoint folders whose leftovers were removed
};

// Returns the current runtime. Throws CallError with SHALE_ERROR_STATE if there is none.
Session& session();
bool has_session();
Context& host_context();  // the session's context on the CPU
void begin_session(std::unique_ptr<Session> session);
// Destroys the objects of all handles, then the session.
void end_session();
// Throws if this process was forked from the one that created the session.
void check_process();
// Returns " (rank 1 of 4)"; empty for a single rank, or without a session.
std::string rank_text();

// ---- Handles ----

// Returns a new handle, different from all earlier ones.
void* add_handle(Kind kind, std::shared_ptr<void> object);
// Returns a handle's object. Throws CallError (SHALE_ERROR_ARGUMENT) for an invalid handle or kind.
std::shared_ptr<void> find_handle(Kind kind, const void* handle, std::string_view argument);
std::shared_ptr<void> take_handle(Kind kind, const void* handle, std::string_view argument);

void check_runtime(shale_runtime runtime);  // throws if it is not the current runtime's handle
// Returns a tensor that has memory. Throws CallError with SHALE_ERROR_STATE for a parameter without
// memory.
Tensor tensor_of(shale_tensor handle, std::string_view argument);
// undefined if the handle is NULL
Tensor optional_tensor(shale_tensor handle, std::string_view argument);
Tensor any_tensor_of(shale_tensor handle, std::string_view argument);  // possibly without memory
std::shared_ptr<ModuleObject> module_of(shale_module handle, std::string_view argument = "module");
// Returns the root of a module tree, for functions that need a whole model.
std::shared_ptr<ModuleObject> root_of(shale_module handle, std::string_view argument = "root");
// Returns the root of a sharded model. Throws CallError with SHALE_ERROR_STATE for other modules.
std::shared_ptr<ModuleObject> sharded_root_of(shale_module handle);
void check_sharded(const Tree& tree);
std::shared_ptr<OptimizerObject> optimizer_of(shale_optimizer handle);

// Stores a handle to the tensor in `*out`, which must not be NULL.
void give_tensor(const Tensor& tensor, shale_tensor* out);
// Runs the body of an API function whose result is one tensor.
shale_status call_for_tensor(std::string_view name, shale_tensor* out,
                             const std::function<Tensor()>& body) noexcept;

// Calls visit for every tree that has a handle.
void for_each_tree(const std::function<void(const Tree&)>& visit);
// Destroys retired trees that no autograd graph needs any more.
void purge_retired();
void retire(std::shared_ptr<Tree> tree);

}  // namespace shale::c
