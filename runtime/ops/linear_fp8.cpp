#include "shale/runtime/ops/linear_fp8.h"

#include "shale/kernels/fp8.h"
#include "shale/kernels/fp8_shard.h"
#include "shale/runtime/ops/weight_grad.h"
#include "shale/runtime/ops/weight_uses.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {
namespace {

using kernels::Fp8Blocks;
using kernels::Fp8Format;
using Kind = Fp8Tensor::Kind;

// fp8 formats and scale granularities of x, the weight and the gradient of y.
struct Fp8Recipe {
  Kind x, weight, dy;
};
Fp8Recipe recipe_of(Operands operands) {
  const Kind weight = {fp8_weight_blocks(operands)};
  if (operands == Operands::kFp8Tensor) {
    return {{Fp8Blocks::kTensor}, weight, {Fp8Blocks::kTensor, Fp8Format::kE5M2}};
  }
  return {{Fp8Blocks::kLines}, weight, {Fp8Blocks::kLines}};
}

// Quantizes x, as a matrix, to `rows`, and its transpose to `columns`. Skips an output that has no
// memory.
void quantize(const Tensor& x, const Fp8Tensor& rows, const Fp8Tensor& columns) {
  kernels::quantize_fp8(x.exec(),
                        {.x = as_matrix(x), .rows = rows.operand(), .columns = columns.operand()});
}

struct Wanted {
  bool rows = false, columns = false;
};
struct Quantized {
  Fp8Tensor rows, columns;
};
Quantized quantized(const Tensor& x, const Kind& kind, const Wanted& wanted) {
  const View matrix = as_matrix(x);
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  Quantized result;
  if (wanted.rows) result.rows = Fp8Tensor::make(x.context(), rows, columns, kind);
  if (wanted.columns) result.columns = Fp8Tensor::make(x.context(), columns, rows, kind);
  quantize(x, result.rows, result.columns);
  return result;
}

// Size and, if given, memory of a quantized operand.
struct Place {
  int64_t lines, length;
  Tensor codes;  // memory that already holds the codes; undefined: make() allocates memory

  Fp8Tensor make(Context& context, const Kind& kind, MemoryTag tag) const {
    return Fp8Tensor::make(context, lines, length, kind, tag, codes);
  }
};

// A quantized weight, or its quantized transpose. All GEMMs with the same version of the weight
// share it.
struct SharedOperand {
  WeightUses uses;
  Fp8Tensor operand;
  uint64_t version = 0;  // version of the weight that it was made from
  Operands operands = Operands::kPlain;

  bool is_of(const Tensor& weight, Operands wanted) const {
    return operands == wanted && version == weight.version();
  }
  // If the operand must be made again from the present version of the weight, returns its memory to
  // fill; else an empty Fp8Tensor. The address never changes, because captured graphs use it.
  Fp8Tensor renewed(const Tensor& weight, Operands wanted, const Place& place) {
    if (!uses.are_shared() || is_of(weight, wanted)) return {};
    const Kind kind = recipe_of(wanted).weight;
    if (operands == Operands::kPlain) {
      operand = place.make(weight.context(), kind, MemoryTag::kWorkspace);
    }
    operand.kind = kind;
    version = weight.version();
    operands = wanted;
    return operand;
  }
};

}  // namespace

struct Fp8Weight {
  SharedOperand rows, columns;
  Fp8Codes codes;  // codes set by set_fp8_codes(); undefined: GEMMs quantize the weight's values
};

namespace {

// Returns the state that all GEMMs with this weight share. Null if the weight is not a leaf: no
// other GEMM could find its state.
Fp8Weight* shared_of(const Tensor& weight) {
  LeafState* const leaf = weight.impl().leaf.get();
  if (leaf == nullptr) return nullptr;
  if (leaf->fp8 == nullptr) leaf->fp8 = std::make_shared<Fp8Weight>();
  return leaf->fp8.get();
}

// A weight, and its fp8 codes if they were set.
struct WeightSource {
  const Tensor& weight;
  Fp8Codes codes;

  Place rows() const {
    const int64_t out = weight.size(0), in = weight.size(1);
    const bool fits = codes.codes.defined() && kernels::fp8_codes_stride(in) == in;
    return {out, in, fits ? codes.codes : Tensor()};
  }
  Place columns() const { return {weight.size(1), weight.size(0), {}}; }

  // Writes the quantized weight and its transpose. Skips an operand that has no memory.
  void make(const Fp8Tensor& of_rows, const Fp8Tensor& of_columns) const {
    if (!codes.codes.defined()) return quantize(weight, of_rows, of_columns);
    kernels::fp8_operands(weight.exec(), {.codes = codes.codes,
                                          .largest = codes.largest,
                                          .rows = of_rows.operand(),
                                          .columns = of_columns.operand()});
  }
};

// Returns a quantized operand for a GEMM with this weight. For a leaf, an earlier GEMM may have
// made it. If the other operand will be needed too, makes both in one pass.
Fp8Tensor weight_operand(const Tensor& weight, Operands operands,
                         SharedOperand Fp8Weight::*wanted) {
  const bool is_rows = wanted == &Fp8Weight::rows;
  Fp8Weight* const shared = shared_of(weight);
  const WeightSource source = {weight, shared != nullptr ? shared->codes : Fp8Codes()};
  if (shared == nullptr || !(shared->*wanted).uses.share(weight.version())) {
    const Kind kind = recipe_of(operands).weight;
    const Place place = is_rows ? source.rows() : source.columns();
    const Fp8Tensor own = place.make(weight.context(), kind, MemoryTag::kActivation);
    is_rows ? source.make(own, {}) : source.make({}, own);
    return own;
  }
  if (!(shared->*wanted).is_of(weight, operands)) {
    source.make(shared->rows.renewed(weight, operands, source.rows()),
                shared->columns.renewed(weight, operands, source.columns()));
  }
  return (shared->*wanted).operand;
}

}  // namespace

