"""The options that inductor gets for a function, by the sizes of the products that a library computes in it."""

import pytest
import torch

from proximo.on_torch.compile.aot import SMALL_PRODUCTS, trace_function
from proximo.on_torch.compile.aot_build import STACK_BYTES, inductor_options

FEW_ROWS, STACK = "cpp.enable_tiling_heuristics", "aot_inductor.allow_stack_allocation"


@pytest.mark.parametrize(("rows", "names"), [
    pytest.param(4, {FEW_ROWS, STACK}, id="products-computed-in-place"),
    pytest.param(200, {STACK}, id="on-the-stack"),
    pytest.param(201, set(), id="too-large-for-the-stack"),
])
def test_options_follow_from_the_products_of_a_library(rows, names):
    """Two products of (rows, 64) float32 have 200 x 64 x 4 x 2 = 102,400 bytes, which is the limit of inductor."""
    from torch._inductor.codegen.cpp_wrapper_cpu_array_ref import MAX_STACK_ALLOCATION_SIZE

    assert STACK_BYTES == MAX_STACK_ALLOCATION_SIZE
    example = (torch.zeros(rows, 64), torch.zeros(64, 64), torch.zeros(64))
    graph = trace_function(lambda x, w, b: [(torch.addmm(b, x, w).tanh() @ w).tanh()], example, SMALL_PRODUCTS)
    assert {FEW_ROWS, STACK} & set(inductor_options(graph)) == names
