// The whole state of a model whose parameters are sharded, in bounded memory: one parameter at a
// time, and of that one piece at a time on its way between ranks.
#include <algorithm>

#include "shale/base/error.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/kernels/elementwise.h"

namespace shale::comm {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 20;

}  // namespace

DataParallel::Place DataParallel::place_of(const Parameter& parameter) const {
  for (const auto& unit : units_) {
    for (const auto& buffer : unit->buffers()) {
      for (const FlatEntry& entry : buffer->layout().entries) {
        if (entry.parameter == &parameter) return {.buffer = buffer.get(), .entry = &entry};
      }
    }
  }
  throw InternalError(cat("data parallel: ", parameter.full_name(), " is not part of the model"));
}

void DataParallel::for_each_piece(const Place& place,
                                  const std::function<void(int64_t, const Tensor&)>& visit) {
  const FlatBuffer& buffer = *place.buffer;
  buffer.wait_for_step();
  ProcessGroup& group = *shared_.groups.shard;
  const int owners = buffer.is_sharded() ? group.size() : 1;
  for (int owner = 0; owner < owners; ++owner) {
    const OptimSpan span = buffer.span_of(*place.entry, owner);
    for (int64_t begin = 0; begin < span.count; begin += kPieceElements) {
      const int64_t count = std::min(kPieceElements, span.count - begin);
      const Tensor piece = empty(shared_.context, {count}, DType::kF32, MemoryTag::kComm,
                                 place.entry->parameter->full_name());
      if (owners == 1 || owner == group.rank()) {
        const Tensor part = vector_slice(buffer.master(), span.offset + begin, count);
        if (&part.context() == &shared_.context) {
          kernels::axpby(piece.exec(), {.a = part, .y = piece});
        } else {  // an f32 master in host memory
          shared_.context.copy(piece.data(), part.data(), piece.bytes());
        }
      }
      if (owners > 1) {
        shared_.wait(group.broadcast(piece, owner,
                                     {.tag = place.entry->parameter->full_name(),
                                      .stream = shared_.context.exec().stream,
                                      .traffic = Traffic::kParameters}));
      }
      visit(span.first + begin, piece);
    }
  }
}

void DataParallel::read(const Parameter& parameter, const View& to) {
  auto* values = to.as<float>();
  for_each_piece(place_of(parameter), [&](int64_t first, const Tensor& piece) {
    shared_.context.copy(values + first, piece.data(), piece.bytes());
  });
  shared_.context.synchronize();
}

Tensor DataParallel::full_tensor(const Parameter& parameter) {
  Tensor whole = empty(shared_.context, parameter.shape, DType::kF32, MemoryTag::kActivation,
                       parameter.full_name());
  const Tensor flat = whole.alias({whole.numel()}, {1});
  for_each_piece(place_of(parameter), [&](int64_t first, const Tensor& piece) {
    shared_.context.copy(vector_slice(flat, first, piece.numel()).data(), piece.data(),
                         piece.bytes());
  });
  return whole;
}

void DataParallel::full_state(const std::function<void(const Parameter&, const View&)>& visit) {
  std::vector<float> host;
  for (const auto& unit : units_) {
    for (const Parameter* parameter : unit->parameters()) {
      host.resize(static_cast<size_t>(parameter->numel()));
      const View view = make_view(host.data(), parameter->shape);
      read(*parameter, view);
      visit(*parameter, view);
    }
  }
}

void DataParallel::distribute(const Parameter& parameter, const View& whole) {
  const Place place = place_of(parameter);
  const OptimSpan span = place.buffer->span_of(*place.entry, shared_.groups.shard->rank());
  place.buffer->wait_for_step();
  for (int64_t begin = 0; begin < span.count; begin += kPieceElements) {
    const int64_t count = std::min(kPieceElements, span.count - begin);
    const Tensor to = vector_slice(place.buffer->master(), span.offset + begin, count);
    const Tensor piece = from_host<float>(
        to.context(), {whole.as<float>() + span.first + begin, static_cast<size_t>(count)},
        {count});
    kernels::axpby(to.exec(), {.a = piece, .y = to});
  }
  place.buffer->master().context().synchronize();
  place.buffer->masters_changed();
}

void DataParallel::load(const std::function<void(const Parameter&, const View&)>& fill) {
  std::vector<float> host;
  for (const auto& unit : units_) {
    for (const Parameter* parameter : unit->parameters()) {
      host.resize(static_cast<size_t>(parameter->numel()));
      const View view = make_view(host.data(), parameter->shape);
      fill(*parameter, view);
      distribute(*parameter, view);
    }
  }
}

}  // namespace shale::comm
