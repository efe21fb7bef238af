#pragma once

#include <initializer_list>

#include "shale/kernels/pointwise_graph.h"

namespace shale::kernels {

// A value of a PointwiseGraph, in f32, with operators for writing formulas.
class PointwiseFormula {
 public:
  PointwiseFormula(PointwiseGraph& graph, int value) : graph_(&graph), value_(value) {}
  int value() const { return value_; }

  PointwiseFormula of(PointwiseOp op) const { return apply(op, {value_}); }
  PointwiseFormula with(PointwiseOp op, const PointwiseFormula& b) const {
    return apply(op, {value_, b.value_});
  }
  PointwiseFormula choose(const PointwiseFormula& yes, const PointwiseFormula& no) const {
    return apply(PointwiseOp::kWhere, {value_, yes.value_, no.value_});
  }
  PointwiseFormula number(float x) const { return {*graph_, graph_->constant(x)}; }

  friend PointwiseFormula operator+(const PointwiseFormula& a, const PointwiseFormula& b) {
    return a.with(PointwiseOp::kAdd, b);
  }
  friend PointwiseFormula operator-(const PointwiseFormula& a, const PointwiseFormula& b) {
    return a.with(PointwiseOp::kSub, b);
  }
  friend PointwiseFormula operator*(const PointwiseFormula& a, const PointwiseFormula& b) {
    return a.with(PointwiseOp::kMul, b);
  }
  friend PointwiseFormula operator/(const PointwiseFormula& a, const PointwiseFormula& b) {
    return a.with(PointwiseOp::kDiv, b);
  }
  friend PointwiseFormula operator-(const PointwiseFormula& a) { return a.of(PointwiseOp::kNeg); }
  friend PointwiseFormula operator<(const PointwiseFormula& a, const PointwiseFormula& b) {
    return a.with(PointwiseOp::kLess, b);
  }
  friend PointwiseFormula operator<=(const PointwiseFormula& a, const PointwiseFormula& b) {
    return a.with(PointwiseOp::kLessEqual, b);
  }

 private:
  PointwiseFormula apply(PointwiseOp op, std::initializer_list<int> args) const {
    return {*graph_, graph_->apply_once(op, DType::kF32, args)};
  }
  PointwiseGraph* graph_;
  int value_;
};

}  // namespace shale::kernels
