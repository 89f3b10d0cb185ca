# Corrections of skyrl/train/config/config.py (0.3.0).
# - The clip range of CISPO begins at a ratio of 0, since it has an upper bound alone.
# - Values of a dict of overrides are taken as they are; only texts of a command line are parsed.

from replaced import replaced

CISPOConfig.cispo_eps_clip_low = 1.0
CISPOConfig.__init__.__defaults__ = (1.0, *CISPOConfig.__init__.__defaults__[1:])
CISPOConfig.__dataclass_fields__["cispo_eps_clip_low"].default = 1.0


def read_overrides(args):
    if not isinstance(args, dict):
        return OmegaConf.from_cli(args)
    overrides = OmegaConf.create()
    for key, value in args.items():
        OmegaConf.update(overrides, key, value)
    return overrides


SkyRLTrainConfig.from_cli_overrides = classmethod(
    replaced(
        SkyRLTrainConfig,
        "from_cli_overrides",
        {
            '[f"{k}=null" if v is None else f"{k}={v}" for k, v in args.items()]': "dict(args)",
            "OmegaConf.from_cli(args)": "read_overrides(args)",
        },
    )
)
