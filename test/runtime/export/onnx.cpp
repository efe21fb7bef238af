// Exports forwards to ONNX and checks the files with the tests' own reader.
// test/oracles/onnx_files.py runs the files of these tests in onnxruntime.
#include "shale/runtime/export/onnx.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/conv.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/nn/sequential.h"
#include "shale/runtime/ops/attention.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/fused.h"
#include "shale/runtime/ops/index.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/matmul.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/ops/softmax.h"
#include "shale/runtime/ops/swiglu.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/onnx.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

using Tensors = std::vector<Tensor>;
using Forward = std::function<Tensors(const Tensors&)>;
using Catch::Contains;

Tensor floats(Context& context, const Shape& shape, float low = -1.5f, float high = 1.5f) {
  std::mt19937 words(static_cast<uint32_t>(shape.numel()));
  std::vector<float> values(size_t(shape.numel()));
  for (float& value : values) {
    value = low + (high - low) * float(words() >> 8) / float(1 << 24);
  }
  return from_host<float>(context, values, shape);
}

Tensor integers(Context& context, const Shape& shape, int32_t below) {
  std::vector<int32_t> values(size_t(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = int32_t(7 * i + 3) % below;
  return from_host<int32_t>(context, values, shape);
}

// A forward of one input.
Forward of_one(std::function<Tensor(const Tensor&)> fn) {
  return [fn = std::move(fn)](const Tensors& in) { return Tensors{fn(in[0])}; };
}

struct Case {
  std::string name;
  Tensors inputs;
  Forward forward;
};

// One case for each op that can be exported, and for the steps that ops consist of.
std::vector<Case> cases(Context& c) {
  const Tensor x = floats(c, {2, 4, 6}), rows = floats(c, {3, 6});
  const Tensor weight = floats(c, {5, 6}), square = floats(c, {6, 6}), wide = floats(c, {8, 6});
  const Tensor six = floats(c, {6}), eight = floats(c, {8}), five = floats(c, {5});
  const Tensor back = floats(c, {6, 8}), image = floats(c, {2, 9, 7, 3});
  const Tensor kernel = floats(c, {5, 3, 3, 3});
  const Tensor q = floats(c, {2, 5, 4, 8}), k = floats(c, {2, 5, 2, 8});
  const auto all_unary = [](const Tensor& in) {
    const Tensor positive = add(abs(in), 0.1f);
    return concat({neg(in),        abs(in),
                   exp(in),        log(positive),
                   sqrt(positive), rsqrt(positive),
                   relu(in),       sigmoid(in),
                   tanh(in),       silu(in),
                   softplus(in),   sin(in),
                   cos(in),        clamp(in, -0.5f, 0.7f),
                   gelu(in),       gelu(in, Gelu::kErf),
                   scale(in, 3),   pow(positive, 1.7f),
                   pow(in, 2),     pow(in, -1)},
                  1);
  };
  const auto all_binary = [](const Tensors& in) {
    const Tensor &a = in[0], &b = in[1];
    return Tensors{concat(
        {add(a, b), sub(a, b), mul(a, b), div(a, add(abs(b), 1.f)), maximum(a, b), minimum(a, b),
         sub(2.f, a), div(1.f, add(abs(a), 1.f)), where(less(a, b), a, b),
         where(less_equal(a, 0.2f), a, 0.f), mul(equal(a, a), b), cast(less(a, b), DType::kF32)},
        0)};
  };
  const auto attends = [](const AttentionOptions& options) {
    return
        [options](const Tensors& in) { return Tensors{attention(in[0], in[1], in[2], options)}; };
  };
  return {
      {"unary", {x}, of_one(all_unary)},
      {"binary", {x, floats(c, {2, 4, 6}, -1, 1)}, all_binary},
      {"broadcast", {x}, of_one([=](const Tensor& in) {
         return fused([&](const Tensors& t) { return Tensors{mul(add(t[0], t[1]), silu(t[0]))}; },
                      {in, six})[0];
       })},
      {"linear", {x}, of_one([=](const Tensor& in) { return linear(in, weight, five); })},
      {"linear_rows", {rows}, of_one([=](const Tensor& in) {
         return linear(linear(in, square, {}, in), weight, five);
       })},
      {"ffn", {x}, of_one([=](const Tensor& in) {
         return add(ffn(in, wide, eight, back, six, in),
                    ffn(in, wide, eight, back, {}, {}, Gelu::kErf));
       })},
      {"swiglu", {x}, of_one([=](const Tensor& in) { return swiglu(in, wide, wide, back, in); })},
      {"norms", {x}, of_one([=](const Tensor& in) {
         const auto [y, stream] = stream_layer_norm(in, mul(in, 0.5f), six, six, 1e-5f);
         const auto [z, rest] = stream_rms_norm(stream, y, six, 1e-6f);
         return concat({y, z, rest, layer_norm(in, six, {}, 1e-5f), rms_norm(in, six, 1e-5f)}, 1);
       })},
      {"softmax", {x}, of_one([](const Tensor& in) {
         return concat({softmax(in, -1), softmax(in, 1), log_softmax(in, 2)}, 1);
       })},
      {"attention", {q, k, k}, attends({.causal = false})},
      {"attention_causal", {q, q, floats(c, {2, 5, 4, 8}, 0, 1)}, attends({})},
      {"attention_window", {q, k, k}, attends({.scale = 0.3f, .window = 2, .softcap = 5})},
      {"packed_attention", {floats(c, {2, 5, 24})}, of_one([](const Tensor& in) {
         return packed_attention(in, 2, {.causal = false});
       })},
      {"conv", {image}, of_one([=](const Tensor& in) {
         const Tensor y = conv2d(in, kernel, five, {.stride = 2, .padding = 1});
         return global_average_pool(relu(max_pool2d(y, 3, {.stride = 2, .padding = 1})));
       })},
      {"shapes", {x}, of_one([](const Tensor& in) {
         const Tensor turned = contiguous(transpose(in, 1, 2));
         const auto halves = split(reshape(turned, {in.size(0), 24}), {12, 12}, 1);
         const Tensor none = zeros(in.context(), {in.size(0), 12}, DType::kF32);
         return add(stack({contiguous(halves[1]), contiguous(halves[0])}, 1),
                    stack({none, full(in.context(), {in.size(0), 12}, DType::kF32, 2)}, 1));
       })},
      {"matmul", {x}, of_one([=](const Tensor& in) {
         return matmul(matmul(in, transpose(in, 1, 2)), matmul(in, square));
       })},
      {"reductions", {x}, of_one([](const Tensor& in) {
         return concat({sum(in, {1}), mean(in, {1}), max(in, {-2}), min(in, {1}),
                        reshape(sum(in, {1, 2}, true), {in.size(0), 1}),
                        reshape(mean(in, {2}), {in.size(0), 4})},
                       1);
       })},
      {"whole_reductions", {x}, of_one([](const Tensor& in) {
         return add(add(sum(in), mean(in)), sum(column_sum(in)));
       })},
      {"argmax", {x}, of_one([](const Tensor& in) { return argmax(in, 1); })},
      {"ids", {integers(c, {2, 4}, 6)}, of_one([=](const Tensor& in) {
         return embedding(in, square, square, 1);
       })},
      {"index",
       {x, integers(c, {2, 3, 6}, 4)},
       [&c](const Tensors& in) {
         const Tensor picked = gather(in[0], 1, in[1]);
         const Tensor some =
             index_select(in[0], 2, from_host<int32_t>(c, std::vector<int32_t>{4, 0}, {2}));
         return Tensors{scatter_add(in[0], 1, in[1], picked), some};
       }},
      {"twice", {x, x}, [](const Tensors& in) { return Tensors{sub(in[0], div(in[1], 2.f))}; }},
      {"scalar",
       {x, full(c, {}, DType::kF32, 3)},
       [](const Tensors& in) { return Tensors{mul(in[0], in[1])}; }},
      {"mask",
       {from_host<uint8_t>(c, std::vector<uint8_t>{0, 1, 1, 0, 1, 0}, {2, 3})},
       of_one([](const Tensor& in) { return mul(add(in, 1.f), 0.5f); })},
  };
}

// A small convolutional classifier.
struct Classifier : Module {
  Classifier()
      : conv(this, "conv",
             {.in = 3,
              .out = 4,
              .kernel = 3,
              .windows = {.padding = 1},
              .init = Init::normal(0.5f)}),
        norm(this, "norm", {.width = 4}),
        head(this, "head", 4, 3, Init::normal(0.5f)) {}
  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) {
      Tensor y = norm.forward(conv.forward(in), nn::Relu::kYes);
      y = max_pool2d(y, 2, {.stride = 2});
      return head.forward(global_average_pool(y));
    });
  }
  nn::Conv2d conv;
  nn::BatchNorm norm;
  nn::Linear head;
};

