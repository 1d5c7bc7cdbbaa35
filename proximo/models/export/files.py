"""Writing exported files: ONNX, and programs of torch.export (.pt2).

Both come from one trace of torch.export, which keeps the number of rows open and refuses what it cannot represent. The
older exporter of torch.onnx, which records one example through TorchScript, is deprecated since torch 2.9, records
Python conditions as they were in that example, and cannot write .pt2.
"""

import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch

from proximo.errors import LOGGER, UsageError, first_line, place_of
from proximo.models.export.check import check_same_actions
from proximo.models.export.portable import Portable
from proximo.models.export.ports import Port, Trained, obs_changes
from proximo.models.spaces import space_to_json
from proximo.on_torch.device import torch_dtype
from proximo.runs.folder.writing import whole_file

FORMATS = ("onnx", "pt2")
PACKAGES = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "pt2": ()}
ABOUT = "proximo.json"  # the name under which a file holds what it is
ABOUT_FORMAT = 1  # rises when a program that reads proximo.json has to change
TRACED_ROWS = 2  # torch.export takes one row for a constant


def export_model(model: Trained, path: Path, to: str = "", also: str = "", mask: bool = True) -> Portable:
    """Write a trained agent to one file, and check that the file acts as the model does.

    Args:
        model: A proximo.models.model.Model.
        path: The file.
        to: "onnx" or "pt2"; empty: by the ending of `path`.
        also: An additional output, "logits" or "mean", or "".
        mask: Whether there is an input for action masks, where actions can be masked.

    Returns:
        The exported module, with its `inputs` and `outputs`.

    Raises:
        UsageError: An argument is unknown, a package is missing, or the network cannot be exported.
        FilesError: The file cannot be written.
    """
    to = chosen_format(path, to, also)
    portable = Portable(model, also, mask)
    with quiet():
        program = trace(portable)
        with whole_file(path) as beside:
            (write_onnx if to == "onnx" else write_pt2)(program, portable, description(model, portable), beside)
            check_same_actions(model, portable, run_onnx(beside) if to == "onnx" else run_pt2(beside))
    return portable


