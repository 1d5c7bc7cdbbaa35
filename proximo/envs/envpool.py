def make_envpool(cfg, seeds):
    raise NotImplementedError
