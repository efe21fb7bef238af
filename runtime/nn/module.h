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

// A parameter as its module declares it. It has no memory until its module is materialised (below)
// or sharded (comm/parallel/data/data_parallel.h). `value` is a leaf that exists from the start.
struct Parameter {
  std::string name;        // name in its module: "weight"
  Shape shape;             // shape of `value` on this rank
  Shape whole;             // shape over all ranks; used by everything that is not local to a rank
  Split split = {};        // how tensor-parallel ranks may shard it
  Sharding sharding = {};  // how `shape` derives from `whole`
  Init init;
  bool decay = true;      // true: weight decay applies
  bool trainable = true;  // may only be set before the parameter has memory
  int64_t matrices = 1;   // equal row blocks that are separate matrices: 3 for fused QKV
  // Rows at the end of `whole` that the model never uses, because a vocabulary is padded for the
  // kernels. Statistics of the parameter exclude them.
  int64_t padding_rows = 0;
  Tensor value;  // in the compute dtype
  // True if used both as an embedding and as the output layer. A trainer may then keep the
  // gradients of the two uses separate (keep_apart()) and add them at the end.
  bool tied = false;
  // Leaf of the output layer, if kept apart, over the same memory; else undefined.
  Tensor tied_value = {};
  Module* owner = nullptr;
  // For a process that hosts several mesh ranks, each with a separate model
  // (comm/parallel/hosted_models.h): the corresponding parameters of the process's tensor-parallel
  // ranks, beginning with this parameter. Empty if this parameter is not the first rank's, or if
  // the model is not sharded.
  std::vector<Parameter*> peers = {};
  // Corresponding parameters of models that process other tokens, with the same values in the same
  // memory. The trainer sums their gradients.
  std::vector<Parameter*> copies = {};

  int64_t numel() const { return shape.numel(); }
  std::string full_name() const;  // from the root: "h.0.ln_1.weight"
  // Returns the leaf for an output layer, which may be tied to an embedding.
  const Tensor& output_value() const { return tied_value.defined() ? tied_value : value; }
  // The value that this rank must add: `value`, or undefined if the first rank adds it
  // (Share::kFirst).
  Tensor added_value() const;
  // Creates or removes `tied_value`, also of copies. Call it before the parameter has memory.
  void keep_apart(bool apart);
  // Makes another model's parameter a copy of this one. Call it before the parameter has memory.
  void add_copy(Parameter& copy);
  // Makes this parameter the part of `whole` that `sharding` describes. Call it before the
  // parameter has memory. Throws ConfigError.
  void shard(const Sharding& of_rank);

  // Gives `value` its memory: elements [offset, offset + numel) of `storage`, seen as `dtype`.
  void bind(Context& context, std::shared_ptr<Storage> storage, int64_t offset, DType dtype);
  // Visits all leaves over the parameter's memory, `value` among them.
  void for_each_value(const std::function<void(Tensor&)>& visit);
  // Removes the memory; using the parameter is then an error until bind().
  void unbind();
  // Writes elements [begin, begin + to.numel()) of this rank's part of the initial value. The
  // values are bitwise those of the whole parameter.
  void write_initial(const Exec& exec, uint64_t seed, int64_t begin, const View& to) const;
};

// How a buffer's values differ between ranks.
enum class BufferRanks : uint8_t {
  kSame,  // all ranks have the same values
  // Each rank has its own values, such as running statistics of its samples. Checkpoints, exports
  // and evaluations use the mean over ranks (DataParallel::average_buffers()).
  kMean,
};

// State that is saved with the model but not trained, f32. It gets memory when its module is
// materialised or sharded.
struct Buffer {
  std::string name;
  Shape shape;
  float initial = 0;  // initial value of every element
  BufferRanks ranks = BufferRanks::kSame;
  bool persistent = true;  // true: checkpoints contain it
  // Its module may store its own tensor here; an undefined tensor means that there are no values.
  Tensor value = {};
  const Module* owner = nullptr;

  std::string full_name() const;
  bool needs_memory() const;  // true if the buffer has values but no memory for them yet
  // bind() allocates the buffer's memory and sets the initial value; unbind() removes the memory.
  void bind(Context& context);
  void unbind();
};

// Points at which module hooks run. When a segment is recomputed (autograd/recompute.h), the
// forward hooks of its modules run again, always in pairs, while AutogradState::recomputing is set.
// This may happen between the backward hooks of the same module; backward then still needs the
// parameters after the second kAfterForward. kAfterForward also runs after a body that throws.
enum class HookPoint {
  kBeforeForward,
  kAfterForward,
  kBeforeBackward,
  kAfterBackward,
  // Called after kAfterBackward of the module's last use in a backward graph. Not called if one of
  // the uses has no input with a gradient.
  kAfterLastBackward,
};

