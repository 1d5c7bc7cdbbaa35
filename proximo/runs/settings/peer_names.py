"""What to use instead of arguments that other libraries have."""

MINIBATCH = "A minibatch has num_envs * num_steps / num_minibatches rows: set num_minibatches=..."
CLIP_VALUES = "Use clip_vloss=True, which clips values by clip_coef"
POPART = "Use norm_value=True, which normalises the targets of the value function"
PEERS = {  # names of Stable-Baselines3 and others
    "algo": "PPO is the only algorithm", "batch_size": MINIBATCH, "minibatch_size": MINIBATCH,
    "normalize_value": POPART, "popart": POPART, "value_norm": POPART, "use_popart": POPART,
    "normalize_returns": POPART, "use_valuenorm": POPART,
    "callback": "Use callbacks=[FUNCTION]", "eval_freq": "Use eval_every=...",
    "n_eval_episodes": "Use eval_episodes=...", "log_interval": "Use log_every=...", "log_freq": "Use log_every=...",
    "eval_env": "Use eval_every=... with eval_env_kwargs={...}, or proximo.evaluate(it.model(), env=...) in a callback",
    "features_extractor_class": "Use make_agent=FUNCTION for a network of your own", "clip_range": "Use clip_coef=...",
    "clip_range_vf": CLIP_VALUES, "n_envs": "Use num_envs=...",
    "lr": "Use learning_rate=...", "n_epochs": "Use update_epochs=...", "n_steps": "Use num_steps=...",
    "net_arch": "Use hidden_sizes=(64, 64)",
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
    "entropy_coeff_schedule": SCHEDULES,
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
    **dict.fromkeys(("set_task", "env_task_fn"), "Use callbacks=[FUNCTION] with it.call_envs('set_task', LEVEL)"),
    **dict.fromkeys(("iterations", "num_iterations", "training_iteration"), ITERATIONS),
    "stop": "Use total_timesteps=... and callbacks=[proximo.callbacks.stop_at(SCORE)]"}
OPTIMIZER = " An optimizer of your own is a part of proximo.train(..., set_up=FUNCTION) (docs/add-a-loss.md)."
RATES = " A program in docs/add-a-loss.md (Another update) has other learning rates for parts of the network."
SHAPED = "Use norm_reward=True, or multiply the rewards in make_envs=FUNCTION"
ADAPTIVE = "Use desired_kl=... for an adaptive learning rate, anneal_lr=linear or cosine for one that falls"
LIMITS = "desired_kl=... keeps the learning rate between 1e-6 and 1e-2, and changes it by a factor of 1.5"
EVERY = "Use checkpoint_every=..., in iterations; keep_checkpoints=0 keeps all"
STEPS = "Use total_timesteps=..., the steps of all environments together"
FIRST_STEPS = "All actions are those of the policy, and an update follows each num_steps=... steps"
STD = "Without state_dependent_std=True, the logarithm of the standard deviation is a weight without limits"
MEMORY = "Use recurrent=lstm or gru, and memory_size=... for its units; there is one layer"
LOAD = "Use init_from=RUN for a new run that begins with its weights, or proximo.resume(RUN)"
BOUNDS = ("Use distribution=squashed, whose actions are inside of the bounds, or loss_fn=FUNCTION for a loss with a "
          "term for means that are outside")