struct Fixture {
  Fixture() { materialize(model, context, DType::kF32, 1); }
  Forward forward() {
    return of_one([this](const Tensor& x) { return model.forward(x); });
  }
  Context context{small_context()};
  Classifier model;
  Tensor image = floats(context, {2, 8, 8, 3});
};

// Expects that the export throws, and leaves no file.
template <typename Error>
void refuses(Context& context, const Forward& forward, const Tensors& inputs,
             const std::string& words) {
  const TempDir folder;
  const Module none;
  CHECK_THROWS_MATCHES(export_onnx(none, forward, inputs, folder.file("x.onnx")), Error,
                       Catch::Matchers::Predicate<Error>(
                           [&](const Error& error) {
                             INFO(error.what());
                             CHECK_THAT(error.what(), Contains(words));
                             return true;
                           },
                           words));
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(context.autograd().recorder == nullptr);
}

// A custom op, which does not tell the exporter what it computes.
Tensor doubled(const Tensor& x, bool records) {
  Tensor y = empty_like(x);
  kernels::axpby(x.exec(), {.a = x, .y = y, .alpha = 2});
  if (records) {
    record("doubled", {x}, {&y}, [](BackwardArgs& args) { return Grads{scale(args.dy(), 2)}; });
  }
  return y;
}

}  // namespace

