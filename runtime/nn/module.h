#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shale/runtime/amp/precision.h"
#include "shale/runtime/autograd/recompute.h"
#include "shale/runtime/nn/init.h"
#include "shale/runtime/nn/sharding.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

class Module;
namespace nn {
class Distribution;
}  // namespace nn

// A parameter, as declared by its module. It has no memory until its module is materialised
// (materialize()) or sharded (comm/parallel/data/data_parallel.h). `value` is a leaf that exists
// from the start.
struct Parameter {
  std::string name;        // name in its module: "weight"
  Shape shape;             // shape of `value` on this rank
  Shape whole;             // shape over all ranks; used by code that is not local to a rank
  Split split = {};        // how tensor-parallel ranks may shard it
  Sharding sharding = {};  // how `shape` derives from `whole`
  Init init;
  bool decay = true;      // true: weight decay applies
  bool trainable = true;  // true: gets gradients; may only be set before the parameter has memory
  int64_t matrices = 1;   // number of separate matrices, in equal row blocks: 3 for fused QKV
  // Number of rows at the end of `whole` that the model never uses. The vocabulary is padded with
  // them for the kernels. Statistics of the parameter exclude them.
  int64_t padding_rows = 0;
  Tensor value;  // values in the compute dtype
  // True if the parameter is both an embedding and the weight of the output layer. A trainer may
  // then keep the gradients of the two uses separate (keep_apart()) and add them at the end.
  bool tied = false;
  // Leaf for the output layer over the same memory as `value`, if the gradients are kept separate;
  // else undefined.
  Tensor tied_value = {};
  Module* owner = nullptr;
  // Used in a process that hosts several mesh ranks, each with a separate model
  // (comm/parallel/hosted_models.h). In the first tensor-parallel rank's model: the corresponding
  // parameters of all tensor-parallel ranks of the process, beginning with this one. Otherwise
  // empty.
  std::vector<Parameter*> peers = {};
  // Corresponding parameters of other models in this process. They process other tokens but use the
  // same memory. The trainer sums their gradients.
  std::vector<Parameter*> copies = {};

  int64_t numel() const { return shape.numel(); }
  std::string full_name() const;  // name from the root: "h.0.ln_1.weight"
  // Returns the leaf that an output layer must use, whether it is tied to an embedding or not.
  const Tensor& output_value() const { return tied_value.defined() ? tied_value : value; }
  // Returns `value`, for a layer that adds it to a sum over ranks. Undefined if another rank adds
  // it (Share::kFirst).
  Tensor added_value() const;
  // Creates or removes `tied_value`, here and in `copies`. Call it before the parameter has memory.
  void keep_apart(bool apart);
  // Makes a parameter of another model use the memory of this one (see `copies`). Call it before
  // the parameter has memory.
  void add_copy(Parameter& copy);
  // Makes this parameter the part of `whole` that `sharding` describes. Call it before the
  // parameter has memory. Throws ConfigError.
  void shard(const Sharding& of_rank);

  // Gives `value` its memory: elements [offset, offset + numel) of `storage`, seen as `dtype`.
  void bind(Context& context, std::shared_ptr<Storage> storage, int64_t offset, DType dtype);
  // Calls visit for every leaf that uses the parameter's memory: `value`, `tied_value`, and those
  // of copies.
  void for_each_value(const std::function<void(Tensor&)>& visit);
  // Removes the memory; using the parameter is then an error until bind().
  void unbind();
  // Writes elements [begin, begin + to.numel()) of this rank's part of the initial value. They
  // equal the elements of the unsharded parameter to the bit.
  void write_initial(const Exec& exec, uint64_t seed, int64_t begin, const View& to) const;
};

// Relation between the values of a buffer on different ranks.
enum class BufferRanks : uint8_t {
  kSame,  // all ranks have the same values
  // Each rank has its own values, such as running statistics of its samples. Checkpoints, exports
  // and evaluations use the mean over ranks (DataParallel::average_buffers()).
  kMean,
};

// State that is not trained, f32. Checkpoints contain it if it is persistent. It gets memory when
// its module is materialised or sharded.
struct Buffer {
  std::string name;
  Shape shape;
  float initial = 0;  // initial value of every element
  BufferRanks ranks = BufferRanks::kSame;
  bool persistent = true;  // true: checkpoints contain the buffer
  // Values. The module may store its own tensor here; undefined means that the buffer has no
  // values.
  Tensor value = {};
  const Module* owner = nullptr;

  std::string full_name() const;
  bool needs_memory() const;  // true if the buffer has values but no memory for them yet
  // bind() allocates the buffer's memory and sets the initial value; unbind() removes the memory.
  void bind(Context& context);
  void unbind();
};

// Points at which module hooks run. kAfterForward also runs after a body that throws.
//
// When a segment is recomputed (autograd/recompute.h), the forward hooks of its modules run again,
// always in pairs, while AutogradState::recomputing is set. This may happen between the backward
// hooks of the same module, so backward may still need the parameters after the second
// kAfterForward.
enum class HookPoint {
  kBeforeForward,
  kAfterForward,
  kBeforeBackward,
  kAfterBackward,
  // Called after kAfterBackward of the module's last use in a backward graph. Not called if there
  // is a use in which no input needs a gradient.
  kAfterLastBackward,
};

