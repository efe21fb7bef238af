#include "shale/kernels/muon.h"

#include "shale/kernels/check.h"

namespace shale::kernels {

void check_args(const MuonMomentumArgs& a) {
  check_dtype("muon_momentum", "grad", a.grad, kGradientDTypes);
  check_contiguous("muon_momentum", "grad", a.grad);
  check_dense("muon_momentum", "m", a.m, a.grad.shape, DType::kF32);
  check_dense("muon_momentum", "update", a.update, a.grad.shape, DType::kBF16);
}

void check_args(const InverseNormArgs& a) {
  check_dense("inverse_norm", "y", a.y, {}, DType::kF32);
}

void check_args(const MuonArgs& a) {
  check_optim_span("muon", a.master, a.update, a.param);
  check_dtype("muon", "update", a.update, DType::kBF16);
}

}  // namespace shale::kernels
