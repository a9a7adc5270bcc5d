"""Calls of flax modules in training or evaluation mode, whatever their arguments are called."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.errors import InvalidRngError, ModifyScopeVariableError

from fedsim.core.trees import expand_like
from fedsim.core.types import Array, PyTree, Variables

IN_TRAINING = dict.fromkeys(("train", "training", "is_train", "is_training"), True) | dict.fromkeys(
    ("deterministic", "use_running_average", "eval", "is_eval", "inference"), False
)  # values of the arguments or fields that are a module's mode; in evaluation the opposite ones
MODE_WORDS = {"train", "training", "eval", "evaluate", "evaluation", "deterministic", "inference", "test", "testing"}
HAS_NO_VALUE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
REMEDY = "let it take `train`, True in training, and pass that on to its layers"


class _Functions(nn.Module):
    """A model of any library."""

    init_params: Callable[[Array], PyTree]
    apply_params: Callable[[PyTree, Array, Array | None], Array]

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> Array:
        params = self.param("model", self.init_params)
        return self.apply_params(params, x, self.make_rng("dropout") if train else None)


def from_functions(init: Callable[[Array], PyTree], apply: Callable[[PyTree, Array, Array | None], Array]) -> nn.Module:
    """A model of Equinox, Haiku or your own as a module, for `classification`, `regression` and as `model.name`.

    `init(key)` returns the parameters, a pytree of floating-point arrays, `apply(params, x, key)` the outputs [B, ...]
    for inputs x [B, ...]. The key is for random layers; it is None in evaluation.

    >>> import jax.numpy as jnp, numpy as np, fedsim
    >>> linear = fedsim.from_functions(lambda key: jnp.zeros((5, 3)), lambda params, x, key: x @ params)
    >>> task = fedsim.classification(linear, np.zeros(5, np.float32))
    """
    return _Functions(init, apply)


def as_linen(module: Any) -> nn.Module:
    """A module of flax.linen as it is; one of flax.nnx, or a class or function that builds one from `rngs`, as linen.

    An nnx module that is given as such starts with its own parameters, whatever the key. Raises `TypeError` for others.
    """
    if isinstance(module, nn.Module):
        return module
    from flax import nnx

    if isinstance(module, nnx.Module):
        return nnx.bridge.to_linen(lambda rngs: nnx.clone(module))
    try:
        if any(kind.__module__.partition(".")[0] == "torch" for kind in type(module).__mro__):
            raise TypeError  # all of which take any arguments
        inspect.signature(module).bind(rngs=None)
    except TypeError:
        raise TypeError(
            "module: must be a module of flax.linen or flax.nnx, a function of `rngs` that builds one of nnx, or "
            f"fedsim.from_functions(init, apply) for other libraries, got {type(module).__name__}"
        ) from None
    return nnx.bridge.to_linen(module)


def init_module(module: nn.Module, key: Array, x: Array) -> Variables:
    """The variables of `module` for inputs like `x` [B, ...]."""
    rngs = {"params": key, "dropout": key, "default": jax.random.fold_in(key, 1)}  # classes of nnx may take all
    mask = jnp.ones(len(x), bool)
    module, args, options = _with_mode(module, x, mask, train=False)
    with _layers_in_mode(module, mask, train=False):
        variables = dict(module.init(rngs, *args, **options))
    return Variables(variables.pop("params", {}), variables or ())


def apply_module(
    module: nn.Module, variables: Variables, x: Array, mask: Array, key: Array | None = None
) -> tuple[Array, PyTree]:
    """Outputs [B, ...] for `x` [B, ...] and new statistics; in training mode with a `key`, else in evaluation mode.

    flax.linen's batch normalization leaves out examples where `mask` [B] is False. Raises `ValueError` if the module
    cannot be told its mode, or returns something else.
    """
    train = key is not None  # other streams than dropout take their numbers from params, as flax defines it
    rngs = None if key is None else {"dropout": key, "params": jax.random.fold_in(key, 1)}
    old: dict[str, Any] = variables.statistics or {}
    mutable: Any = (train and list(old)) or False
    module, args, options = _with_mode(module, x, mask, train)
    with _layers_in_mode(module, mask, train) as are_active:
        outputs: Any = module.apply({"params": variables.params, **old}, *args, rngs=rngs, mutable=mutable, **options)
    outputs, statistics = outputs if mutable else (outputs, variables.statistics)
    if not isinstance(outputs, jax.Array) or outputs.shape[:1] != x.shape[:1]:
        actual = outputs.shape if isinstance(outputs, jax.Array) else type(outputs).__name__
        raise ValueError(f"module: must return an array [{len(x)}, ...] for {len(x)} examples, got {actual}")
    for name, values in old.items() if mutable else ():
        if jax.tree.map(jnp.shape, values) != jax.tree.map(jnp.shape, statistics[name]):
            raise ValueError(f'module: the variables "{name}" must keep structure and shapes in training')
    if mutable and "batch_stats" in old:
        pairs = zip(*(jax.tree.leaves(tree["batch_stats"]) for tree in (statistics, old)), strict=True)
        are_active.append(any(new is not initial for new, initial in pairs))
    if train and are_active and not any(are_active):
        _check_parameters(module)
    return outputs, statistics


def _modes(train: bool) -> dict[str, bool]:
    """The values of the arguments and fields that are a module's mode."""
    return {name: value == train for name, value in IN_TRAINING.items()}


