#include "shale/comm/link/pipe_link.h"

#include "shale/base/error.h"

namespace shale::comm {
namespace {

std::string describe(const MessageId& id) {
  return cat(direction_name(id.direction), " ", id.micro_batch, " of chunk ", id.chunk, " in step ",
             id.step);
}

}  // namespace

std::string_view direction_name(Direction direction) {
  return direction == Direction::kForward ? "forward" : "backward";
}

std::string describe(const Message& message) {
  return cat(describe(message.id), ", ", dtype_name(message.dtype), "[", message.count, "]");
}

std::string link_name(const LinkOptions& options) {
  return cat("group '", options.group_name, "': link ", options.sender_world, " -> ",
             options.receiver_world);
}

Fingerprint fingerprint(const LinkOptions& options, const Message& message) {
  Fingerprint print{.count = message.count,
                    .root = options.sender_world,
                    .peer = options.receiver_world,
                    .role = options.sends ? LinkRole::kSends : LinkRole::kReceives,
                    .dtype = message.dtype};
  describe(message.id).copy(print.tag, sizeof print.tag - 1);
  return print;
}

std::string mismatch(const LinkOptions& options, const Message& sent, const Message& expected) {
  return cat(link_name(options), ": rank ", options.sender_world, " sends ", describe(sent),
             ", and rank ", options.receiver_world, " expects ", describe(expected));
}

Message PipeLink::check(const char* what, bool sends, const View& x, const MessageId& id) const {
  const LinkSpec& spec = options_.spec;
  const std::string name = cat(link_name(options_), ": ", what, ": ");
  if (sends != options_.sends) {
    throw ConfigError(cat(name, "this end of the link belongs to rank ",
                          options_.sends ? options_.sender_world : options_.receiver_world,
                          options_.sends ? ", which only sends" : ", which only receives"));
  }
  if (id.chunk != spec.chunk || id.direction != spec.direction) {
    throw ConfigError(cat(name, describe(id), ", expected ", direction_name(spec.direction),
                          " of chunk ", spec.chunk));
  }
  if (!x.contiguous()) throw ShapeError(cat(name, "the buffer is ", x, " and not contiguous"));
  if (x.bytes() > spec.capacity_bytes) {
    throw ShapeError(cat(name, "the buffer is ", x, ", ", x.bytes(), " bytes, expected at most ",
                         spec.capacity_bytes));
  }
  return {.id = id, .count = x.numel(), .dtype = x.dtype};
}

Work PipeLink::send(const View& x, const MessageId& id, void* stream) {
  const Message message = check("send", /*sends=*/true, x, id);
  meter_->add_call(Traffic::kActivations, static_cast<double>(message.bytes()));
  Work work = pass(x.flat(0, x.numel()), message, stream);
  work.measure(meter_, Traffic::kActivations);
  return work;
}

Work PipeLink::receive(const View& into, const MessageId& id, void* stream) {
  const Message message = check("receive", /*sends=*/false, into, id);
  Work work = pass(into.flat(0, into.numel()), message, stream);
  work.measure(meter_, Traffic::kActivations);
  return work;
}

}  // namespace shale::comm
