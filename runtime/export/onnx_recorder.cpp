#include <algorithm>
#include <optional>
#include <span>
#include <tuple>

#include "shale/base/error.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/export/onnx_internal.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::onnx {
namespace {

std::vector<int64_t> list_of(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

// Identifies the contents of a tensor: storage, offset, shape, strides, dtype and version. Views
// that ops do not record, such as detach(), have the same key as their tensor. A change in place
// raises the version and so changes the key.
using Key = std::tuple<const Storage*, int64_t, std::vector<int64_t>, std::vector<int64_t>, DType,
                       uint64_t>;

Key key_of(const Tensor& x) {
  return {x.storage().get(),    x.impl().offset, list_of(x.shape()),
          list_of(x.strides()), x.dtype(),       x.version()};
}

uint32_t checksum(const Tensor& x) {
  const std::string bytes = host_bytes(x);
  return crc32c(std::as_bytes(std::span(bytes)));
}

class ForwardRecorder : public OpRecorder {
 public:
  ForwardRecorder(const Module& module, const Context& context) : context_(context) {
    for (const Parameter* parameter : module.parameters()) {
      own_[&parameter->value.impl()] = parameter->full_name();
    }
    for (const Buffer* buffer : module.buffers()) {
      own_[&buffer->value.impl()] = buffer->full_name();
    }
  }

  Recording take(const std::vector<Tensor>& outputs) {
    for (const Tensor& y : outputs) {
      check_defined("export_onnx", "an output", y);
      recording_.outputs.push_back(find("the output", y));
    }
    for (const Value& value : recording_.values) {
      if (value.checksum == 0 || value.checksum == checksum(value.tensor)) continue;
      throw ConfigError(cat("export_onnx: forward made the constant ", value.tensor,
                            " and then changed it by code that is not recorded; expected ops of "
                            "ops.h"));
    }
    return std::move(recording_);
  }

  void add_input(const Tensor& x) { recording_.inputs.push_back(add_value(x, {})); }

  void add(const char* op, const std::vector<OpArgument>& inputs,
           const std::vector<Tensor>& outputs,
           const std::vector<OpAttribute>& attributes) override {
    RecordedOp added{.name = op, .inputs = {}, .outputs = {}, .attributes = attributes};
    for (const OpArgument& x : inputs) {
      added.inputs.push_back(
          {.value = x.tensor.defined() ? find(op, x.tensor) : -1, .number = x.value});
    }
    if (op == std::string_view("cast") && value(added.inputs[0].value).is_constant) {
      // A cast of a constant is recorded as a new constant, without an op; arange(), for example,
      // casts its numbers from f64.
      add_value(outputs[0],
                {.producer = op, .is_constant = true, .checksum = checksum(outputs[0])});
      return;
    }
    for (const Tensor& y : outputs) {
      added.outputs.push_back(add_value(y, {.producer = op}));
      if (inputs.empty()) recording_.values.back().checksum = checksum(y);
    }
    recording_.ops.push_back(std::move(added));
  }

  void add_constant(const Tensor& x) override {
    add_value(x, {.is_constant = true, .checksum = checksum(x)});
  }

  void check(const char* op, const std::vector<Tensor>& inputs,
             const std::vector<Tensor>& outputs) override {
    for (const Tensor& y : outputs) {
      const auto known = known_.find(key_of(y));
      const bool is_own = known != known_.end() && value(known->second).producer == std::string(op);
      // Not an op to export: a module's hooks may return an input, or a view of all its elements,
      // as a new tensor.
      const bool passes_on = std::ranges::any_of(inputs, [&](const Tensor& x) {
        return x.defined() && x.impl().storage != nullptr && &x.impl() != &y.impl() &&
               key_of(x) == key_of(y);
      });
      if (is_own || passes_on) continue;
      throw ConfigError(cat("export_onnx: the op ", op, " cannot be exported"));
    }
  }

  void read(const Tensor& x) override {
    const auto known = known_.find(key_of(x));
    const bool is_fixed = known != known_.end() ? value(known->second).is_constant
                                                : !allocated_.contains(x.storage().get());
    if (is_fixed) return;
    throw ConfigError(cat("export_onnx: forward reads the values of ", x,
                          " on the host; ONNX files cannot depend on the values of a tensor"));
  }

  void allocated(const Storage* storage) override { allocated_.insert(storage); }

 private:
  Value& value(int index) { return recording_.values[static_cast<size_t>(index)]; }

  int add_value(const Tensor& x, Value value) {
    value.dims = list_of(x.shape());
    value.dtype = x.dtype();
    value.tensor = x;  // holds the memory, so that no later tensor gets the same key
    recording_.values.push_back(std::move(value));
    return known_[key_of(x)] = static_cast<int>(recording_.values.size()) - 1;
  }

  int find(std::string_view user, const Tensor& x) {
    if (const auto known = known_.find(key_of(x)); known != known_.end()) return known->second;
    if (allocated_.contains(x.storage().get()) || &x.context() != &context_) {
      throw ConfigError(cat("export_onnx: ", user, ": ", x,
                            " was made or changed in place by code that is not recorded, expected "
                            "the result of an op that can be exported"));
    }
    const auto own = own_.find(&x.impl());
    return add_value(x, {.name = own != own_.end() ? own->second : "", .is_constant = true});
  }

  const Context& context_;
  Recording recording_;
  std::map<Key, int> known_;
  std::map<const TensorImpl*, std::string> own_;  // names of the module's parameters and buffers
  std::unordered_set<const Storage*> allocated_;  // storages allocated during the recording
};

class RecorderScope {
 public:
  RecorderScope(Context& context, OpRecorder& recorder) : place_(context.autograd().recorder) {
    if (place_ != nullptr) throw InternalError("export_onnx: called inside another export_onnx()");
    place_ = &recorder;
  }
  ~RecorderScope() { place_ = nullptr; }
  RecorderScope(const RecorderScope&) = delete;
  RecorderScope& operator=(const RecorderScope&) = delete;

 private:
  OpRecorder*& place_;
};

// Returns the size of a dimension for any batch, given its sizes for batches of 2 n and 3 n samples
// (`two`, `three`): the size itself if it is fixed, -k if it is k times the batch size, else
// nullopt.
std::optional<int64_t> merge(int64_t two, int64_t three, int64_t n) {
  if (two == three) return two;
  const int64_t k = three - two;  // size for n samples
  if (two != 2 * k || k % n != 0) return std::nullopt;
  return -(k / n);
}

bool same(const RecordedOp& a, const RecordedOp& b) {
  const auto equal = [](const OpAttribute& x, const OpAttribute& y) {
    return x.values == y.values;
  };
  return std::string_view(a.name) == b.name && a.inputs == b.inputs && a.outputs == b.outputs &&
         std::ranges::equal(a.attributes, b.attributes, equal);
}

}  // namespace

std::string host_bytes(const Tensor& x) {
  const NoGrad no_grad(x.context());
  const Tensor dense = contiguous(x);
  std::string bytes(static_cast<size_t>(dense.bytes()), '\0');
  if (bytes.empty()) return bytes;
  x.context().copy(bytes.data(), dense.data(), dense.bytes());
  x.context().synchronize();
  return bytes;
}

Recording record_forward(const Module& module, const Forward& forward,
                         const std::vector<Tensor>& inputs) {
  Context& context = inputs.front().context();
  ForwardRecorder recorder(module, context);
  for (const Tensor& x : inputs) recorder.add_input(x);
  std::vector<Tensor> outputs;
  {
    const RecorderScope scope(context, recorder);
    outputs = forward(inputs);
  }
  return recorder.take(outputs);
}

Recording merge_batches(Recording of_two, const Recording& of_three, int64_t n) {
  const auto& others = of_three.values;
  const auto mismatch = [](std::string_view op) {
    return BatchError(cat(op, " depends on the batch size"));
  };
  if (of_two.ops.size() != of_three.ops.size() || of_two.values.size() != others.size()) {
    throw mismatch("the number of ops");
  }
  for (size_t i = 0; i < of_two.ops.size(); ++i) {
    const RecordedOp& op = of_two.ops[i];
    if (!same(op, of_three.ops[i])) throw mismatch(cat("the op ", op.name));
  }
  for (size_t i = 0; i < others.size(); ++i) {
    Value& value = of_two.values[i];
    const std::string what =
        *value.producer != '\0' ? cat("the result of ", value.producer) : std::string("a constant");
    if (value.dims.size() != others[i].dims.size()) throw mismatch(what);
    for (size_t d = 0; d < value.dims.size(); ++d) {
      const auto size = merge(value.dims[d], others[i].dims[d], n);
      if (!size || (*size < 0 && value.is_constant)) throw mismatch(what);
      value.dims[d] = *size;
    }
    if (value.checksum != others[i].checksum && value.is_constant) throw mismatch(what);
  }
  return of_two;
}

}  // namespace shale::onnx
