#include "shale/runtime/kernel_check/cases.h"

namespace shale::kernel_check {

void FlatCases::add_optimizers() {
  const DType dtype = dtype_;
  const Shape n = {elements_};
  constexpr DType kF32 = DType::kF32;
  const auto compute = [=](Operands& o) { return dtype == kF32 ? View{} : o.zeros(dtype, n); };
  for (const DType moments : {kF32, DType::kBF16}) {
    const std::string variant = moments == kF32 ? "" : "bf16_moments";
    add<kernels::AdamWArgs>(variant, kernels::adamw, [=](Operands& o) {
      return kernels::AdamWArgs{.master = o.floats(kF32, n),
                                .grad = o.floats(kF32, n),
                                .m = o.zeros(moments, n),
                                .v = o.zeros(moments, n),
                                .param = compute(o),
                                .weight_decay = 0.1f};
    });
    add<kernels::LionArgs>(variant, kernels::lion, [=](Operands& o) {
      return kernels::LionArgs{.master = o.floats(kF32, n),
                               .grad = o.floats(kF32, n),
                               .m = o.zeros(moments, n),
                               .param = compute(o),
                               .weight_decay = 0.1f};
    });
  }
  const auto blocks = [this](int64_t size) { return Shape{(elements_ + size - 1) / size}; };
  const Shape scales = blocks(kernels::kMomentBlock);
  add<kernels::AdamW8bitArgs>("", kernels::adamw_8bit, [=](Operands& o) {
    return kernels::AdamW8bitArgs{.master = o.floats(kF32, n),
                                  .grad = o.floats(kF32, n),
                                  .m = o.zeros(DType::kU8, n),
                                  .v = o.zeros(DType::kU8, n),
                                  .m_scale = o.zeros(kF32, scales),
                                  .v_scale = o.zeros(kF32, scales),
                                  .param = compute(o),
                                  .weight_decay = 0.1f};
  });
  add<kernels::SgdArgs>("momentum", kernels::sgd, [=](Operands& o) {
    return kernels::SgdArgs{.master = o.floats(kF32, n),
                            .grad = o.floats(kF32, n),
                            .m = o.zeros(kF32, n),
                            .param = compute(o),
                            .momentum = 0.9f};
  });
  add<kernels::WeightAverageArgs>("", kernels::weight_average, [=](Operands& o) {
    return kernels::WeightAverageArgs{
        .master = o.floats(kF32, n), .average = o.zeros(kF32, n), .share = 1e-3f};
  });
  const Shape packed = {kernels::sign_blocks(elements_), kernels::kSignWords};
  add<kernels::SignPackArgs>("", kernels::sign_pack, [=](Operands& o) {
    return kernels::SignPackArgs{.value = o.floats(kF32, n),
                                 .grad = o.floats(kF32, n),
                                 .mask = o.floats(kF32, n),
                                 .owed = o.zeros(kF32, n),
                                 .packed = o.zeros(DType::kI32, packed),
                                 .grad_factor = 0.1f};
  });
  add<kernels::SignMeanArgs>("4_ranks", kernels::sign_mean, [=](Operands& o) {
    return kernels::SignMeanArgs{.parts = o.zeros(DType::kI32, {4, packed[0], packed[1]}),
                                 .mask = o.floats(kF32, n),
                                 .owed = o.zeros(kF32, n),
                                 .packed = o.zeros(DType::kI32, packed)};
  });
  add<kernels::SignUnpackArgs>("", kernels::sign_unpack, [=](Operands& o) {
    return kernels::SignUnpackArgs{.packed = o.zeros(DType::kI32, packed),
                                   .mask = o.floats(kF32, n),
                                   .value = o.zeros(kF32, n)};
  });
  add<kernels::MuonMomentumArgs>("", kernels::muon_momentum, [=](Operands& o) {
    return kernels::MuonMomentumArgs{
        .grad = o.floats(kF32, n), .m = o.zeros(kF32, n), .update = o.zeros(DType::kBF16, n)};
  });
  add<kernels::MuonArgs>("", kernels::muon, [=](Operands& o) {
    return kernels::MuonArgs{.master = o.floats(kF32, n),
                             .update = o.floats(DType::kBF16, n),
                             .param = compute(o),
                             .weight_decay = 0.1f};
  });
}

// Adds Adafactor on the largest matrix of a block, or on a smaller one for small buffers.
void FlatCases::add_adafactor() {
  const DType dtype = dtype_;
  constexpr DType kF32 = DType::kF32;
  kernels::MatrixRange part{.rows = 3072, .cols = 768};
  if (part.rows * part.cols > elements_) part = {.rows = 50, .cols = elements_ / 50};
  const Shape n = {part.rows * part.cols}, rows = {part.rows}, cols = {part.cols};
  const auto mean = [](Operands& o, const Shape& shape) {
    return o.values(shape, [](int64_t i) { return float(1 + i % 3); });
  };
  add<kernels::AdafactorMeansArgs>("", kernels::adafactor_means, [=](Operands& o) {
    return kernels::AdafactorMeansArgs{.grad = o.floats(kF32, n),
                                       .row_mean = o.zeros(kF32, rows),
                                       .col_mean = o.zeros(kF32, cols),
                                       .part = part};
  });
  add<kernels::AdafactorAverageArgs>("", kernels::adafactor_average, [=](Operands& o) {
    return kernels::AdafactorAverageArgs{.newest = mean(o, rows), .mean = o.zeros(kF32, rows)};
  });
  add<kernels::AdafactorSquaresArgs>("", kernels::adafactor_squares, [=](Operands& o) {
    return kernels::AdafactorSquaresArgs{.grad = o.floats(kF32, n),
                                         .row = mean(o, rows),
                                         .col = mean(o, cols),
                                         .sum = o.zeros(kF32, {}),
                                         .part = part};
  });
  add<kernels::AdafactorArgs>("", kernels::adafactor, [=](Operands& o) {
    return kernels::AdafactorArgs{.master = o.floats(kF32, n),
                                  .grad = o.floats(kF32, n),
                                  .row = mean(o, rows),
                                  .col = mean(o, cols),
                                  .square_sum = mean(o, {}),
                                  .param = dtype == kF32 ? View{} : o.zeros(dtype, n),
                                  .part = part};
  });
}

void FlatCases::add_reductions() {
  const DType dtype = dtype_;
  const Shape n = {elements_};
  add<kernels::SumSquaresArgs>("", kernels::sum_squares, [=](Operands& o) {
    return kernels::SumSquaresArgs{
        .x = o.floats(dtype, n),
        .sum = static_cast<kernels::FixedSum*>(o.raw(sizeof(kernels::FixedSum)))};
  });
  add<kernels::TreeSumArgs>("2_ranks", kernels::tree_sum, [=](Operands& o) {
    const std::span<void*> pointers = o.host_pointers(2);
    for (void*& pointer : pointers) pointer = o.floats(dtype, n).data;
    return kernels::TreeSumArgs{.inputs = pointers,
                                .outputs = pointers,
                                .count = n.numel(),
                                .in_dtype = dtype,
                                .out_dtype = dtype};
  });
}

void FlatCases::add_rest() {
  const DType dtype = dtype_;
  const Shape n = {elements_};
  add<kernels::CopyArgs>(
      "", kernels::copy,
      [=](Operands& o) {
        return kernels::CopyArgs{.x = o.floats(dtype, n), .y = o.zeros(dtype, n)};
      },
      [](KernelDevice& device, const kernels::CopyArgs&) -> VendorCall<kernels::CopyArgs> {
        if (device.device().type != DeviceType::kCuda) return nullptr;
        return [&device](const kernels::CopyArgs& args) {  // the vendor's copy is cudaMemcpyAsync
          device.backend().copy(args.y.data, args.x.data, size_t(args.x.bytes()), device.stream());
        };
      });
  add<kernels::FillArgs>("", kernels::fill,
                         [=](Operands& o) { return kernels::FillArgs{.y = o.zeros(dtype, n)}; });
  add<kernels::RandomNormalArgs>("", kernels::random_normal, [=](Operands& o) {
    return kernels::RandomNormalArgs{.y = o.zeros(dtype, n), .seed = 1, .stream = 2};
  });
}

void add_single_cases(int64_t flat, std::vector<KernelCase>& out) {
  constexpr DType kF32 = DType::kF32;
  out.push_back(
      make_case<kernels::SumArgs>("losses/2048/fp32", kernels::sum, kF32, [](Operands& o) {
        return kernels::SumArgs{.x = o.floats(kF32, {2048}), .y = o.zeros(kF32, {})};
      }));
  out.push_back(
      make_case<kernels::ClipFactorArgs>("1/fp32", kernels::clip_factor, kF32, [](Operands& o) {
        return kernels::ClipFactorArgs{
            .sum = static_cast<kernels::FixedSum*>(o.raw(sizeof(kernels::FixedSum))),
            .max_norm = 1};
      }));
  out.push_back(
      make_case<kernels::InverseNormArgs>("1/fp32", kernels::inverse_norm, kF32, [](Operands& o) {
        return kernels::InverseNormArgs{
            .sum = static_cast<kernels::FixedSum*>(o.raw(sizeof(kernels::FixedSum))),
            .y = o.zeros(kF32, {})};
      }));
  out.push_back(
      make_case<kernels::LossScaleArgs>("1/fp32", kernels::update_loss_scale, kF32,
                                        [](Operands&) { return kernels::LossScaleArgs{}; }));
  out.push_back(make_case<kernels::SkipOutlierArgs>(
      "128/fp32", kernels::skip_outliers, kF32, [](Operands& o) {
        return kernels::SkipOutlierArgs{.norms = o.floats(kF32, {128}),
                                        .count = o.zeros(DType::kI64, {})};
      }));
  const auto add_cast = [&](const char* name, DType from, DType to) {
    out.push_back(
        make_case<kernels::AxpbyArgs>(name, kernels::axpby, DType::kBF16, [=](Operands& o) {
          return kernels::AxpbyArgs{.a = o.floats(from, {flat}), .y = o.zeros(to, {flat})};
        }));
  };
  add_cast("cast/flat/fp32_to_bf16", kF32, DType::kBF16);
  add_cast("cast/flat/bf16_to_fp32", DType::kBF16, kF32);
}

}  // namespace shale::kernel_check
