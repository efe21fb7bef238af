#include "execution.h"

#include <algorithm>
#include <set>

#include "shale/base/dtype.h"

namespace shale::test {
namespace {

double load(const Tensor& t, const void* data, int64_t i) {
  if (t.type == DataType::kFloat) return static_cast<const float*>(data)[i];
  if (t.type == DataType::kHalf) return float(static_cast<const f16*>(data)[i]);
  return float(static_cast<const bf16*>(data)[i]);
}
void store(const Tensor& t, void* data, int64_t i, double value) {
  const auto f = static_cast<float>(value);
  if (t.type == DataType::kFloat) static_cast<float*>(data)[i] = f;
  if (t.type == DataType::kHalf) static_cast<f16*>(data)[i] = f16(f);
  if (t.type == DataType::kBfloat16) static_cast<bf16*>(data)[i] = bf16(f);
}

// Tensors by id: arrays of f64 in the order of the tensor's dimensions.
struct Values {
  std::map<int64_t, std::vector<double>> of;

  static int64_t numel(const Tensor& t) {
    int64_t count = 1;
    for (const int64_t size : t.dims) count *= size;
    return count;
  }
  static int64_t offset(const Tensor& t, int64_t i) {
    int64_t at = 0;
    for (size_t d = t.dims.size(); d-- > 0; i /= t.dims[d]) at += i % t.dims[d] * t.strides[d];
    return at;
  }
};

void convolve(const Operation& op, Values& values) {
  const Object& o = *op.object;
  const Object& windows = part(o, attribute(o, 2));
  const Tensor wt = tensor_of(o, attribute(o, 3)), xt = tensor_of(o, attribute(o, 4));
  const Tensor yt = tensor_of(o, attribute(o, 5));
  const auto stride = windows.all<int64_t>(A::kConvolutionFilterStrides);
  const auto padding = windows.all<int64_t>(A::kConvolutionPrePaddings);
  const auto dilation = windows.all<int64_t>(A::kConvolutionDilations);
  values.of[op.writes[0].uid].assign(static_cast<size_t>(Values::numel(op.writes[0])), 0.0);
  double* const w = values.of[wt.uid].data();
  double* const x = values.of[xt.uid].data();
  double* const y = values.of[yt.uid].data();
  const auto at = [](const Tensor& t, int64_t a, int64_t b, int64_t c, int64_t d) {
    return ((a * t.dims[1] + b) * t.dims[2] + c) * t.dims[3] + d;
  };
  for (int64_t n = 0; n < yt.dims[0]; ++n)
    for (int64_t k = 0; k < yt.dims[1]; ++k)
      for (int64_t i = 0; i < yt.dims[2]; ++i)
        for (int64_t j = 0; j < yt.dims[3]; ++j)
          for (int64_t u = 0; u < wt.dims[2]; ++u)
            for (int64_t v = 0; v < wt.dims[3]; ++v) {
              const int64_t h = i * stride[0] - padding[0] + u * dilation[0];
              const int64_t l = j * stride[1] - padding[1] + v * dilation[1];
              if (h < 0 || h >= xt.dims[2] || l < 0 || l >= xt.dims[3]) continue;
              for (int64_t c = 0; c < wt.dims[1]; ++c) {
                double& of_y = y[at(yt, n, k, i, j)];
                double& of_x = x[at(xt, n, c, h, l)];
                double& of_w = w[at(wt, k, c, u, v)];
                if (op.type == D::kConvolutionForward) of_y += of_x * of_w;
                if (op.type == D::kConvolutionBackwardData) of_x += of_y * of_w;
                if (op.type == D::kConvolutionBackwardFilter) of_w += of_y * of_x;
              }
            }
}

void apply(const Operation& op, Values& values) {
  if (is_convolution(op.type)) return convolve(op, values);
  const std::vector<double>& x = values.of[op.reads[0].uid];
  const std::vector<int64_t>& dims = op.reads[0].dims;
  const auto channel = [&](size_t i) {
    return static_cast<int64_t>(i) / (dims[2] * dims[3]) % dims[1];
  };
  if (op.type == D::kGenStats) {
    std::vector<double> sum(static_cast<size_t>(dims[1])), square = sum;
    for (size_t i = 0; i < x.size(); ++i) {
      sum[size_t(channel(i))] += x[i], square[size_t(channel(i))] += x[i] * x[i];
    }
    values.of[op.writes[0].uid] = sum, values.of[op.writes[1].uid] = square;
    return;
  }
  std::vector<double> y = x;
  if (op.reads.size() == 2) {
    const std::vector<double>& b = values.of[op.reads[1].uid];
    for (size_t i = 0; i < y.size(); ++i) y[i] += b[b.size() == 1 ? 0 : size_t(channel(i))];
  } else {
    for (double& value : y) value = std::max(value, 0.0);
  }
  values.of[op.writes[0].uid] = y;
}

}  // namespace

Execution execution_of(const Object& plan, const Object& pack) {
  const Object& config = part(plan, A::kPlanEngineConfig);
  const std::shared_ptr<Object>& graph = config.kept.at(0);
  Execution run{.kept = {graph}, .operations = operations_of(*graph), .engine = config.engine};
  const auto uids = pack.all<int64_t>(A::kPackUniqueIds);
  const auto data = pack.all<char*>(A::kPackDataPointers);
  for (size_t i = 0; i < uids.size(); ++i) run.pointers[uids[i]] = data[i];
  run.workspace = pack.one<char*>(A::kPackWorkspace);
  want(run.workspace != nullptr, "a plan that needs workspace gets some", kBadParamNullPointer);
  std::set<int64_t> known, computed;
  for (const Operation& op : run.operations) {
    for (const Tensor& t : op.reads) {
      want(!t.is_virtual || computed.contains(t.uid),
           "operations come in the order in which they need each other");
    }
    for (const std::vector<Tensor>* tensors : {&op.reads, &op.writes}) {
      for (const Tensor& t : *tensors) {
        if (t.is_virtual) continue;
        known.insert(t.uid);
        want(run.pointers.contains(t.uid), cat("tensor ", t.uid, " has no pointer"));
        want(reinterpret_cast<uintptr_t>(run.pointers[t.uid]) % size_t(t.alignment) == 0,
             cat("tensor ", t.uid, " is not aligned as it says"));
      }
    }
    for (const Tensor& t : op.writes) computed.insert(t.uid);
  }
  for (const int64_t uid : uids) want(known.contains(uid), cat("id ", uid, " is no tensor's"));
  return run;
}

void execute(Execution& run, const Written& tell) {
  const auto written = [&](const void* data, int64_t bytes) {
    if (tell) tell(data, static_cast<size_t>(bytes));
  };
  std::fill_n(run.workspace, kWorkspaceBytes, '\xff');
  written(run.workspace, kWorkspaceBytes);
  Values values;
  for (const Operation& op : run.operations) {
    for (const Tensor& t : op.reads) {
      if (values.of.contains(t.uid)) continue;
      for (int64_t i = 0; i < Values::numel(t); ++i) {
        values.of[t.uid].push_back(load(t, run.pointers[t.uid], Values::offset(t, i)));
      }
    }
    apply(op, values);
    for (const Tensor& t : op.writes) {
      if (t.is_virtual) continue;
      for (int64_t i = 0; i < Values::numel(t); ++i) {
        store(t, run.pointers[t.uid], Values::offset(t, i), values.of[t.uid][size_t(i)]);
      }
      written(run.pointers[t.uid], Values::numel(t) * (t.type == DataType::kFloat ? 4 : 2));
    }
  }
}

}  // namespace shale::test
