#pragma once

namespace shale::comm {

// State of the collective that a Work refers to. Each way of running collectives has a subclass.
class WorkState {
 public:
  virtual ~WorkState() = default;
  virtual bool done() const = 0;
  virtual void wait() = 0;  // see Work::wait()
  // Makes the output visible to work that is queued on `stream` from now on. Called after wait(),
  // or just before a collective that has this output as its input runs. Does nothing on the host.
  virtual void hold(void* /*stream*/) {}
  // Called while an exception unwinds. Returns when nothing touches the buffers any more.
  virtual void give_up() = 0;
};

}  // namespace shale::comm
