#pragma once

namespace shale::comm {

// What a Work stands for: one implementation per way of running collectives.
class WorkState {
 public:
  virtual ~WorkState() = default;
  virtual bool done() const = 0;
  virtual void wait() = 0;  // as Work::wait()
  // What is queued on `stream` from now on finds the output. After wait(), or when the turn of a
  // collective has come whose input that is. On the host there is nothing to do.
  virtual void hold(void* /*stream*/) {}
  // An exception unwinds past the buffers: returns when nothing touches them any more.
  virtual void give_up() = 0;
};

}  // namespace shale::comm
