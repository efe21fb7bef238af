// DLPack: runtime/tensor/dlpack.h with the rules of the C interface.
#include "shale/runtime/tensor/dlpack.h"

#include "shale/bindings/c/memory.h"
#include "shale/bindings/c/session.h"
#include "shale/comm/parallel/data/fully_shard.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale::c {
namespace {

// Returns true for memory of parameters. All ranks own it together, and it is freed with the
// runtime.
bool is_parameter_memory(const Tensor& x, const Tree& tree) {
  for (const Parameter* parameter : tree.root().parameters()) {
    if (parameter->value.storage() == x.storage()) return true;
  }
  if (tree.root().attachment() == nullptr) return false;
  for (const OptimShard& shard : comm::optim_shards(tree.root())) {
    for (const Tensor& memory : {shard.master, shard.grad, shard.compute}) {
      if (memory.defined() && memory.storage() == x.storage()) return true;
    }
  }
  return false;
}

void* export_tensor(const Tensor& x, bool legacy) {
  for_each_tree([&x](const Tree& tree) {
    if (is_parameter_memory(x, tree)) {
      fail_argument("x is memory of a parameter; use shale_tensor_clone() of it");
    }
  });
  // The reader may call the deleter on any thread, and while it holds locks of its own.
  const bool on_host = &x.context() == session().host.get();
  const DlpackOptions options{.run_release = in_some_call,
                              .owner = on_host ? session().host : session().context,
                              .read_only = is_read_only(x)};
  if (legacy) return to_dlpack_legacy(x, options);
  return to_dlpack(x, options);
}

}  // namespace
}  // namespace shale::c

using namespace shale::c;

shale_status shale_tensor_to_dlpack(shale_tensor x, int32_t legacy, void** out) {
  return call("shale_tensor_to_dlpack", [&] {
    wanted(out, "out");
    const shale::Tensor tensor = tensor_of(x, "x");
    if (shale::OpRecorder* recorder = shale::recorder_of(tensor)) recorder->read(tensor);
    *out = export_tensor(tensor, legacy != 0);
  });
}

shale_status shale_tensor_from_dlpack(shale_runtime runtime, void* managed, int32_t legacy,
                                      shale_tensor* out) {
  return call_for_tensor("shale_tensor_from_dlpack", out, [&] {
    check_runtime(runtime);
    return tensor_of_dlpack(wanted(managed, "managed"), legacy != 0);
  });
}
