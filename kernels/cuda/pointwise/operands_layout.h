// The inputs and outputs of a pointwise program as kernel arguments. Included inside a namespace.
// Must not include anything, because kernels compiled at run time use it as text.

// An input of the program. The strides are not used if it is dense.
struct PointwiseInput {
  const void* data;
  DType dtype;
  bool dense;
  bool packed;  // dense, and its packs of four elements are aligned
  int64_t stride[kMaxDims];
};
struct PointwiseOutput {
  void* data;
  DType dtype;
  bool packed;
};

struct PointwiseOperands {
  int64_t n;  // elements per output
  int64_t dims;
  int64_t size[kMaxDims];
  PointwiseInput inputs[kMaxPointwiseInputs];
  PointwiseOutput outputs[kMaxPointwiseOutputs];
};
