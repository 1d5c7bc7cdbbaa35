"""What to use instead of arguments that other libraries have."""

MINIBATCH = "A minibatch has num_envs * num_steps / num_minibatches rows: set num_minibatches=..."
CLIP_VALUES = "Use clip_vloss=True, which clips values by clip_coef"
POPART = "Values are not normalised (PopArt): norm_reward=True normalises rewards"
PEERS = {  # names of Stable-Baselines3 and others
    "algo": "PPO is the only algorithm", "batch_size": MINIBATCH, "minibatch_size": MINIBATCH,
    "normalize_value": POPART, "popart": POPART, "value_norm": POPART,
    "callback": "Use callbacks=[FUNCTION]", "eval_freq": "Use eval_every=...",
    "n_eval_episodes": "Use eval_episodes=...", "log_interval": "Use log_every=...", "log_freq": "Use log_every=...",
    "eval_env": "Use eval_every=... with eval_env_kwargs={...}, or proximo.evaluate(it.model(), env=...) in a callback",
    "features_extractor_class": "Use make_agent=FUNCTION for a network of your own", "clip_range": "Use clip_coef=...",
    "clip_range_vf": CLIP_VALUES, "n_envs": "Use num_envs=...",
    "lr": "Use learning_rate=...", "n_epochs": "Use update_epochs=...", "n_steps": "Use num_steps=...",
    "net_arch": "Use hidden_sizes=(64, 64)",
    "normalize_advantage": "Use norm_adv=True or norm_adv=False",
    "policy": "Use model=mlp, cnn or impala, or make_agent=FUNCTION for a network of your own",
    "policy_kwargs": "Use hidden_sizes=(64, 64), activation=... and log_std_init=..., or make_agent=FUNCTION for a "
                     "network of your own",
    "tensorboard_log": "Every run writes RUN/tensorboard: set run_dir=RUN", "use_sde": "Use distribution=gsde",
    "verbose": "Use logger=console or logger=none"}
WORKERS = "Use env_workers=... for processes, and num_envs=... for the number of all environments"
RESTARTS = ("Use restart_envs=... with env_workers=..., which replaces processes that die or do not answer; "
            "an exception of an environment ends the run")
KL = "There is no KL penalty: desired_kl=... adapts the learning rate, target_kl=... ends an update"
POLICIES = "All agents share one policy; a trained agent can be a part of the environment"
SCHEDULES = "anneal_lr=... and anneal_ent=... are linear or cosine; others are methods of a configuration"
NETWORK = "Use hidden_sizes=..., activation=... and recurrent=..., or make_agent=FUNCTION for a network of your own"
EPISODES = "Use callbacks=[FUNCTION], which gets an iteration, and info_metrics=[...] for metrics of episodes"
RESUME = "proximo.resume(RUN) continues a run, and init_from=RUN begins another one with its weights"
SAMPLING = "Training always samples; model.act(obs) of a trained model samples, model.predict(obs) does not"
ITERATIONS = "Use total_timesteps=...; an iteration has num_envs * num_steps"
SEQUENCE = "A sequence is a whole rollout of num_steps=... steps"
RLLIB = {
    **dict.fromkeys(("train_batch_size", "train_batch_size_per_learner"),
                    "An iteration has num_envs * num_steps rows: set num_envs=... and num_steps=..."),
    "rollout_fragment_length": "Use num_steps=...", "sgd_minibatch_size": MINIBATCH,
    **dict.fromkeys(("num_epochs", "num_sgd_iter"), "Use update_epochs=..."),
    **dict.fromkeys(("lambda", "lambda_", "lam"), "Use gae_lambda=..."), "clip_param": "Use clip_coef=...",
    "vf_clip_param": "Use clip_vloss=True, which clips values by clip_coef, not the squared error",
    "vf_loss_coeff": "Use vf_coef=..., twice the value of vf_loss_coeff", "entropy_coeff": "Use ent_coef=...",
    **dict.fromkeys(("entropy_coeff_schedule", "lr_schedule"), SCHEDULES),
    "grad_clip": "Use max_grad_norm=...", "grad_clip_by": "max_grad_norm=... clips the norm of the whole gradient",
    **dict.fromkeys(("kl_coeff", "kl_target", "use_kl_loss"), KL),
    **dict.fromkeys(("num_env_runners", "num_workers", "num_rollout_workers", "num_envs_per_env_runner",
                     "num_envs_per_worker"), WORKERS),
    "env_config": "Use env_kwargs={'config': {...}} for a class that takes one dict with the name config",
    "evaluation_interval": "Use eval_every=..., in environment steps",
    "evaluation_duration": "Use eval_episodes=...", "evaluation_config": "Use eval_env_kwargs={...}",
    **dict.fromkeys(("restart_failed_env_runners", "recreate_failed_env_runners", "restart_failed_sub_environments",
                     "ignore_env_runner_failures", "max_num_env_runner_restarts"), RESTARTS),
    "sample_timeout_s": "Use env_timeout=...", "num_gpus": "Use device=cuda", "num_gpus_per_learner": "Use device=cuda",
    "num_learners": "torchrun starts several processes",
    **dict.fromkeys(("model_config", "fcnet_hiddens", "fcnet_activation"), NETWORK),
    "use_lstm": "Use recurrent=lstm", "lstm_cell_size": "Use memory_size=...",
    "max_seq_len": SEQUENCE, "vf_share_layers": "Use shared_network=True",
    "free_log_std": "Use state_dependent_std=False, the default", "observation_filter": "Use norm_obs=True",
    **dict.fromkeys(("rl_module_spec", "custom_model"), "Use make_agent=FUNCTION for a network of your own"),
    **dict.fromkeys(("policies", "policy_mapping_fn", "policies_to_train"), POLICIES),
    **dict.fromkeys(("callbacks_class", "on_train_result", "on_episode_end"), EPISODES),
    **dict.fromkeys(("checkpoint_freq", "checkpoint_frequency"), "Use checkpoint_every=..., in iterations"),
    **dict.fromkeys(("local_dir", "storage_path"), "Use run_dir=..."),
    **dict.fromkeys(("restore", "from_checkpoint"), RESUME),
    **dict.fromkeys(("explore", "exploration_config"), SAMPLING),
    "learner_class": "Use loss_fn=FUNCTION for a loss of your own",
    "batch_mode": "A rollout has num_steps=... steps of each environment; episodes continue in the next one",
    "use_gae": "Advantages are always GAE: gae_lambda=1.0 sums the rewards without further values",
    "use_critic": "There is always a value function",
    "horizon": "For a time limit of a registered environment use env_kwargs={'max_episode_steps': N}",
    "normalize_actions": "Use distribution=squashed, or wrap the environment in gymnasium.wrappers.RescaleAction",
    "clip_actions": "Actions of a Box are always clipped to its bounds",
    **dict.fromkeys(("set_task", "env_task_fn"), "Use callbacks=[FUNCTION] with it.call_envs('set_task', LEVEL)"),
    **dict.fromkeys(("iterations", "num_iterations", "training_iteration"), ITERATIONS),
    "stop": "Use total_timesteps=... and callbacks=[proximo.callbacks.stop_at(SCORE)]"}
