"""Memory for the length of one kernel, which is not counted: see `_linking.LentCompiler`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, extending, types
from numba.core import cgutils

from freshband._linking import INNER_OPTIONS, overload


@extending.intrinsic  # type: ignore[untyped-decorator]  # numba ships no annotations
def _allocate(typing_context: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        size = builder.mul(args[0], context.get_constant(types.intp, 8))
        block = context.nrt.allocate_unchecked(builder, size)
        return builder.bitcast(block, context.get_value_type(signature.return_type))

    return types.CPointer(types.float64)(types.intp), generate


@extending.intrinsic  # type: ignore[untyped-decorator]  # numba ships no annotations
def _free(typing_context: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        block = context.make_array(array)(context, builder, args[0]).data
        context.nrt.free(builder, builder.bitcast(block, cgutils.voidptr_t))
        return context.get_dummy_value()

    return types.none(array), generate


def take_scratch(count: int) -> Any:
    """Return an array of ``count`` numbers, not set; pass it to `give_back` in the end."""
    return np.empty(count)


def give_back(array: Any) -> None:
    """Free an array of `take_scratch`."""


@overload(take_scratch, jit_options=INNER_OPTIONS, strict=False)
def _compiled_take(count: Any) -> Any:
    return lambda count: carray(_allocate(count), (count,))


@overload(give_back, jit_options=INNER_OPTIONS, strict=False)
def _compiled_give_back(array: Any) -> Any:
    return lambda array: _free(array)
