# Corrections of skyrl/train/config/config.py (0.3.0).
# - The clip range of CISPO begins at a ratio of 0, since it has an upper bound alone.


CISPOConfig.cispo_eps_clip_low = 1.0
CISPOConfig.__init__.__defaults__ = (1.0, *CISPOConfig.__init__.__defaults__[1:])
CISPOConfig.__dataclass_fields__["cispo_eps_clip_low"].default = 1.0
