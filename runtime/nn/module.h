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
// or sharded (comm/parallel/data/data_parallel.h); `value` is a leaf that exists from the start.
struct Parameter {
  std::string name;        // in its module: "weight"
  Shape shape;             // of `value`: what is here
  Shape whole;             // on all ranks; whatever goes beyond this rank goes by it
  Split split = {};        // how ranks may share it
  Sharding sharding = {};  // how `shape` comes from `whole`
  Init init;
  bool decay = true;      // weight decay applies
  bool trainable = true;  // set before materialising
  int64_t matrices = 1;   // equal blocks of rows that are matrices of their own: 3 of fused q, k, v
  // Rows at the end of `whole` that the model never uses: a vocabulary is padded for the kernels.
  // Statistics of the parameter leave them out.
  int64_t padding_rows = 0;
  Tensor value;  // in the compute dtype
  // Used twice, as an embedding and as the output layer: whoever trains the model may keep the
  // gradients of the two apart (keep_apart()), and adds them last.
  bool tied = false;
  Tensor tied_value = {};  // the output layer's leaf then, over the same memory; else undefined
  Module* owner = nullptr;
  // Where a process has several mesh ranks (comm/parallel/hosted_models.h), each with a model of
  // its own. Those that its tensor ranks have in the place of this one, itself first; empty:
  // another is the first, or ranks do not share the model.
  std::vector<Parameter*> peers = {};
  // Those of models that work on other tokens, with the same values over the same memory. Whoever
  // trains the model adds up their gradients.
  std::vector<Parameter*> copies = {};

  int64_t numel() const { return shape.numel(); }
  std::string full_name() const;  // from the root: "h.0.ln_1.weight"
  // What an output layer takes that is tied to an embedding.
  const Tensor& output_value() const { return tied_value.defined() ? tied_value : value; }
  // What this rank has to add: `value`, or undefined where the first rank does (Share::kFirst).
  Tensor added_value() const;
  // Before the parameter has memory: makes `tied_value`, or drops it; of copies too.
  void keep_apart(bool apart);
  // Likewise: makes another model's parameter a copy.
  void add_copy(Parameter& copy);
  // Likewise: makes this the part that `sharding` has of it. Throws ConfigError.
  void shard(const Sharding& of_rank);

  // Gives `value` its memory: elements [offset, offset + numel) of `storage`, seen as `dtype`.
  void bind(Context& context, std::shared_ptr<Storage> storage, int64_t offset, DType dtype);
  // `value` and the other leaves over its memory.
  void for_each_value(const std::function<void(Tensor&)>& visit);
  // Takes the memory away; using the parameter is an error until bind().
  void unbind();
  // Writes elements [begin, begin + to.numel()) of what is here of the initial value, which has the
  // bits of the whole's.
  void write_initial(const Exec& exec, uint64_t seed, int64_t begin, const View& to) const;
};

// Whose a buffer's values are, where a model is on several ranks.
enum class BufferRanks : uint8_t {
  kSame,  // all ranks have the same
  // Each rank has its own, as running statistics of its samples are; their mean over the ranks is
  // what checkpoints, exports and evaluations have (DataParallel::average_buffers()).
  kMean,
};

// State that is saved with the model but not trained, f32. It has memory where its module's
// parameters have: once the module is materialised or sharded.
struct Buffer {
  std::string name;
  Shape shape;
  float initial = 0;  // of every element
  BufferRanks ranks = BufferRanks::kSame;
  bool persistent = true;  // part of checkpoints
  // Its module may put a tensor of its own here, or an undefined one: there are no values then.
  Tensor value = {};
  const Module* owner = nullptr;

  std::string full_name() const;
  bool needs_memory() const;  // it has values, and nobody gave them memory yet
  // Gives it memory, and its initial value; takes the memory away.
  void bind(Context& context);
  void unbind();
};

// When a segment of the model is computed again (autograd/recompute.h), the forward hooks of the
// modules in it run again too, always in pairs, while AutogradState::recomputing is set. This may
// be between the backward hooks of the same module: then backward still needs the parameters after
// the second kAfterForward. A body that throws is followed by kAfterForward too.
enum class HookPoint {
  kBeforeForward,
  kAfterForward,
  kBeforeBackward,
  kAfterBackward,
  // After kAfterBackward of the module's last use in one backward graph; never, if the inputs of
  // one of its uses have no gradient.
  kAfterLastBackward,
};

