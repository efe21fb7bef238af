#pragma once

#include <sys/types.h>

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

// What a handle stands for.
enum class Kind : uint8_t { kNone, kRuntime, kTensor, kModule, kOptimizer, kMetrics };

// A tree of modules, which goes with the last handle to one of them.
struct Tree {
  Tree() = default;
  ~Tree() {
    while (!modules.empty()) modules.pop_back();  // children before their parents
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  std::vector<std::unique_ptr<Module>> modules;
  std::vector<Module*> units;  // of data parallelism, but for the root
  Module& root() const { return *modules.front(); }
};

// The objects behind handles.
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
  bool is_prepared = false;  // for a step
};
struct MetricsObject {
  std::unique_ptr<MetricsWriter> writer;  // null on ranks other than 0
};

// What a runtime is, and all handles. There is one at a time.
struct Session {
  pid_t process = 0;
  std::unique_ptr<comm::World> world;
  std::shared_ptr<Context> context;  // as long as somebody is shown its memory
  std::unique_ptr<comm::ProcessGroup> group;
  std::optional<Inference> inference;
  std::vector<std::shared_ptr<Tree>> retired;  // without handles, while graphs may need them
  std::set<const Storage*> read_only;          // memory of others that is not written to
  std::map<std::pair<double, int64_t>, std::shared_ptr<const RopeTable>> ropes;
  std::set<std::string> cleaned;  // folders of checkpoints
};

// The runtime that is there. Throws CallError, SHALE_ERROR_STATE, if there is none.
Session& session();
bool has_session();
void begin_session(std::unique_ptr<Session> session);
// Destroys everything that handles stand for, then the session.
void end_session();
// Throws in a process that was forked from the session's.
void check_process();
// " (rank 1 of 4)"; empty of one rank, or without a session.
std::string rank_text();

// ---- Handles ----

// A new handle, never one that was there before.
void* add_handle(Kind kind, std::shared_ptr<void> object);
// Throws CallError, SHALE_ERROR_ARGUMENT, unless it is one of that kind.
std::shared_ptr<void> find_handle(Kind kind, const void* handle, std::string_view argument);
std::shared_ptr<void> take_handle(Kind kind, const void* handle, std::string_view argument);

void check_runtime(shale_runtime runtime);  // throws unless it is the runtime that is there
// One with memory. Throws CallError, SHALE_ERROR_STATE, for a parameter that has none now.
Tensor tensor_of(shale_tensor handle, std::string_view argument);
Tensor optional_tensor(shale_tensor handle, std::string_view argument);  // undefined for NULL
Tensor any_tensor_of(shale_tensor handle, std::string_view argument);    // memory or not
std::shared_ptr<ModuleObject> module_of(shale_module handle, std::string_view argument = "module");
// One with all its tree, for what concerns the model as a whole.
std::shared_ptr<ModuleObject> root_of(shale_module handle, std::string_view argument = "root");
// A root whose model is sharded. Throws CallError, SHALE_ERROR_STATE, for another.
std::shared_ptr<ModuleObject> sharded_root_of(shale_module handle);
void check_sharded(const Tree& tree);
std::shared_ptr<OptimizerObject> optimizer_of(shale_optimizer handle);

// Puts a handle into `*out`, which is not NULL.
void give_tensor(const Tensor& tensor, shale_tensor* out);
// A call of one result.
shale_status call_for_tensor(std::string_view name, shale_tensor* out,
                             const std::function<Tensor()>& body) noexcept;

// Calls visit for every tree that has a handle.
void for_each_tree(const std::function<void(const Tree&)>& visit);
// Lets go of trees without handles that no graph needs any more.
void purge_retired();
void retire(std::shared_ptr<Tree> tree);

}  // namespace shale::c
