// A project whose folders and headers have the names of Shale's. Each include must find the
// intended file.
#include <shale/kernels.h>
#include <shale/language.h>
#include <shale/shale.h>

#include <tuple>

#include "base/error.h"
#include "comm/world.h"
#include "kernels/gemm.h"
#include "models/gpt2/gpt2.h"
#include "runtime/tensor/tensor.h"

using Own = std::tuple<OwnError, OwnWorld, OwnGemm, OwnGpt2, OwnTensor>;
using Shales = std::tuple<shale::Error*, shale::comm::World*, shale::kernels::GemmArgs*,
                          shale::models::LanguageModel*, shale::Tensor*>;
static_assert(std::tuple_size_v<Own> == std::tuple_size_v<Shales>);