// A node of the model tree. Subclasses hold their children as members, declare their parameters in
// the constructor, and have a forward of their own signature that goes through run():
//
//   struct Block : Module {
//     Block(Module* parent, std::string name, int64_t width) : Module(parent, std::move(name)),
//         norm(this, "norm", width) {}
//     Tensor forward(const Tensor& x) { return run(x, [&](const Tensor& in) { ... }); }
//     nn::LayerNorm norm;
//   };
//
// The tree's shape is fixed once built: modules are neither copied nor moved.
class Module {
 public:
  Module() = default;  // a root
  Module(Module* parent, std::string name);
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& name() const { return name_; }
  std::string full_name() const;
  Module* parent() const { return parent_; }
  const std::vector<Module*>& children() const { return children_; }

  // Own parameters, without the children's; those of other modules used here (tied weights).
  const std::vector<std::unique_ptr<Parameter>>& own_parameters() const { return parameters_; }
  const std::vector<Parameter*>& tied_parameters() const { return tied_; }
  // All of the subtree, each once, in the order of declaration.
  std::vector<Parameter*> parameters() const;
  std::vector<Buffer*> buffers() const;
  Parameter* find_parameter(std::string_view full_name) const;  // null when absent

  using Hook = std::function<void()>;
  // Hooks of a point are called in the order in which they were added. Returns what removes it.
  uint64_t add_hook(HookPoint point, Hook hook);
  void remove_hook(HookPoint point, uint64_t id);

  // What a layer above keeps with this module. It goes last: the modules and parameters below this
  // one may be gone by then.
  struct Attachment {
    virtual ~Attachment() = default;
  };
  Attachment* attachment() const { return attachment_.get(); }
  void attach(std::unique_ptr<Attachment> attachment) { attachment_ = std::move(attachment); }

  // In which dtypes the subtree works, unless a module inside says otherwise: its parameters have
  // the compute dtype, its input is cast to it, its result to the output dtype. Before the
  // parameters have memory; overrides the dtype that materialize() or a unit of data parallelism
  // gives. Throws ConfigError.
  void set_precision(const amp::Precision& precision);
  // Its own, or that of the nearest module around it; null: none was set.
  const amp::Precision* precision() const;

  // How the work of this module is distributed: as of the nearest module around it that was told;
  // else one rank does everything (nn/distribution.h).
  const nn::Distribution& distribution() const;
  void set_distribution(const nn::Distribution* distribution) { distribution_ = distribution; }

  // How much of this module's forward backward computes again, instead of keeping what it needs.
  // Throws ConfigError unless it runs().
  void set_recompute(Recompute level);

  // Whether forward goes through run(), so that hooks fire. A module that only names parameters,
  // which others use, says no: it is no unit of data parallelism, and nothing of it is recomputed.
  virtual bool runs() const { return true; }

 protected:
  // Casts of a module with a precision of its own; others pass. For modules with several inputs or
  // results: run() does this for one.
  Tensor enter(const Tensor& x) const;
  Tensor leave(const Tensor& y) const;

  // Throws InternalError for a name that is taken.
  Parameter& declare(std::string name, const Shape& shape, Init init, bool decay = true);
  // Throws InternalError for a name that is taken.
  Buffer& declare_buffer(Buffer buffer);
  // Says that this module uses a parameter declared elsewhere in the tree.
  void tie(Parameter& parameter) { tied_.push_back(&parameter); }

  // Calls body between the forward hooks and places the backward hooks into the graph:
  // before-backward when the gradients of the results are complete, after-backward when those of
  // the inputs are (never, if no input has one). In-place ops can change a result that nothing else
  // holds, with hooks or without. Without hooks this is body(inputs). Inputs and
  // results may be undefined, but for the first input. Backward may call body again, where
  // set_recompute() says so: it keeps by value what it uses.
  using Tensors = std::vector<Tensor>;
  Tensors run(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& body);
  // The same of one input, or two of which the second may be undefined, and one result.
  Tensor run(const Tensor& x, const std::function<Tensor(const Tensor&)>& body);
  Tensor run(const Tensor& x, const Tensor& residual,
             const std::function<Tensor(const Tensor&, const Tensor&)>& body);

 private:
  Tensors run_once(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& body);
  void call_hooks(HookPoint point) const;
  Tensor counted_use(Context& context);
  using Hooks = std::map<uint64_t, Hook>;  // by id, hence in order
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
  Tensor uses_;  // a leaf that every use takes as an input: backward counts a leaf's uses
  bool has_open_use_ = false;  // in the backward that runs: one whose end nothing shows
};

// Elements of all parameters of the tree, on all ranks.
int64_t whole_numel(const Module& module);
// The parameters of the tree as the model has them that one rank has: of those that tensor ranks of
// this process have of one, the first.
std::vector<Parameter*> whole_parameters(const Module& module);

// Gives every parameter and buffer of the tree memory of its own and its initial value: a model on
// one device without data parallelism. dtype: of modules without a precision. Throws InternalError
// for parameters that have memory, or are in data parallelism.
void materialize(Module& module, Context& context, DType dtype, uint64_t seed);

}  // namespace shale
