#pragma once

#include <memory>
#include <vector>

#include "shale/runtime/autograd/tape.h"

namespace shale {

// An input of a recorded op: the op that made it, a leaf, or neither (needs no gradient).
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;  // index of node's output
  Tensor leaf;
};

// A recorded op. Nodes own the nodes of their inputs; tensors own the node that made them.
struct Node {
  const char* op = "";
  uint64_t number = 0;  // a consumer's number is higher than those of its inputs
  int outputs = 0;
  std::vector<Edge> inputs;
  BackwardFn backward;
  bool done = false;  // backward has visited it

  ~Node();
};

}  // namespace shale