ROBOTS = {  # names of rl_games, rsl_rl and skrl
    **dict.fromkeys(("horizon_length", "num_steps_per_env", "rollouts"), "Use num_steps=..."),
    **dict.fromkeys(("mini_epochs", "num_learning_epochs", "learning_epochs"), "Use update_epochs=..."),
    **dict.fromkeys(("num_mini_batches", "mini_batches"), "Use num_minibatches=..."),
    **dict.fromkeys(("e_clip", "ratio_clip"), "Use clip_coef=..."), "tau": "Use gae_lambda=...",
    **dict.fromkeys(("clip_value", "use_clipped_value_loss", "value_clip"), CLIP_VALUES),
    **dict.fromkeys(("value_loss_coef", "value_loss_scale"),
                    "Use vf_coef=..., twice the value of a loss that is not halved"),
    "critic_coef": "Use vf_coef=...", **dict.fromkeys(("entropy_coef", "entropy_loss_scale"), "Use ent_coef=..."),
    **dict.fromkeys(("grad_norm", "grad_norm_clip"), "Use max_grad_norm=..."), "discount_factor": "Use gamma=...",
    "kl_threshold": "Use desired_kl=..., which adapts the learning rate, or target_kl=..., which ends an update",
    **dict.fromkeys(("normalize_input", "state_preprocessor", "empirical_normalization"), "Use norm_obs=True"),
    "value_preprocessor": POPART, "value_bootstrap": "Use bootstrap_truncated=True, the default",
    "reward_shaper": "Use norm_reward=True, or env_wrappers=[...] for a wrapper that scales rewards",
    **dict.fromkeys(("sigma_init", "init_noise_std"), "Use log_std_init=..., the logarithm of a standard deviation"),
    "central_value_config": "Use critic_obs=... for observations that only the value function sees",
    **dict.fromkeys(("seq_length", "seq_len"), SEQUENCE), "units": "Use hidden_sizes=...",
    "num_actors": "Use num_envs=...",
    **dict.fromkeys(("max_epochs", "max_iterations"), ITERATIONS),
    "score_to_win": "Use callbacks=[proximo.callbacks.stop_at(SCORE)]", "mixed_precision": "Use precision=bf16",
    "multi_gpu": "torchrun starts several processes"}
NOT_GIVEN = ("iteration_shift",)  # fields that a user never sets, and that are not suggested
OPTIMIZER = " docs/add-a-loss.md has a program with an optimizer of its own (run_program)."
ADVICE = {"callbacks": " Call the functions in the loop over iterations.",
          **dict.fromkeys(("set_up", "optimizer", "optimizer_class"), OPTIMIZER),
          "preset": " A preset takes the place of the variant: proximo.train(proximo.preset(ID)).",
          "seeds": " Use seed or num_seeds; proximo.sweep takes several: seed=[1, 2, 3].",
          **{name: f" {advice} (docs/coming-from.md)." for name, advice in (PEERS | RLLIB | ROBOTS).items()}}
