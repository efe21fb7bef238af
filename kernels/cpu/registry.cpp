#include "shale/kernels/registry.h"

#include <mutex>

#include "shale/kernels/attention.h"
#include "shale/kernels/cpu/attention.h"
#include "shale/kernels/cpu/cpu_kernels.h"
#include "shale/kernels/cpu/gemm.h"
#include "shale/kernels/cpu/loss_scale.h"
#include "shale/kernels/cpu/tree_sum.h"
#include "shale/kernels/gemm.h"

namespace shale::kernels {
namespace {

void fill_slots() {
  constexpr DeviceType kCpu = DeviceType::kCpu;
  gemm.set(kCpu, cpu::gemm);
  attention_fwd.set(kCpu, cpu::attention_fwd);
  attention_bwd.set(kCpu, cpu::attention_bwd);
  layer_norm_fwd.set(kCpu, cpu::layer_norm_fwd);
  layer_norm_bwd.set(kCpu, cpu::layer_norm_bwd);
  rms_norm_fwd.set(kCpu, cpu::rms_norm_fwd);
  rms_norm_bwd.set(kCpu, cpu::rms_norm_bwd);
  cross_entropy.set(kCpu, cpu::cross_entropy);
  embedding_fwd.set(kCpu, cpu::embedding_fwd);
  embedding_bwd.set(kCpu, cpu::embedding_bwd);
  axpby.set(kCpu, cpu::axpby);
  mul.set(kCpu, cpu::mul);
  fill.set(kCpu, cpu::fill);
  copy.set(kCpu, cpu::copy);
  gelu_fwd.set(kCpu, cpu::gelu_fwd);
  gelu_bwd.set(kCpu, cpu::gelu_bwd);
  swiglu_fwd.set(kCpu, cpu::swiglu_fwd);
  dropout.set(kCpu, cpu::dropout);
  column_sum.set(kCpu, cpu::column_sum);
  sum.set(kCpu, cpu::sum);
  sum_squares.set(kCpu, cpu::sum_squares);
  clip_factor.set(kCpu, cpu::clip_factor);
  update_loss_scale.set(kCpu, cpu::update_loss_scale);
  adamw.set(kCpu, cpu::adamw);
  adamw_8bit.set(kCpu, cpu::adamw_8bit);
  lion.set(kCpu, cpu::lion);
  adafactor_means.set(kCpu, cpu::adafactor_means);
  adafactor_average.set(kCpu, cpu::adafactor_average);
  adafactor_squares.set(kCpu, cpu::adafactor_squares);
  adafactor.set(kCpu, cpu::adafactor);
  sgd.set(kCpu, cpu::sgd);
  random_normal.set(kCpu, cpu::random_normal);
  tree_sum.set(kCpu, cpu::tree_sum);
}

}  // namespace

void register_cpu_kernels() {
  static std::once_flag once;
  std::call_once(once, fill_slots);
}

}  // namespace shale::kernels