def _is_nnx(module: nn.Module) -> bool:
    """Whether it is a class of flax.nnx as a module (flax.nnx.bridge.ToLinen)."""
    return "nnx_class" in type(module).__dataclass_fields__


def _class(module: Any) -> type:
    """That of `module`, or the one that it wraps if it is one of nnx."""
    if _is_nnx(module):
        from fedsim.core.nnx_mode import wrapped_class

        return wrapped_class(module)
    return type(module)


def _with_mode(module: Any, x: Array, mask: Array, train: bool) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The module and its arguments; its mode is among them, or else in fields of the module."""
    class_name, signature = _class(module).__name__, inspect.signature(_class(module).__call__)
    (itself, _), (inputs, kind), *others = signature.parameters.items()
    values: dict[str, Any] = _modes(train) | {"mask": mask}
    passed = {name: values[name] for name, _ in others if name in values}
    for name, parameter in others:
        is_needed = parameter.default is parameter.empty and parameter.kind not in HAS_NO_VALUE
        if name not in values and MODE_WORDS & set(name.split("_")):
            raise ValueError(f"module: {class_name} takes {name}, which fedsim does not know; {REMEDY}")
        if name not in values and is_needed:
            raise ValueError(f"module: {class_name} needs {name}, which fedsim does not pass; give it a default")
    if not passed.keys() - {"mask"}:
        fields = type(module).__dataclass_fields__.keys() & IN_TRAINING.keys()
        fields = {name: values[name] for name in fields if isinstance(getattr(module, name), bool)}
        module = module.clone(**fields) if fields else module
    first = (x,) if kind.kind is kind.VAR_POSITIONAL else x
    bound = inspect.BoundArguments(signature, {itself: None, inputs: first, **passed})
    return module, bound.args[1:], bound.kwargs


@contextmanager
def _layers_in_mode(module: Any, mask: Array, train: bool) -> Iterator[list[bool]]:
    """A context in which layers get what the module does not give them; yields which dropout layers were active."""
    are_active: list[bool] = []

    def call_layer(call: Callable[..., Any], args: Any, options: Any, context: Any) -> Any:
        layer: Any = context.module
        if context.method_name != "__call__":
            return call(*args, **options)
        if _is_nnx(layer):
            from fedsim.core.nnx_mode import call_in_mode

            return call_in_mode(layer, lambda: call(*args, **options), mask, _modes(train), are_active)
        if type(layer).__call__ is nn.BatchNorm.__call__ and args and args[0].shape[:1] == mask.shape:
            options = {"mask": expand_like(mask, args[0])} | options
        outputs = call(*args, **options)
        is_dropout = isinstance(layer, nn.Dropout) and layer.rate
        if is_dropout or (isinstance(layer, nn.MultiHeadDotProductAttention) and layer.dropout_rate):
            are_active.append(layer.scope.rng_counters.get("dropout", 0) > 0)
        return outputs

    try:
        with nn.intercept_methods(call_layer):
            yield are_active
    except jax.errors.TracerBoolConversionError:
        problem = "branches on a traced value, such as its mode inside nn.remat or nn.jit; use static_argnums there"
        raise ValueError(f"module: {_class(module).__name__} {problem}") from None
    except (InvalidRngError, ModifyScopeVariableError) as error:
        reason = " ".join(str(error).partition(" (https:")[0].split()).rstrip(".")
        problem = f"is in training mode in evaluation, too ({reason}); {REMEDY}"
        problem = f"cannot be called in training mode ({reason})" if train else problem
        raise ValueError(f"module: {_class(module).__name__} {problem}") from None


def _check_parameters(module: Any) -> None:
    """Raises `ValueError` if one of them may be the mode of `module`, whose layers are not active in training."""
    for name, parameter in list(inspect.signature(_class(module).__call__).parameters.items())[2:]:
        may_be_mode = parameter.kind is parameter.VAR_KEYWORD or isinstance(parameter.default, bool | str | None)
        if name not in {*IN_TRAINING, "mask"} and may_be_mode:
            raise ValueError(
                f"module: dropout and normalization layers of {_class(module).__name__} are off in training, and "
                f"fedsim does not know its argument {name}; {REMEDY}"
            )
