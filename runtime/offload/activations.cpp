#include "shale/runtime/offload/activations.h"

#include "shale/runtime/tensor/tensor_impl.h"

namespace shale::offload {
// A saved storage with a copy in host memory.
class ActivationOffload::Parked {
 public:
  Parked(HostTier& tier, const Tensor& x, size_t index)
      : tier_(tier),
        index_(index),
        origin_(x.storage()),
        counter_(x.impl().version),
        version_(*counter_) {
    host_ =
        tier.allocate(x.storage()->bytes(), DType::kU8, MemoryTag::kActivation, "a saved tensor");
    copied_ = tier.download(*x.storage(), host_, {tier.computed()});
  }
  ~Parked() { tier_.release_after(std::move(host_), copied_); }
  Parked(const Parked&) = delete;
  Parked& operator=(const Parked&) = delete;

  size_t index() const { return index_; }
  // True if x is a view of this storage and was not changed in place since it was saved.
  bool holds(const Tensor& x) const {
    return origin_.lock() == x.storage() && counter_ == x.impl().version && *counter_ == version_;
  }
  bool on_device() const { return device_.defined() || !origin_.expired(); }

  // Starts the copy back to the device, unless the original storage still exists.
  void fetch() {
    if (on_device()) return;
    device_ = empty(tier_.device(), {host_.numel()}, DType::kU8, MemoryTag::kActivation,
                    "a saved tensor that backward needs");
    // The upload waits for the copy to the host, and for work that used the device memory before.
    copied_ = tier_.upload(host_, device_, {copied_, tier_.computed()});
  }
  // Returns the storage on the device. Kernels launched on the compute stream from now on may use
  // it.
  std::shared_ptr<Storage> use() {
    if (std::shared_ptr<Storage> storage = origin_.lock()) return storage;
    fetch();
    copied_.hold_back(tier_.device().exec().stream);
    return device_.storage();
  }

 private:
  HostTier& tier_;
  size_t index_;
  std::weak_ptr<Storage> origin_;
  std::shared_ptr<const uint64_t> counter_;
  uint64_t version_;
  Tensor host_;
  Tensor device_;  // copy on the device; undefined until fetch()
  Event copied_;   // end of the last copy from or to host_
};

// A saved tensor: either a view of an offloaded storage, or the tensor itself if it was not
// offloaded.
struct ActivationOffload::Saved {
  std::shared_ptr<Parked> parked;
  Tensor kept;
  int64_t offset = 0;
  Shape shape{};
  Shape strides{};
  DType dtype = DType::kF32;
};

ActivationOffload::ActivationOffload(HostTier& tier, const ActivationOptions& options)
    : tier_(tier), options_(options) {}

SavedTensorHooks ActivationOffload::hooks() {
  return {.pack = [this](const Tensor& x) { return pack(x); },
          .unpack =
              [this](const std::shared_ptr<void>& packed) {
                return unpack(*static_cast<const Saved*>(packed.get()));
              }};
}

std::shared_ptr<void> ActivationOffload::pack(const Tensor& x) {
  if (x.storage()->bytes() < options_.min_bytes) {
    return std::make_shared<Saved>(Saved{.parked = nullptr, .kept = x});
  }
  return std::make_shared<Saved>(Saved{.parked = park(x),
                                       .kept = {},
                                       .offset = x.impl().offset,
                                       .shape = x.shape(),
                                       .strides = x.strides(),
                                       .dtype = x.dtype()});
}

std::shared_ptr<ActivationOffload::Parked> ActivationOffload::park(const Tensor& x) {
  while (!parked_.empty() && parked_.back().expired()) parked_.pop_back();
  for (const auto& candidate : parked_) {
    const std::shared_ptr<Parked> parked = candidate.lock();
    if (parked != nullptr && parked->holds(x)) return parked;
  }
  auto parked = std::make_shared<Parked>(tier_, x, parked_.size());
  parked_.push_back(parked);
  bytes_offloaded_ += x.storage()->bytes();
  return parked;
}

Tensor ActivationOffload::unpack(const Saved& saved) {
  if (saved.parked == nullptr) return saved.kept;
  auto impl = std::make_shared<TensorImpl>();
  impl->context = &tier_.device();
  impl->storage = saved.parked->use();
  impl->offset = saved.offset;
  impl->shape = saved.shape;
  impl->strides = saved.strides;
  impl->dtype = saved.dtype;
  prefetch_before(saved.parked->index());
  return Tensor(std::move(impl));
}

void ActivationOffload::prefetch_before(size_t index) {
  int begun = 0;
  for (size_t i = index; i-- > 0 && begun < options_.prefetch;) {
    const std::shared_ptr<Parked> parked = parked_[i].lock();
    if (parked == nullptr) continue;
    ++begun;  // counts every storage, also one that needs no copy
    parked->fetch();
  }
}

}  // namespace shale::offload
