"""A pipeline of numba for functions that only compiled code calls."""

from __future__ import annotations

from typing import Any

from numba import _dynfunc
from numba.core import compiler, compiler_machinery, typed_passes
from numba.core.codegen import JITCodeLibrary


class _LinkedLibrary(JITCodeLibrary):  # type: ignore[misc]  # numba ships no annotations
    """Code for linking into its callers, which are optimised and assembled with it."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


@compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(typed_passes.NativeLowering):  # type: ignore[misc]  # numba ships no annotations
    """Writes LLVM code as numba does, but makes no machine code of it."""

    _name = "freshband_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower the function and make it known to its callers."""
        context, flags = state.targetctx, state.flags
        state.library = _LinkedLibrary(context.codegen(), state.func_id.func_qualname)
        flags.no_compile = True
        super().run_pass(state)
        lowered = state.cr
        state.library.finalize()
        name = lowered.fndesc.qualname.rpartition(".")[2]
        function = _dynfunc.make_function(
            lowered.fndesc.lookup_module(), name, "", 0, lowered.env, (state.library,)
        )  # has no address: only a key under which callers find the code
        context.insert_user_function(function, lowered.fndesc, [state.library])
        state.cr = lowered._replace(cfunc=function)
        return True


class LinkedCompiler(compiler.CompilerBase):  # type: ignore[misc]  # numba ships no annotations
    """Compiles a function for its callers alone.

    numba would optimise and assemble each function by itself, with everything that it calls, and
    again inside each caller, which takes as long as all the rest of the compilation.
    """

    def define_pipelines(self) -> list[Any]:
        """Return numba's pipeline with another way of lowering."""
        pipeline = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (_Lowering if step is typed_passes.NativeLowering else step, description)
            for step, description in pipeline.passes
        ]
        pipeline.finalize()
        return [pipeline]
