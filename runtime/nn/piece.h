#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "shale/runtime/nn/module.h"

namespace shale::nn {

// A part of a model that is a list of parts: each makes from the tensor of the one before it that
// of the next. The stages of a pipeline are runs of pieces.
struct Piece {
  std::string name;                         // "h.3", for messages
  Module* unit = nullptr;                   // of data parallelism; null: a part of the root
  std::vector<Parameter*> parameters = {};  // that it uses
  double cost = 1;                          // of its forward, in any unit: multiply-adds per token
  std::string feed = {};  // the field of the batch that it takes besides; empty: none
  // x: undefined for the first piece; fed: that field, or undefined. The last piece gives the sum
  // of the losses, an f32 scalar.
  std::function<Tensor(const Tensor& x, const Tensor& fed)> run = {};
};

// The parameters of some modules, for a piece.
inline std::vector<Parameter*> parameters_of(std::initializer_list<const Module*> modules) {
  std::vector<Parameter*> all;
  for (const Module* module : modules) {
    for (Parameter* parameter : module->parameters()) all.push_back(parameter);
  }
  return all;
}

}  // namespace shale::nn
