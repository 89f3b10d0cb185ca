"""LoRA: train low-rank matrices beside frozen weights, with peft."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import reason_of
from rl_sentinel.train.config.settings import LoraSettings
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.run import rng

#: How peft names the weights that it wraps.
_WRAPPED = ".base_layer."


def require_peft() -> None:
    """Check that peft imports.

    Raises:
        SentinelError: if it does not.
    """
    try:
        import peft  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        fix = "pip install 'rl-sentinel[train]'"
        raise SentinelError(f"policy.lora needs peft, which cannot be imported ({reason_of(error)}): {fix}") from error


def apply_lora(policy: Policy, settings: LoraSettings | None, *, seed: int) -> None:
    """Freeze a policy's weights, except modules that train whole, and add trainable low-rank matrices, in place.

    The policy's output is unchanged at first: one matrix of each pair is 0, the other is random by ``seed``. Without
    settings, nothing is changed.

    Raises:
        SentinelError: if peft is not installed or rejects the targets, if a target is the output projection, or if a
            module in ``whole`` has no weight or is a target.
    """
    if settings is None:
        return
    require_peft()
    _require_modules(policy.model, settings)
    from peft import inject_adapter_in_model  # noqa: PLC0415 - an extra

    config = _config(settings)
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(rng.derive_seed(seed, "lora"))
        try:
            inject_adapter_in_model(config, policy.model)
        except ValueError as error:
            raise SentinelError(
                f"policy.lora.targets is {list(settings.targets)}, expected modules with weights ({reason_of(error)}): "
                "name modules of the model, such as q_proj"
            ) from error
    for name, weight in policy.model.named_parameters():
        weight.requires_grad_(".lora_" in name or name.split(".")[-2] in settings.whole)


def _require_modules(model: nn.Module, settings: LoraSettings) -> None:
    """Reject the output projection as a target, and modules in ``whole`` that have no weight or are targets."""
    head = getattr(model, "head", None)
    for name, module in model.named_modules():
        if name.split(".")[-1] in settings.targets and head is not None and getattr(module, "weight", None) is head:
            last = name.split(".")[-1]
            raise SentinelError(
                f"policy.lora.targets has {last}, expected other modules: log-probs are computed from its weight "
                "alone, so name it in policy.lora.whole"
            )
    owners = {name.split(".")[-2] for name, _ in model.named_parameters() if "." in name}
    for name in settings.whole:
        if name not in owners or name in settings.targets:
            fix = "name other modules, such as lm_head, or embed_tokens if lm_head shares its weight"
            raise SentinelError(
                f"policy.lora.whole has {name}, expected modules with a weight, outside of policy.lora.targets: {fix}"
            )


@torch.no_grad()
def merged_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of a model with its low-rank matrices added, by the names of the model without them."""
    state = {n.replace(_WRAPPED, "."): w for n, w in model.state_dict().items() if ".lora_" not in n}
    for name, module in model.named_modules():
        delta: Any = getattr(module, "get_delta_weight", None)
        if delta is not None:
            state[f"{name}.weight"] = state[f"{name}.weight"] + delta("default")
    return state


def save_adapter(policy: Policy, settings: LoraSettings, base: str, folder: Path) -> None:
    """Write the low-rank matrices of a pretrained policy, and modules that trained whole, in peft's format.

    Args:
        policy: a policy with LoRA, on a model of transformers.
        settings: its LoRA.
        base: where the model without LoRA was loaded from.
        folder: the folder to write; it is created if it does not exist.
    """
    from safetensors.torch import save_file  # noqa: PLC0415 - comes with peft

    folder.mkdir(parents=True, exist_ok=True)
    config = _config(settings, modules_to_save=list(settings.whole) or None, task_type="CAUSAL_LM")
    config.base_model_name_or_path = base
    config.inference_mode = True
    config.save_pretrained(str(folder))
    state = {
        name.removeprefix("inner.").replace(".default.", "."): weight.detach().contiguous().clone()
        for name, weight in policy.model.named_parameters()
        if weight.requires_grad
    }
    save_file({f"base_model.model.{name}": w for name, w in state.items()}, folder / "adapter_model.safetensors")


def _config(settings: LoraSettings, **more: Any) -> Any:  # noqa: ANN401 - peft is an extra
    from peft import LoraConfig  # noqa: PLC0415 - an extra

    targets = list(settings.targets)
    return LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules=targets, **more)