void set_fp8_codes(const Tensor& weight, const Fp8Codes& codes) {
  auto state = std::make_shared<Fp8Weight>();
  state->codes = codes;
  leaf_state(weight).fp8 = std::move(state);
}

Fp8Blocks fp8_weight_blocks(Operands operands) {
  return operands == Operands::kFp8Tensor ? Fp8Blocks::kTensor : Fp8Blocks::kSquares;
}

Fp8Tensor Fp8Tensor::make(Context& context, int64_t lines, int64_t length, const Kind& kind,
                          MemoryTag tag, const Tensor& given) {
  const auto make = [&](const Shape& shape, DType dtype) {
    return empty(context, shape, dtype, tag, "an fp8 operand");
  };
  return {.codes = given.defined() ? given
                                   : make({lines, kernels::fp8_codes_stride(length)}, DType::kU8),
          .scales = make({kernels::fp8_scale_rows(length), kernels::fp8_scales_stride(lines)},
                         DType::kF32),
          .kind = kind,
          .lines = lines,
          .length = length};
}

kernels::Fp8Operand Fp8Tensor::operand() const {
  if (!codes.defined()) return {};
  kernels::Fp8Operand operand = {
      .codes = codes.view(), .scales = scales.view(), .blocks = kind.blocks, .format = kind.format};
  operand.codes.shape = {lines, length};
  operand.scales.shape = {kernels::fp8_scale_rows(length), lines};
  return operand;
}

Fp8KeptInput::Fp8KeptInput(const Fp8Tensor& transpose)
    : transpose_(transpose),
      codes_("linear", transpose.codes),
      scales_("linear", transpose.scales) {
  transpose_.codes = transpose_.scales = Tensor();
}

Fp8Tensor Fp8KeptInput::transpose(Operands operands) const {
  if (x_.defined()) {
    return quantized(x_.get(), recipe_of(operands).x, {.columns = true}).columns;
  }
  Fp8Tensor result = transpose_;
  result.codes = codes_.get();
  result.scales = scales_.get();
  return result;
}

SharedInputs::SharedInputs(const std::vector<Tensor>& x) {
  for (const Tensor& one : x) {
    if (one.impl().fp8_input != nullptr) continue;
    one.impl().fp8_input = std::make_shared<Fp8InputOperands>();
    shared_.push_back(one);
  }
}

SharedInputs::~SharedInputs() {
  for (const Tensor& one : shared_) one.impl().fp8_input.reset();
}

Fp8Input::Fp8Input(Operands operands, const Tensor& x, bool keeps) : operands_(operands) {
  Fp8InputOperands own;
  Fp8InputOperands& made = x.impl().fp8_input != nullptr ? *x.impl().fp8_input : own;
  if (made.operands != operands || made.version != x.version()) {
    made = {.operands = operands, .version = x.version()};
  }
  if (keeps && made.kept == nullptr && has_recipe(x)) {
    made.kept = std::make_shared<const Fp8KeptInput>(x);
  }
  const Wanted wanted = {.rows = !made.rows.codes.defined(),
                         .columns = keeps && made.kept == nullptr};
  if (wanted.rows || wanted.columns) {
    const Quantized both = quantized(x, recipe_of(operands).x, wanted);
    if (wanted.rows) made.rows = both.rows;
    if (wanted.columns) made.kept = std::make_shared<const Fp8KeptInput>(both.columns);
  }
  rows_ = made.rows;
  if (keeps) kept_ = made.kept;
}

void Fp8Input::multiply(const LinearInputs& inputs, const Tensor& y) {
  const auto& [weight, bias, residual] = inputs;
  const Fp8Tensor b = weight_operand(weight, operands_, &Fp8Weight::rows);
  kernels::fp8_gemm(y.exec(), {.a = rows_.operand(),
                               .b = b.operand(),
                               .c = as_matrix(y),
                               .bias = bias.defined() ? bias.view() : View{},
                               .residual = residual.defined() ? as_matrix(residual) : View{}});
  rows_ = {};
}

void Fp8Input::emit_grads(BackwardArgs& args, const SavedTensor& weight, Grads& grads) const {
  if (!args.needs(0) && !args.needs(1)) return;
  const Fp8Recipe recipe = recipe_of(operands_);
  const Tensor dy = args.dy();
  const Quantized from =
      quantized(dy, recipe.dy, {.rows = args.needs(0), .columns = args.needs(1)});
  if (args.needs(0)) {
    const Tensor values = weight.get();
    const Fp8Tensor b = weight_operand(values, operands_, &Fp8Weight::columns);
    Tensor dx = empty(dy.context(), with_last(dy.shape(), values.size(1)), dy.dtype());
    kernels::fp8_gemm(dy.exec(), {.a = from.rows.operand(), .b = b.operand(), .c = as_matrix(dx)});
    grads[0] = dx;
  }
  if (!args.needs(1)) return;
  emit_weight_grad(
      args, {1, weight.get(), dy.dtype()}, grads,
      [a = from.columns, b = kept_->transpose(operands_)](const Tensor& dw, bool accumulate) {
        kernels::fp8_gemm(dw.exec(),
                          {.a = a.operand(), .b = b.operand(), .c = dw, .accumulate = accumulate});
      });
}

}  // namespace shale