TEST_CASE("every op of the table is exported for any batch size") {
  Context context(small_context());
  const Module none;
  for (const Case& one : cases(context)) {
    CAPTURE(one.name);
    const auto [result, file, frozen] = check_export(one.name, none, one.forward, one.inputs);
    CHECK(result.fixed_batch == "");
    CHECK(result.nodes == frozen);
    CHECK(result.nodes == std::ssize(file.nodes));
    CHECK(file.ir == 8);
    CHECK(file.opset == 17);
    CHECK(file.inputs.size() == one.inputs.size());
    for (const auto& [name, input] : file.inputs) {
      CHECK((input.dims.empty() || input.dims.front() == -1));
    }
  }
}

TEST_CASE("parameters keep their names, and images are transposed once") {
  Fixture f;
  const auto [result, file, frozen] = check_export("classifier", f.model, f.forward(), {f.image});
  CHECK(result.fixed_batch == "");
  for (const Parameter* parameter : f.model.parameters()) {
    const std::string name = parameter->full_name();
    CAPTURE(name);
    REQUIRE(file.initializers.contains(name));
    const Shape& shape = parameter->shape;
    CHECK(file.initializers.at(name).dims == std::vector(shape.begin(), shape.end()));
  }
  CHECK(file.initializers.contains("norm.running_var"));
  // One transpose before the convolution, one before the pooling.
  CHECK(file.count("Transpose") == 2);
  CHECK(file.count("BatchNormalization") == 1);
  CHECK(file.inputs.at("input").dims == std::vector<int64_t>{-1, 8, 8, 3});
  CHECK(file.outputs.at("output").dims == std::vector<int64_t>{-1, 3});
  CHECK(f.context.autograd().training);
}

TEST_CASE("a module that recomputes is exported like others") {
  Fixture f;
  f.model.set_recompute(Recompute::kFull);
  CHECK(check_export("recomputed", f.model, f.forward(), {f.image}).file.count("Conv") == 1);
}

TEST_CASE("a batch size that the graph depends on is fixed, and the result says why") {
  Context context(small_context());
  const Module none;
  const auto fixed = [&](const std::string& name, const Forward& forward) {
    const auto [result, file, frozen] =
        check_export(name, none, forward, {floats(context, {2, 4})});
    CHECK(file.inputs.at("input").dims == std::vector<int64_t>{2, 4});
    return result.fixed_batch;
  };
  CHECK_THAT(fixed("fixed_constant", of_one([&](const Tensor& x) {
                     return mul(x,
                                from_host<float>(context, std::vector<float>(size_t(x.numel()), 2),
                                                 x.shape()));
                   })),
             Contains("a constant depends on the batch size"));
  CHECK_THAT(
      fixed("fixed_number", of_one([](const Tensor& x) { return mul(x, 1 / float(x.size(0))); })),
      Contains("the op mul depends on the batch size"));
  const Tensor held = floats(context, {2, 4});
  const auto [captured, file, frozen] = check_export(
      "fixed_captured", none, of_one([&](const Tensor& x) { return sub(x, held); }), {held});
  CHECK(captured.fixed_batch != "");
  CHECK(file.initializers.size() == 1);
  CHECK_THAT(fixed("fixed_slice",
                   of_one([](const Tensor& x) { return contiguous(slice(x, 0, 1, x.size(0))); })),
             Contains("slice depends on the batch size"));
  CHECK_THAT(fixed("fixed_shape", of_one([](const Tensor& x) {
                     return reshape(x, {2, 2, 2});
                   })),
             Contains("expected as many elements as [2,2,2]"));
}

