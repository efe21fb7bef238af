#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "shale/runtime/nn/module.h"

namespace shale::nn {

// A layer of a model that is a sequence of pieces, each of which maps the previous piece's tensor
// to the next one's. Pipeline stages are runs of consecutive pieces.
struct Piece {
  std::string name;                         // "h.3", for messages
  Module* unit = nullptr;                   // unit of data parallelism; null: part of the root unit
  std::vector<Parameter*> parameters = {};  // parameters that the piece uses
  // Cost of the piece's forward, in a unit that all pieces share, such as multiply-adds per token.
  double cost = 1;
  std::string feed = {};  // batch field that is a further input of the piece; empty: none
  // x: undefined for the first piece; fed: the field `feed`, or undefined. The last piece returns
  // the sum of the losses, an f32 scalar.
  std::function<Tensor(const Tensor& x, const Tensor& fed)> run = {};
};

// Returns all parameters of some modules, for Piece::parameters.
inline std::vector<Parameter*> parameters_of(std::initializer_list<const Module*> modules) {
  std::vector<Parameter*> all;
  for (const Module* module : modules) {
    for (Parameter* parameter : module->parameters()) all.push_back(parameter);
  }
  return all;
}

}  // namespace shale::nn