// A node of the model tree. A subclass has its children as members and declares its parameters in
// the constructor. Its forward has any signature, and calls run():
//
//   struct Block : Module {
//     Block(Module* parent, std::string name, int64_t width) : Module(parent, std::move(name)),
//         norm(this, "norm", width) {}
//     Tensor forward(const Tensor& x) { return run(x, [&](const Tensor& in) { ... }); }
//     nn::LayerNorm norm;
//   };
//
// The tree's structure is fixed once built: modules are neither copied nor moved.
class Module {
 public:
  Module() = default;  // constructor of a root module
  Module(Module* parent, std::string name);
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& name() const { return name_; }
  std::string full_name() const;
  Module* parent() const { return parent_; }
  const std::vector<Module*>& children() const { return children_; }

  // own_parameters() are declared by this module, without those of children. Tied parameters are
  // declared by other modules and used by this one.
  const std::vector<std::unique_ptr<Parameter>>& own_parameters() const { return parameters_; }
  const std::vector<Parameter*>& tied_parameters() const { return tied_; }
  // All parameters and buffers of the subtree, each once, in the order of declaration.
  std::vector<Parameter*> parameters() const;
  std::vector<Buffer*> buffers() const;
  // returns null if there is no such parameter
  Parameter* find_parameter(std::string_view full_name) const;

  using Hook = std::function<void()>;
  // Adds a hook; hooks of a point run in the order of addition. Returns the id for remove_hook().
  uint64_t add_hook(HookPoint point, Hook hook);
  void remove_hook(HookPoint point, uint64_t id);

  // State that a higher layer attaches to this module. It may be destroyed after the modules and
  // parameters below this one.
  struct Attachment {
    virtual ~Attachment() = default;
  };
  Attachment* attachment() const { return attachment_.get(); }
  void attach(std::unique_ptr<Attachment> attachment) { attachment_ = std::move(attachment); }

  // Sets the dtypes of the subtree; a module inside may set other ones. Parameters get the compute
  // dtype, the input is cast to it, and the result is cast to the output dtype. Call it before
  // parameters have memory. It has priority over the dtype of materialize() or of a data-parallel
  // unit. Throws ConfigError.
  void set_precision(const amp::Precision& precision);
  // Returns the precision of this module, or of the nearest enclosing module that has one; null:
  // none was set.
  const amp::Precision* precision() const;

  // Returns the distribution of this module, or of the nearest enclosing module that has one. By
  // default one rank does everything (nn/distribution.h).
  const nn::Distribution& distribution() const;
  void set_distribution(const nn::Distribution* distribution) { distribution_ = distribution; }

  // Sets how much of this module's forward is recomputed in backward instead of kept. Throws
  // ConfigError unless runs().
  void set_recompute(Recompute level);

  // True if forward calls run(), so that hooks fire. False for a module that only names parameters
  // for other modules. Such a module cannot be a data-parallel unit, and cannot be recomputed.
  virtual bool runs() const { return true; }

 protected:
  // Cast an input or a result of a module that has its own precision; otherwise return their
  // argument. A module with several inputs or results calls them; run() calls them for one.
  Tensor enter(const Tensor& x) const;
  Tensor leave(const Tensor& y) const;

  // Declares a parameter. Throws InternalError if the name is taken.
  Parameter& declare(std::string name, const Shape& shape, Init init, bool decay = true);
  // Declares a buffer. Throws InternalError if the name is taken.
  Buffer& declare_buffer(Buffer buffer);
  // Declares that this module uses a parameter declared elsewhere in the tree.
  void tie(Parameter& parameter) { tied_.push_back(&parameter); }

  // Calls body between the forward hooks, and adds the backward hooks to the graph. Before-backward
  // hooks run when the gradients of the results are complete. After-backward hooks run when the
  // gradients of the inputs are complete; they never run if no input has a gradient. In-place ops
  // may change a result that nothing else holds, with or without hooks. Without hooks this is
  // body(inputs). Results may be undefined, and so may inputs except the first. With
  // set_recompute(), backward calls body again, so body must capture by value.
  using Tensors = std::vector<Tensor>;
  Tensors run(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& body);
  // run() with one result and one input, or two inputs; the second may be undefined.
  Tensor run(const Tensor& x, const std::function<Tensor(const Tensor&)>& body);
  Tensor run(const Tensor& x, const Tensor& residual,
             const std::function<Tensor(const Tensor&, const Tensor&)>& body);

 private:
  Tensors run_once(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& body);
  void call_hooks(HookPoint point) const;
  Tensor counted_use(Context& context);
  using Hooks = std::map<uint64_t, Hook>;  // hooks by id, that is, in the order of addition
  const Hooks& hooks(HookPoint point) const { return hooks_[static_cast<size_t>(point)]; }

  std::unique_ptr<Attachment> attachment_;
  std::string name_;
  Module* parent_ = nullptr;
  std::vector<Module*> children_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Parameter*> tied_;
  std::optional<amp::Precision> precision_;
  Recompute recompute_ = Recompute::kNone;
  const nn::Distribution* distribution_ = nullptr;
  std::array<Hooks, 5> hooks_;
  uint64_t next_hook_ = 0;
  Tensor uses_;  // a leaf that is an input of every use, so that backward counts the uses
  // true: a use in the running backward has no input with a gradient (see run())
  bool has_open_use_ = false;
};

// Number of elements of all parameters of the tree, over all ranks.
int64_t whole_numel(const Module& module);
// Returns the tree's parameters, one for each parameter of the unsharded model. If this process
// hosts several tensor-parallel ranks, these are the parameters of the first rank.
std::vector<Parameter*> whole_parameters(const Module& module);

// Gives every parameter and buffer of the tree its own memory and its initial value. For a model on
// one device without data parallelism. dtype: dtype of modules without a precision. Throws
// InternalError for parameters that already have memory or belong to data parallelism.
void materialize(Module& module, Context& context, DType dtype, uint64_t seed);

}  // namespace shale
