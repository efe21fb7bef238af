#pragma once

#include <memory>
#include <vector>

#include "shale/runtime/autograd/tape.h"

namespace shale {

// An input of a recorded op. It is the output of another op, or a leaf, or a tensor that needs no
// gradient.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;  // index of the input among the outputs of `node`
  Tensor leaf;
};

// A recorded op. Nodes own the nodes of their inputs; tensors own the node that made them.
struct Node {
  const char* op = "";
  uint64_t number = 0;  // number of the op; higher than the numbers of the ops that made its inputs
  int outputs = 0;
  std::vector<Edge> inputs;
  BackwardFn backward;
  bool done = false;  // true: a backward has visited this node

  ~Node();
};

}  // namespace shale