// A node of the model tree. Subclasses hold their children as members, declare their parameters in
// the constructor, and have a forward with their own signature that calls run():
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

  // Parameters declared here, without the children's; parameters of other modules used here (tied
  // weights).
  const std::vector<std::unique_ptr<Parameter>>& own_parameters() const { return parameters_; }
  const std::vector<Parameter*>& tied_parameters() const { return tied_; }
  // All parameters and buffers of the subtree, each once, in the order of declaration.
  std::vector<Parameter*> parameters() const;
  std::vector<Buffer*> buffers() const;
  Parameter* find_parameter(std::string_view full_name) const;  // null when absent

  using Hook = std::function<void()>;
  // Adds a hook; hooks of a point run in the order of addition. Returns the id for remove_hook().
  uint64_t add_hook(HookPoint point, Hook hook);
  void remove_hook(HookPoint point, uint64_t id);

  // State that a higher layer attaches to this module. It is destroyed last, possibly after the
  // modules and parameters below this one.
  struct Attachment {
    virtual ~Attachment() = default;
  };
  Attachment* attachment() const { return attachment_.get(); }
  void attach(std::unique_ptr<Attachment> attachment) { attachment_ = std::move(attachment); }

  // Sets the dtypes of the subtree, unless a module inside sets its own. Parameters get the compute
  // dtype, the input is cast to it, and the result is cast to the output dtype. Call it before
  // parameters have memory. Overrides the dtype of materialize() or of a data-parallel unit. Throws
  // ConfigError.
  void set_precision(const amp::Precision& precision);
  // The precision of this module or of the nearest module around it that has one; null: none was
  // set.
  const amp::Precision* precision() const;

  // The distribution of this module or of the nearest module around it that has one; by default one
  // rank does everything (nn/distribution.h).
  const nn::Distribution& distribution() const;
  void set_distribution(const nn::Distribution* distribution) { distribution_ = distribution; }

  // Sets how much of this module's forward is recomputed in backward instead of kept. Throws
  // ConfigError unless runs().
  void set_recompute(Recompute level);

  // True if forward calls run(), so that hooks fire. False for a module that only names parameters
  // which others use: it cannot be a data-parallel unit, and cannot be recomputed.
  virtual bool runs() const { return true; }

 protected:
  // Cast inputs and results of a module with its own precision; otherwise they return their
  // argument. For modules with several inputs or results; run() does this for one.
  Tensor enter(const Tensor& x) const;
  Tensor leave(const Tensor& y) const;

  // Declares a parameter. Throws InternalError if the name is taken.
  Parameter& declare(std::string name, const Shape& shape, Init init, bool decay = true);
  // Declares a buffer. Throws InternalError if the name is taken.
  Buffer& declare_buffer(Buffer buffer);
  // Declares that this module uses a parameter declared elsewhere in the tree.
  void tie(Parameter& parameter) { tied_.push_back(&parameter); }

  // Calls body between the forward hooks and adds the backward hooks to the graph: before-backward
  // runs when the gradients of the results are complete, after-backward when the gradients of the
  // inputs are (never, if no input has a gradient). In-place ops may change a result that nothing
  // else holds, with or without hooks. Without hooks this is body(inputs). Results, and inputs
  // except the first, may be undefined. With set_recompute(), backward calls body again, so body
  // must capture by value.
  using Tensors = std::vector<Tensor>;
  Tensors run(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& body);
  // run() with one input, or two of which the second may be undefined, and one result.
  Tensor run(const Tensor& x, const std::function<Tensor(const Tensor&)>& body);
  Tensor run(const Tensor& x, const Tensor& residual,
             const std::function<Tensor(const Tensor&, const Tensor&)>& body);

 private:
  Tensors run_once(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& body);
  void call_hooks(HookPoint point) const;
  Tensor counted_use(Context& context);
  using Hooks = std::map<uint64_t, Hook>;  // hooks by id, hence in order of addition
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
  Tensor uses_;  // a leaf that every use takes as an input, so that backward counts the uses
  bool has_open_use_ = false;  // the running backward has an open use (see run())
};

// Number of elements of all parameters of the tree, over all ranks.
int64_t whole_numel(const Module& module);
// The tree's parameters, once per parameter of the whole model: if this process hosts several
// tensor-parallel ranks, only the parameters of the first rank.
std::vector<Parameter*> whole_parameters(const Module& module);

// Gives every parameter and buffer of the tree its own memory and its initial value, for a model on
// one device without data parallelism. dtype: for modules without a precision. Throws InternalError
// for parameters that have memory already or belong to data parallelism.
void materialize(Module& module, Context& context, DType dtype, uint64_t seed);

}  // namespace shale
