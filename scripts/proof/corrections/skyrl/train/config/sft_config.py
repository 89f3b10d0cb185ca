# Corrections of skyrl/train/config/sft_config.py (0.3.0): a method of which a few expressions are replaced.
# - Values of a dict of overrides are taken as they are; only texts of a command line are parsed.

from replaced import replaced
from skyrl.train.config.config import read_overrides

SFTConfig.from_cli_overrides = classmethod(
    replaced(
        SFTConfig,
        "from_cli_overrides",
        {
            '[f"{k}={v}" for k, v in args.items()]': "dict(args)",
            "OmegaConf.from_cli(args)": "read_overrides(args)",
        },
    )
)
