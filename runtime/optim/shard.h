#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/runtime/nn/module.h"
#include "shale/runtime/tensor/stream.h"

namespace shale {

// A run of elements of one parameter inside an OptimShard. It may be empty: the parameter is one of
// the shard's unit, and this rank has no part of it.
struct OptimSpan {
  Parameter* parameter = nullptr;
  int64_t first = 0;   // index of the first element in the parameter
  int64_t offset = 0;  // of the first element in the shard's buffers
  int64_t count = 0;
};

// Where who owns a shard and who steps it off the compute stream (runtime/offload) meet.
class StepFence {
 public:
  // Calls of whoever steps it.
  struct Stepper {
    std::function<void(void* stream)> wait;
    std::function<void(const Event& arrived)> gradient_complete;
  };
  void set(Stepper stepper) { stepper_ = std::move(stepper); }

  // Before parameters are read or gathered on `stream`, and before gradients are written again:
  // what is queued there from now on comes after a step that is still under way.
  void wait(void* stream) const {
    if (stepper_.wait != nullptr) stepper_.wait(stream);
  }
  // Once a step: the shard's gradient is what the step will see, when `arrived` and what is queued
  // on the compute stream have come to pass. Need not be called, but saves time.
  void gradient_complete(const Event& arrived) const {
    if (stepper_.gradient_complete != nullptr) stepper_.gradient_complete(arrived);
  }

 private:
  Stepper stepper_;
};

// What a rank steps of one flat buffer: a whole buffer, or its part under sharding, in device or
// host memory. All tensors are vectors of one length; elements between spans are padding and are
// zero.
//
// A master in another context than the gradient asks to be stepped there (runtime/offload);
// compute, f32 or less, then follows the master across, if it is defined: else readers fetch the
// master.
struct OptimShard {
  std::string name = {};  // for messages: "h.3"
  Tensor master;          // f32; the parameters themselves when they are f32
  Tensor grad;            // f32 or bf16
  Tensor compute = {};    // bf16 or f16 parameters that follow the master; undefined when master is
                          // the parameter
  std::vector<OptimSpan> spans;
  std::shared_ptr<StepFence> fence = {};  // null: steps are over when later work on the stream runs
  // Whether `grad` holds a gradient; if not, the next one overwrites it. Null where backward writes
  // into `grad` itself: then each parameter says so of its part (LeafState::has_value).
  std::shared_ptr<bool> has_grad = {};
  // Called when master and compute have been changed, so that they can be sent to other ranks;
  // null: nobody wants to know.
  std::function<void()> changed = {};
};

// Part of a vector.
Tensor vector_slice(const Tensor& vector, int64_t begin, int64_t count);

// The shards of a module materialised on one device without data parallelism: one per trainable
// parameter. Makes the gradient memory and, for bf16, the f32 masters.
std::vector<OptimShard> local_shards(Module& module, Context& context);

// Sets the gradients of parameters that no backward has reached since zero_grad() to zero.
void complete_gradients(const std::vector<OptimShard>& shards);
// The next gradient overwrites instead of adding. Moves no memory.
void zero_grad(const std::vector<OptimShard>& shards);

}  // namespace shale
