// What kernels see of the inputs and outputs of a pointwise program. Included inside a namespace;
// includes nothing, as kernels that are compiled when they are used get it as text.

// `data` with strides, which inputs that are dense do not use.
struct PointwiseInput {
  const void* data;
  DType dtype;
  bool dense;
  bool packed;  // dense, and packs of four are aligned
  int64_t stride[kMaxDims];
};
struct PointwiseOutput {
  void* data;
  DType dtype;
  bool packed;
};

struct PointwiseOperands {
  int64_t n;  // elements of each output
  int64_t dims;
  int64_t size[kMaxDims];
  PointwiseInput inputs[kMaxPointwiseInputs];
  PointwiseOutput outputs[kMaxPointwiseOutputs];
};
