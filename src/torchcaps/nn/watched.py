"""Which submodules may be bypassed: those that are as a layer made them, and that nobody watches."""

from torch import nn
from torch.nn.modules import module as torch_module


def is_watched(module: nn.Module) -> bool:
    """Whether a hook, of the module or of all modules, sees what it gets or gives: then it has to be called.

    PyTorch has no public way to ask. This is the one place that looks; the tests register every kind of hook.
    """
    hooks = (module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks)
    return any(hooks) or bool(torch_module._has_any_global_hook())  # type: ignore[no-untyped-call]


def is_plain_conv(module: nn.Module) -> bool:
    """Whether a module does what :func:`torchcaps.nn.initial.convolution` makes it for, and nobody watches it."""
    if type(module) is not nn.Conv2d or module.padding != "same" or module.padding_mode != "zeros":
        return False
    return module.dilation == (1, 1) and module.groups == 1 and not is_watched(module)


def own_output(module: nn.Module) -> bool:
    """Whether nobody else may hold what a convolution or norm gives, so that it may be overwritten."""
    return type(module) in (nn.Conv2d, nn.BatchNorm2d) and not is_watched(module)
