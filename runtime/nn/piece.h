#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "shale/runtime/nn/module.h"

namespace shale::nn {

// A layer of a sequential model. Each piece maps the previous piece's tensor to the next one's. A
// pipeline stage is a run of consecutive pieces.
struct Piece {
  std::string name;        // name in messages: "h.3"
  Module* unit = nullptr;  // module that is a unit of data parallelism; null: part of the root unit
  std::vector<Parameter*> parameters = {};  // parameters that the piece uses
  // Cost of the piece's forward, in any unit that all pieces share, such as multiply-adds per
  // token.
  double cost = 1;
  // name of the batch field that is a second input of the piece; empty: none
  std::string feed = {};
  // Runs the piece. x: result of the previous piece; undefined for the first one. fed: the batch
  // field `feed`, or undefined. The last piece returns the sum of the losses, an f32 scalar.
  std::function<Tensor(const Tensor& x, const Tensor& fed)> run = {};
};

// Returns all parameters of these modules, for Piece::parameters.
inline std::vector<Parameter*> parameters_of(std::initializer_list<const Module*> modules) {
  std::vector<Parameter*> all;
  for (const Module* module : modules) {
    for (Parameter* parameter : module->parameters()) all.push_back(parameter);
  }
  return all;
}

}  // namespace shale::nn
