"""What to use instead of arguments that other libraries have."""

MINIBATCH = "A minibatch has num_envs * num_steps / num_minibatches rows: set num_minibatches=..."
POPART = "Values are not normalised (PopArt): norm_reward=True normalises rewards"
PEERS = {  # names of Stable-Baselines3 and others
    "algo": "PPO is the only algorithm", "batch_size": MINIBATCH, "minibatch_size": MINIBATCH,
    "normalize_value": POPART, "popart": POPART, "value_norm": POPART,
    "callback": "Use callbacks=[FUNCTION]", "eval_freq": "Use eval_every=...",
    "n_eval_episodes": "Use eval_episodes=...", "log_interval": "Use log_every=...", "log_freq": "Use log_every=...",
    "eval_env": "Use eval_every=... with eval_env_kwargs={...}, or proximo.evaluate(it.model(), env=...) in a callback",
    "features_extractor_class": "Use make_agent=FUNCTION for a network of your own", "clip_range": "Use clip_coef=...",
    "clip_range_vf": "Use clip_vloss=True, which clips values by clip_coef", "n_envs": "Use num_envs=...",
    "lr": "Use learning_rate=...", "n_epochs": "Use update_epochs=...", "n_steps": "Use num_steps=...",
    "net_arch": "Use hidden_sizes=(64, 64)",
    "normalize_advantage": "Use norm_adv=True or norm_adv=False",
    "policy": "Use model=mlp, cnn or impala, or make_agent=FUNCTION for a network of your own",
    "policy_kwargs": "Use hidden_sizes=(64, 64), activation=... and log_std_init=..., or make_agent=FUNCTION for a "
                     "network of your own",
    "tensorboard_log": "Every run writes RUN/tensorboard: set run_dir=RUN", "use_sde": "Use distribution=gsde",
    "verbose": "Use logger=console or logger=none"}
OPTIMIZER = " docs/add-a-loss.md has a program with an optimizer of its own (run_program)."
ADVICE = {"callbacks": " Call the functions in the loop over iterations.",
          **dict.fromkeys(("set_up", "optimizer", "optimizer_class"), OPTIMIZER),
          "preset": " A preset takes the place of the variant: proximo.train(proximo.preset(ID)).",
          "seeds": " Use seed or num_seeds; proximo.sweep takes several: seed=[1, 2, 3].",
          **{name: f" {advice} (docs/coming-from.md)." for name, advice in PEERS.items()}}
