#pragma once

#include <stdexcept>
#include <string>

#include "shale/base/text.h"

namespace shale {

// Exit codes of programs that end with an error.
enum class ExitCode : int {
  kOk = 0,
  kUsage = 64,         // bad flag or config
  kData = 65,          // malformed data or checkpoint
  kMissingInput = 66,  // an input file does not exist
  kUnavailable = 69,   // device or host is not available
  kInternal = 70,      // a bug in Shale or in the embedding program
  kOutOfMemory = 71,
  kDisk = 74,
  kInterrupted = 75,  // stopped by a signal after saving; run again to continue
  kComm = 76,         // ranks disagree, or a collective timed out
  kNonFinite = 77,    // loss or gradient is not finite
};

// Base of all errors thrown by Shale. The message says what was expected and what was found.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

template <ExitCode kCode>
class ErrorWithCode : public Error {  // an error with a fixed exit code
 public:
  explicit ErrorWithCode(const std::string& message) : Error(kCode, message) {}
};

class ConfigError : public ErrorWithCode<ExitCode::kUsage> {  // ExitCode explains each error
  using ErrorWithCode::ErrorWithCode;
};
class DataError : public ErrorWithCode<ExitCode::kData> {
  using ErrorWithCode::ErrorWithCode;
};
class MissingInputError : public ErrorWithCode<ExitCode::kMissingInput> {
  using ErrorWithCode::ErrorWithCode;
};
class UnavailableError : public ErrorWithCode<ExitCode::kUnavailable> {
  using ErrorWithCode::ErrorWithCode;
};
class InternalError : public ErrorWithCode<ExitCode::kInternal> {
  using ErrorWithCode::ErrorWithCode;
};
class OutOfMemoryError : public ErrorWithCode<ExitCode::kOutOfMemory> {
  using ErrorWithCode::ErrorWithCode;
};
class DiskError : public ErrorWithCode<ExitCode::kDisk> {
  using ErrorWithCode::ErrorWithCode;
};
class CommError : public ErrorWithCode<ExitCode::kComm> {
  using ErrorWithCode::ErrorWithCode;
};
class NonFiniteError : public ErrorWithCode<ExitCode::kNonFinite> {
  using ErrorWithCode::ErrorWithCode;
};

// Wrong use of an operation: "linear: weight is [3,4], expected [*,5]".
class ShapeError : public InternalError {
  using InternalError::InternalError;
};
class DTypeError : public InternalError {
  using InternalError::InternalError;
};
class AutogradError : public InternalError {
  using InternalError::InternalError;
};

}  // namespace shale
