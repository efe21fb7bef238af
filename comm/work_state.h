#pragma once

namespace shale::comm {

// State behind a Work: one implementation per way of running collectives.
class WorkState {
 public:
  virtual ~WorkState() = default;
  virtual bool done() const = 0;
  virtual void wait() = 0;  // see Work::wait()
  // Makes the output visible to work that is queued on `stream` from now on. Called after wait(),
  // or when a collective that takes this output as its input has its turn. No-op on the host.
  virtual void hold(void* /*stream*/) {}
  // Called when an exception unwinds: returns when nothing touches the buffers any more.
  virtual void give_up() = 0;
};

}  // namespace shale::comm
