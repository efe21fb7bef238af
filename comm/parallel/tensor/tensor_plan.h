#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/nn/module.h"

namespace shale::comm {

// How the layers of a model are cut over ranks, as a table of names: patterns of full names, in
// which `*` stands for any characters. Every parameter fits exactly one line, and every line but
// those of biases and adapters a parameter (arXiv:1909.08053, section 3, with slices of the rows
// between the layers as in arXiv:2205.05198, section 4.2).
//
//   TensorPlan()
//       .columns("h.*.attn.c_attn", {.groups = 3, .unit = head_size})
//       .rows("h.*.attn.c_proj")
//       .vocabulary("wte").first("wpe").slices("h.*.ln_1")...
class TensorPlan {
 public:
  struct Columns {
    int64_t groups = 1;  // equal parts of the outputs that are each cut, such as 3 of q, k, v
    int64_t unit = 1;    // outputs that stay together: a head's
  };
  // A layer's first product: outputs are cut, rows of the weight and elements of the bias. Of an
  // adapter B is cut likewise, and every leaf has A.
  TensorPlan& columns(std::string_view module, Columns how);
  TensorPlan& columns(std::string_view module) { return columns(module, Columns()); }
  // A layer's last product: inputs are cut, columns of the weight. The first leaf adds the bias. Of
  // an adapter A is cut likewise, and every leaf has B.
  TensorPlan& rows(std::string_view module);
  // A mixture of experts (nn::MoE): the hidden channels of each expert are cut, its router is on
  // every leaf.
  TensorPlan& mixture(std::string_view module);
  // Rows of a table: of lookups, of output layers.
  TensorPlan& vocabulary(std::string_view module);
  // What the first leaf has alone: a table of positions.
  TensorPlan& first(std::string_view module);
  // What works on slices of the rows, or on each leaf alike: norms. Every leaf has all of it, and
  // gradients are added over the leaves.
  TensorPlan& slices(std::string_view module);
  // The same of one parameter, by its full name.
  TensorPlan& repeated(std::string_view parameter);

  // Slices of the rows are of whole samples (nn/exchange.h), for models that look at all of one
  // between the layers that are cut: micro-batches have a multiple of the leaves of them.
  TensorPlan& whole_samples();
  bool has_whole_samples() const { return has_whole_samples_; }

  struct Line {
    std::string pattern;  // "h.*.attn.c_proj.weight"
    Partition partition;  // without leaves
    int64_t unit = 1;
  };
  const std::vector<Line>& lines() const { return lines_; }

  // The line of every parameter of a model, in their order. Throws ConfigError that names the
  // parameters that none or two lines fit, and lines that fit none.
  std::vector<const Line*> lines_of(const std::vector<Parameter*>& parameters) const;

 private:
  TensorPlan& add(std::string_view module, std::string_view parameter, const Partition& partition,
                  int64_t unit = 1);

  std::vector<Line> lines_;
  bool has_whole_samples_ = false;
};

}  // namespace shale::comm
