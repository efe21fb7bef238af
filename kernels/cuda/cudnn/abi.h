#pragma once

#include <cstddef>
#include <cstdint>

// The part of the C interface of cuDNN 9's graph API (cudnn_graph.h, formerly cudnn_backend.h) that
// Shale uses, with the names of NVIDIA's documentation. The numbers and signatures are the same in
// all versions 9. They are declared here, so that the build does not need cuDNN.

namespace shale::kernels::cudnn {

using Status = int;  // cudnnStatus_t: 0, or class * 1000 + code
inline constexpr Status kSuccess = 0, kNotInitialized = 1001, kBadParam = 2000,
                        kBadParamNullPointer = 2002, kBadParamNotFinalized = 2004,
                        kNotSupported = 3000;

using Handle = struct cudnnContext*;
using Descriptor = void*;  // cudnnBackendDescriptor_t

// cudnnBackendDescriptorType_t
enum class DescriptorType : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kExecutionPlan = 5,
  kConvolutionForward = 10,
  kConvolutionBackwardFilter = 11,
  kConvolutionBackwardData = 12,
  kOperationPointwise = 13,
  kGenStats = 14,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
};

// cudnnBackendAttributeName_t
enum class Attribute : int {
  kPointwiseMode = 0,
  kPointwiseMathPrec = 1,
  kConvolutionCompType = 100,
  kConvolutionConvMode = 101,
  kConvolutionDilations = 102,
  kConvolutionFilterStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicsMode = 200,
  kHeuristicsOperationGraph = 201,
  kHeuristicsResults = 202,
  kEngineConfigEngine = 300,
  kPlanHandle = 400,
  kPlanEngineConfig = 401,
  kPlanWorkspaceSize = 402,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvDesc = 702,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kBackwardDataAlpha = 706,
  kBackwardDataBeta = 707,
  kBackwardDataConvDesc = 708,
  kBackwardDataW = 709,
  kBackwardDataDx = 710,
  kBackwardDataDy = 711,
  kBackwardFilterAlpha = 712,
  kBackwardFilterBeta = 713,
  kBackwardFilterConvDesc = 714,
  kBackwardFilterDw = 715,
  kBackwardFilterX = 716,
  kBackwardFilterDy = 717,
  kOperationPointwiseDescriptor = 750,
  kOperationPointwiseX = 751,
  kOperationPointwiseB = 752,
  kOperationPointwiseY = 753,
  kGenStatsMode = 770,
  kGenStatsMathPrec = 771,
  kGenStatsX = 772,
  kGenStatsSum = 773,
  kGenStatsSquareSum = 774,
  kGraphHandle = 800,
  kGraphOps = 801,
  kTensorByteAlignment = 900,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorUniqueId = 906,
  kTensorIsVirtual = 907,
  kPackUniqueIds = 1000,
  kPackDataPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNumericalNote = 1303,
};

// cudnnBackendAttributeType_t
enum class AttributeType : int {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kFloat = 4,
  kVoidPtr = 6,
  kConvolutionMode = 7,
  kHeurMode = 8,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kGenStatsMode = 16,
};

enum class DataType : int { kFloat = 0, kHalf = 2, kBfloat16 = 9 };  // cudnnDataType_t
enum class ConvolutionMode : int { kConvolution = 0, kCrossCorrelation = 1 };
enum class PointwiseMode : int { kAdd = 0, kReluForward = 100 };  // cudnnPointwiseMode_t
enum class GenStatsMode : int { kSumSquareSum = 0 };              // cudnnGenStatsMode_t
enum class HeurMode : int { kFallback = 2, kA = 3 };              // cudnnBackendHeurMode_t

// cudnnBackendNumericalNote_t: special properties of an engine's arithmetic
enum class NumericalNote : int {
  kTensorCore = 0,
  kDownConvertInputs = 1,
  kReducedPrecisionReduction = 2,
  kFft = 3,
  kNonDeterministic = 4,
  kWinograd = 5,
};

}  // namespace shale::kernels::cudnn
