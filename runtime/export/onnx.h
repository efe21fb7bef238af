#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "shale/runtime/nn/module.h"

namespace shale {

// Options of export_onnx().
struct OnnxOptions {
  // Names of the inputs and outputs. If empty, they are "input" and "output" for a single tensor,
  // or "input_0", "input_1", ... for several.
  std::vector<std::string> input_names{}, output_names{};
  // The batch size is variable: the first dimension of every input that has the batch size of the
  // first input.
  bool free_batch = true;
  std::map<std::string, std::string> metadata{};  // metadata to write into the file: key -> value
  // If a file would be larger than this, in bytes, its weights go to a second file, PATH.data. They
  // always do from 2 GiB on, the largest size of a protocol buffer.
  int64_t max_file_bytes = int64_t{1} << 30;
};

// Description of a written file.
struct OnnxExport {
  int64_t nodes = 0;
  int64_t weight_bytes = 0;
  // Reason why the batch size is fixed to that of the inputs; empty: the batch size is variable.
  std::string fixed_batch;
};

// Writes the computation of `forward` to an ONNX file (operator set 17) with which onnxruntime and
// other programs compute the same without Shale. forward: calls the module and functions of ops.h;
// it runs up to four times in inference mode, with `inputs` and with these repeated along the first
// dimension. Every op reports what it computes (runtime/tensor/op_recorder.h). Parameters and
// buffers of `module` become initializers under their full names, other tensors constants. All
// tensors must be f32, i32 or u8 on one device, and layouts stay Shale's: images are [N, H, W, C].
// The file has the control flow of the recorded call.
//
// The file appears complete or not at all. With an empty path nothing is written: for ranks that
// only run forward together with the rank that writes. A parameter must have memory outside its
// module's forward: no ZeRO stage 3. Throws ConfigError for an op or a dtype that cannot be
// exported, for values that forward reads on the host, and for tensors whose origin is unknown;
// DataError for weights that are NaN; DiskError.
OnnxExport export_onnx(
    const Module& module,
    const std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>& forward,
    const std::vector<Tensor>& inputs, const std::string& path, const OnnxOptions& options = {});

}  // namespace shale