ROBOTS = {  # names of rl_games, rsl_rl and skrl
    **dict.fromkeys(("horizon_length", "num_steps_per_env", "rollouts"), "Use num_steps=..."),
    **dict.fromkeys(("mini_epochs", "num_learning_epochs", "learning_epochs"), "Use update_epochs=..."),
    **dict.fromkeys(("num_mini_batches", "mini_batches"), "Use num_minibatches=..."),
    "minibatch_size_per_env": MINIBATCH,
    **dict.fromkeys(("e_clip", "ratio_clip"), "Use clip_coef=..."), "tau": "Use gae_lambda=...",
    **dict.fromkeys(("clip_value", "use_clipped_value_loss", "value_clip", "clip_predicted_values"), CLIP_VALUES),
    **dict.fromkeys(("value_loss_coef", "value_loss_scale"),
                    "Use vf_coef=..., twice the value of a loss that is not halved"),
    "critic_coef": "Use vf_coef=...", **dict.fromkeys(("entropy_coef", "entropy_loss_scale"), "Use ent_coef=..."),
    **dict.fromkeys(("grad_norm", "grad_norm_clip", "truncate_grads"), "Use max_grad_norm=..."),
    "discount_factor": "Use gamma=...",
    "normalize_advantage": "Use norm_adv=minibatch (Stable-Baselines3), norm_adv=batch (rl_games) or norm_adv=none",
    "normalize_advantage_per_mini_batch": "Use norm_adv=minibatch for True, norm_adv=batch for False",
    "kl_threshold": "Use desired_kl=..., which adapts the learning rate, or target_kl=..., which ends an update",
    **dict.fromkeys(("lr_schedule", "schedule", "learning_rate_scheduler", "learning_rate_scheduler_kwargs"), ADAPTIVE),
    "schedule_type": "desired_kl=... adapts the learning rate after every epoch",
    **dict.fromkeys(("min_lr", "max_lr", "kl_factor", "lr_factor", "lr_multiplier"), LIMITS),
    **dict.fromkeys(("normalize_input", "state_preprocessor", "observation_preprocessor", "empirical_normalization",
                     "actor_obs_normalization", "critic_obs_normalization", "obs_normalization"), "Use norm_obs=True"),
    "value_preprocessor": POPART,
    **dict.fromkeys(("value_bootstrap", "time_limit_bootstrap"), "Use bootstrap_truncated=True, the default"),
    **dict.fromkeys(("reward_shaper", "rewards_shaper", "rewards_shaper_scale"), SHAPED),
    **dict.fromkeys(("sigma_init", "init_noise_std", "init_std"),
                    "Use log_std_init=..., the logarithm of a standard deviation"),
    "initial_log_std": "Use log_std_init=...",
    **dict.fromkeys(("fixed_sigma", "fixed_log_std"), "Use state_dependent_std=False, the default"),
    **dict.fromkeys(("clip_log_std", "min_log_std", "max_log_std"), STD),
    **dict.fromkeys(("bounds_loss_coef", "bound_loss_type"), BOUNDS),
    "clip_actions": "Actions are clipped to the bounds of a Box; distribution=squashed needs no clipping",
    **dict.fromkeys(("central_value_config", "obs_groups"),
                    "Use critic_obs=... for observations that only the value function sees"),
    **dict.fromkeys(("seq_length", "seq_len"), SEQUENCE),
    **dict.fromkeys(("rnn", "rnn_type", "rnn_hidden_dim", "rnn_hidden_size", "rnn_num_layers"), MEMORY),
    **dict.fromkeys(("units", "hidden_dims"), "Use hidden_sizes=..."),
    "actor_hidden_dims": "Use policy_sizes=...", "critic_hidden_dims": "Use value_sizes=...",
    **dict.fromkeys(("mlp", "network", "models", "d2rl"), NETWORK), "initializer": "Use orthogonal_init=False",
    "separate": "Use shared_network=False for separate networks, shared_network=True for a common one",
    "num_actors": "Use num_envs=...", "env_name": "Use env_id=...",
    **dict.fromkeys(("max_epochs", "max_iterations", "num_learning_iterations"), ITERATIONS),
    "max_frames": STEPS, "timesteps": STEPS, **dict.fromkeys(("random_timesteps", "learning_starts"), FIRST_STEPS),
    "init_at_random_ep_len": "Let the first reset of the environments begin at random steps of their episodes",
    "score_to_win": "Use callbacks=[proximo.callbacks.stop_at(SCORE)]",
    "save_best_after": "Use eval_every=..., which keeps the model with the best evaluation",
    **dict.fromkeys(("save_frequency", "save_interval", "checkpoint_interval"), EVERY),
    "write_interval": "Use log_every=..., in iterations",
    **dict.fromkeys(("experiment", "experiment_name", "full_experiment_name", "train_dir"), "Use run_dir=..."),
    **dict.fromkeys(("load_checkpoint", "load_path", "load_run"), LOAD),
    **dict.fromkeys(("observer", "features"), EPISODES), "mixed_precision": "Use precision=bf16",
    "symmetry_cfg": "Use loss_fn=FUNCTION for a loss that compares mirrored observations",
    "rnd_cfg": "Use make_envs=FUNCTION for environments that add an intrinsic reward",
    "multi_gpu": "torchrun starts several processes", "wandb_activate": "Use logger=wandb",
    "population_based_training": "proximo pbt FILE trains a population"}
PUSH = "proximo push RUN hub:USER/NAME shares a trained model"
CLEANRL = {"save_model": "Every run saves its model in RUN/model", "upload_model": PUSH, "hf_entity": PUSH}
NORMALIZE = "Use norm_obs=True and norm_reward=True"
PLAY = "proximo watch RUN plays a trained agent, and proximo eval RUN gives its mean return"
ZOO = {  # names of rl-zoo3, and those that are common in programs
    **dict.fromkeys(("normalize", "vec_normalize", "vecnormalize"), NORMALIZE),
    **dict.fromkeys(("n_timesteps", "timesteps_total", "num_timesteps", "num_env_steps"), STEPS),
    **dict.fromkeys(("wandb", "use_wandb"), "Use track=True, or logger=wandb"),
    **dict.fromkeys(("log_dir", "logdir", "log_folder", "output_dir", "save_dir", "save_path"), "Use run_dir=..."),
    "tensorboard": "Every run writes RUN/tensorboard", "gpu": "Use device=cuda", "cpu": "Use device=cpu",
    "entropy_coefficient": "Use ent_coef=...", "gradient_clip": "Use max_grad_norm=...",
    **dict.fromkeys(("reward_scale", "reward_scaling"), SHAPED), "max_episode_steps":
    "Use env_kwargs={'max_episode_steps': N}", **dict.fromkeys(("render", "render_mode", "play", "test", "eval"), PLAY),
    "record_video": "Use capture_video=True", "trained_agent": LOAD}
NOT_GIVEN = ("iteration_shift",)  # fields that a user never sets, and that are not suggested
ADVICE = {"callbacks": " Call the functions in the loop over iterations.",
          "resume": " proximo.iterations continues from state=SNAPSHOT, which snapshot() of an Iteration returns.",
          "state": " It is an argument of proximo.iterations. proximo.resume continues a run.",
          "set_up": " Pass it to proximo.train or proximo.iterations: each trains one run.",
          **dict.fromkeys(("optimizer", "optimizer_class", "weight_decay"), OPTIMIZER),
          **dict.fromkeys(("actor_lr", "critic_lr", "lr_actor", "lr_critic", "policy_lr", "value_lr", "pi_lr", "vf_lr",
                           "actor_learning_rate", "critic_learning_rate"), RATES),
          "preset": " A preset takes the place of the variant: proximo.train(proximo.preset(ID)).",
          "seeds": " Use seed=... or num_seeds=...; proximo.sweep takes several: seed=[1, 2, 3].",
          **{name: f" {advice} (docs/coming-from.md)."
             for name, advice in (PEERS | RLLIB | ROBOTS | CLEANRL | ZOO).items()}}
