"""What verl's adapter uses of OmegaConf, in a few lines, on configuration files that are JSON."""

OMEGACONF = """
    import json

    class Config(dict):
        def __getattr__(self, name):
            if name not in self:
                raise AttributeError(name)
            return self[name]

        def __setattr__(self, name, value):
            self[name] = value

        def merge_with(self, other):
            for name, value in other.items():
                OmegaConf.update(self, name, value)

    class OmegaConf:
        @staticmethod
        def create(parts=()):
            return Config(parts)

        @staticmethod
        def is_dict(value):
            return isinstance(value, dict)

        @staticmethod
        def is_missing(config, name):
            return config[name] == "???"

        @staticmethod
        def is_interpolation(config, name):
            return str(config[name]).startswith("${")

        @staticmethod
        def to_container(config, resolve=False):
            return json.loads(json.dumps(config))

        @staticmethod
        def load(file):
            with open(file) as opened:
                return json.load(opened, object_hook=Config)

        @staticmethod
        def select(config, path):
            value = config
            for name in path.split("."):
                value = None if value is None else value.get(name)
            return OmegaConf.select(config, value[2:-1]) if str(value).startswith("${") else value

        @staticmethod
        def update(config, path, value, force_add=False, merge=True):
            *folders, name = path.split(".")
            for folder in folders:
                config = config.setdefault(folder, Config())
            if isinstance(value, dict) and isinstance(config.get(name), dict):
                Config.merge_with(config[name], value)
            else:
                config[name] = Config(value) if isinstance(value, dict) else value

        @staticmethod
        def merge(*parts):
            merged = Config()
            for part in parts:
                merged.merge_with(part)
            return merged
"""
