#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/nn/module.h"

namespace shale {

// A run of elements of one parameter inside an OptimShard.
struct OptimSpan {
  Parameter* parameter = nullptr;
  int64_t first = 0;   // index of the first element in the parameter
  int64_t offset = 0;  // of the first element in the shard's buffers
  int64_t count = 0;
};

// What a rank steps of one flat buffer: a whole buffer, or its part under sharding, in device or
// host memory. All tensors are vectors of one length; elements between spans are padding and are
// zero.
struct OptimShard {
  std::string name;  // for messages: "h.3"
  Tensor master;     // f32; the parameters themselves when they are f32
  Tensor grad;       // f32 or bf16
  Tensor compute;    // bf16 or f16 parameters that follow the master; undefined when master is the
                     // parameter
  std::vector<OptimSpan> spans;
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
