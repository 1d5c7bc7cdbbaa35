"""The processes of environments in worker processes."""


def running_workers(envs):
    """The ids of the worker processes."""
    processes = envs._vector.processes if envs._vector else []
    return [process.pid for process in processes if process.pid is not None]