def chosen_format(path: Path, to: str, also: str) -> str:
    """Return the format of a file.

    Raises:
        UsageError: The format or the additional output is unknown, the ending is that of another format, or a package
            is missing.
    """
    wrong = [] if isinstance(also, str) and also in ("", "logits", "mean") else [
        f"--with {also} is unknown. Use logits or mean."]
    ending = path.suffix.removeprefix(".")
    if to is not None and (not isinstance(to, str) or to not in ("", *FORMATS)):
        wrong.append(f"--to {to} is not a format of exported files. Use onnx or pt2.")
    elif path.is_dir():
        wrong.append(f"{path} is a folder. Name a file, such as {path / 'agent.onnx'}.")
    elif (to or ending) not in FORMATS:
        wrong.append(f"{path} does not end in a format of exported files. Name it {path.with_suffix('.onnx')} or "
                     f"{path.with_suffix('.pt2')}.")
    elif ending != (to or ending):
        wrong.append(f"{path} does not end in .{to}. Name it {path.with_suffix(f'.{to}')}.")
    elif lacking := [name for name in PACKAGES[to or ending] if importlib.util.find_spec(name) is None]:
        wrong.append(f'Export to ONNX needs {", ".join(lacking)}: pip install "proximo[export]"')
    if wrong:
        raise UsageError("\n".join(wrong))
    return to or ending


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the warnings of the exporter, which concern its own code, from users."""
    loggers = {logging.getLogger(name): level for name, level in
               (("torch.onnx", logging.ERROR), ("torch.export", logging.CRITICAL), ("torch.fx", logging.CRITICAL))}
    levels = {logger: logger.level for logger in loggers}
    for logger, level in loggers.items():
        logger.setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def trace(portable: Portable) -> torch.export.ExportedProgram:
    """Return the module as a program that takes any number of rows.

    Raises:
        UsageError: The network does something that a program cannot hold.
    """
    example = {port.name: torch.zeros(TRACED_ROWS, *port.shape, dtype=torch_dtype(port.dtype))
               for port in portable.inputs}
    rows = torch.export.Dim("N", min=1)
    shapes = ({name: {0: rows} for name in example},)
    printed = io.StringIO()  # after a fault the tracer prints its whole graph
    try:
        with torch.no_grad(), redirect_stderr(printed):
            return torch.export.export(portable, (example,), dynamic_shapes=shapes, strict=False)
    except UsageError:
        raise
    except Exception as error:  # the tracer or a custom network may raise anything
        LOGGER.debug("%s", printed.getvalue())
        place = f", {place}" if (place := place_of(error)) else ""
        raise UsageError(f"The network cannot be exported ({type(error).__name__}: {first_line(error)}{place}). A "
                         "network of your own must consist of operations of torch, without Python conditions on the "
                         "values or the number of observations. Dict and Tuple observations must go through "
                         "proximo.on_torch.encoders.Encoder, and are not an array before it: read their leading axes "
                         "from what it returns.") from error


def description(model: Trained, portable: Portable) -> dict[str, Any]:
    """Return what a file says about itself: environment, its changes, spaces, inputs and outputs."""
    space = model.spec.observation_space
    return {"format": ABOUT_FORMAT, "variant": model.variant, "env_id": model.cfg.env_id,
            "preprocessing": obs_changes(model),
            "action_space": space_to_json(model.spec.action_space),
            "observation_space": None if space is None else space_to_json(space),
            "inputs": [described(port) for port in portable.inputs],
            "outputs": [described(port) for port in portable.outputs]}


def described(port: Port) -> dict[str, Any]:
    """Return a port as plain data; the first axis, the number of rows, is "N"."""
    return {"name": port.name, "shape": ["N", *port.shape], "dtype": str(port.dtype)}


def write_onnx(program: torch.export.ExportedProgram, portable: Portable, about: dict[str, Any], path: Path) -> None:
    """Write an ONNX file; `about` becomes its metadata "proximo.json"."""
    import onnx_ir

    names = [port.name for port in portable.inputs]
    try:
        converted = torch.onnx.export(program, input_names=names, verbose=False, external_data=False,
                                      output_names=[port.name for port in portable.outputs])
    except torch.onnx.OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # the last one names the operation, the others the steps of the exporter
            cause = cause.__cause__
        LOGGER.debug("%s", error)
        raise UsageError(f"The network has an operation that ONNX lacks ({first_line(cause)}). Use --to "
                         "pt2.") from error
    assert converted is not None
    graph = converted.model.graph
    for value, port in zip((*graph.inputs, *graph.outputs), (*portable.inputs, *portable.outputs), strict=True):
        value.shape = onnx_ir.Shape(("N", *port.shape))
    converted.model.metadata_props[ABOUT] = json.dumps(about, allow_nan=False)
    converted.save(path, external_data=False)


def write_pt2(program: torch.export.ExportedProgram, portable: Portable, about: dict[str, Any], path: Path) -> None:
    """Write a program that `torch.export.load` reads; `about` becomes its extra file "proximo.json".

    `portable` is there for the same call as that of write_onnx.
    """
    program.example_inputs = None  # which torch would pickle
    content = io.BytesIO()  # where torch itself writes a file, it aborts the process if the disk is full
    torch.export.save(program, content, extra_files={ABOUT: json.dumps(about, allow_nan=False)})
    path.write_bytes(content.getvalue())


def run_onnx(path: Path) -> Any:
    """Return a function from named arrays to named arrays, which runs a file with onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


def run_pt2(path: Path) -> Any:
    """Return a function from named arrays to named arrays, which runs a file with torch."""
    module = torch.export.load(path).module()

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        with torch.no_grad():
            found = module({name: torch.from_numpy(x) for name, x in inputs.items()})
        return {name: x.numpy() for name, x in found.items()}

    return run
