"""Python bindings of Shale, for distributed training, based on the C interface (shale/c.h).

    import shale
    shale.init()
    model = shale.LanguageModel("nano", context=64).shard(stage=3, seed=1)
    optimizer = shale.Optimizer(model, "adamw")
    for step in range(100):
        optimizer.prepare(step, lr=1e-3)
        ...

Run it with mpirun, or alone. docs/reference/python.md is the guide.
"""

try:
    from . import functions, nn
    from ._library import (ArgumentError, CommError, ConfigError, DataError, DiskError, Error,
                           MissingInputError, NonFiniteError, OutOfMemoryError, StateError,
                           UnavailableError, library as _c)
    from ._runtime import Runtime, init, runtime
    from ._tensor import (Tensor, arange, as_tensor, from_dlpack, full, linspace, randn, tensor,
                          uniform, zeros)
    from .functions import *  # noqa: F403
    from .launch import Run, spawn, train
    from .nn import Embedding, LanguageModel, LayerNorm, Linear, Module
    from .texts import TextModel, load
    from .training import Metrics, Optimizer, checkpoint_state

    __version__ = _c.shale_version().decode()
except ImportError as error:
    # Without the library, only modules that do not need it can be used, such as shale.data.
    _error = error

    def __getattr__(name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise _error