TEST_CASE("ops and values that cannot be exported are refused by name, without a file") {
  Context context(small_context());
  const Tensor x = floats(context, {2, 4});
  const auto refuse = [&](const std::string& words, std::function<Tensor(const Tensor&)> fn) {
    CAPTURE(words);
    refuses<ConfigError>(context, of_one(std::move(fn)), {x}, words);
  };
  refuse("the op doubled cannot be exported", [](const Tensor& in) { return doubled(in, true); });
  refuse("linear: fp32[6,4] was made or changed in place by code that is not recorded",
         [&](const Tensor& in) {
           return linear(doubled(in, false), floats(context, {4, 4}));
         });
  refuse("the output: fp32[6,4] was made", [](const Tensor& in) { return doubled(in, false); });
  refuse("the op dropout cannot be exported",
         [](const Tensor& in) { return dropout(in, 0.5f, 0); });
  refuse("the op copy_ cannot be exported", [&](const Tensor& in) {
    Tensor y = empty_like(in);
    copy_(y, in);
    return y;
  });
  refuse("the op scale_ cannot be exported", [](const Tensor& in) {
    Tensor y = mul(in, in);
    scale_(y, 2);
    return y;
  });
  refuse("reads the values of fp32[6,4] on the host",
         [&](const Tensor& in) { return to_host<float>(in).front() > 0 ? in : neg(in); });
  refuse("the op mse_loss cannot be exported", [](const Tensor& in) { return mse_loss(in, in); });
  refuse("made the constant fp32[6,4] and then changed it", [](const Tensor& in) {
    const Tensor y = zeros(in.context(), in.shape(), DType::kF32);
    kernels::axpby(in.exec(), {.a = in, .y = y, .alpha = 2});
    return add(in, y);
  });
  refuse("the result of cast is bf16, expected fp32, int32 or uint8; use a model in fp32",
         [](const Tensor& in) { return cast(in, DType::kBF16); });
  refuse("the op attention cannot be exported with lengths", [&](const Tensor& in) {
    const Tensor q = reshape(in, {in.size(0), 2, 1, 2});
    const Tensor lengths =
        from_host<int32_t>(context, std::vector<int32_t>(size_t(in.size(0)), 1), {in.size(0)});
    return attention(q, q, q, {.causal = false, .k_lengths = lengths});
  });
  refuse("the outputs do not depend on 'input'", [&](const Tensor&) { return neg(x); });
  refuses<ConfigError>(context, of_one([](const Tensor& in) { return neg(in); }), {},
                       "found no inputs");
}

TEST_CASE("a wrong path, names or weights leave no file") {
  Fixture f;
  const TempDir folder;
  const auto exports = [&](const std::string& path, const OnnxOptions& options = {}) {
    export_onnx(f.model, f.forward(), {f.image}, path, options);
  };
  CHECK_THROWS_AS(exports(folder.file("missing/x.onnx")), DiskError);
  const std::string path = folder.file("x.onnx");
  CHECK_THROWS_AS(exports(path, {.input_names = {"a", "b"}}), ConfigError);
  CHECK_THROWS_AS(exports(path, {.output_names = {"head.weight"}}), ConfigError);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  kernels::fill(f.context.exec(), {.y = f.model.head.bias->value, .value = nan});
  CHECK_THROWS_WITH(exports(path), Contains("head.bias has NaN"));
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a large model keeps its weights in a second file") {
  Fixture f;
  const TempDir folder;
  const std::string path = folder.file("x.onnx");
  const OnnxExport done =
      export_onnx(f.model, f.forward(), {f.image}, path, {.max_file_bytes = 1000});
  const OnnxFile file = read_onnx(path);
  CHECK(file.initializers.at("conv.weight").bytes == -1);
  CHECK(std::filesystem::file_size(path + ".data") == size_t(done.weight_bytes));
  check_export("external", f.model, f.forward(), {f.image}, {.max_file_bytes = 1000});
}

}  // namespace shale::test
