"""Pipelines of numba: for functions that only compiled code calls, and for those Python calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from llvmlite import binding as llvm
from numba import _dynfunc, extending
from numba.core import compiler, compiler_machinery, config, errors, typed_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.runtime.nrt import rtsys


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
        counting = state.targetctx
        state.flags.no_compile = True
        if _only_borrows(state):
            state.targetctx = counting.subtarget(enable_nrt=False)
            try:
                return self._lower(state)
            except errors.NumbaError:  # it allocates
                state.targetctx = counting
        return self._lower(state)

    def _lower(self, state: Any) -> bool:
        context = state.targetctx
        state.library = _LinkedLibrary(context.codegen(), state.func_id.func_qualname)
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


@compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class _UnaliasedLowering(_Lowering):
    """Tells LLVM that the arguments of a function do not overlap."""

    _name = "freshband_unaliased_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower the function and make it known to its callers."""
        state.flags.noalias = True
        return super().run_pass(state)


def _only_borrows(state: Any) -> bool:
    """Whether no counted value is returned by a function, or by one that it calls.

    Unless it allocates, all that it holds belongs to its caller, and it need not count references.
    """
    returned = [state.return_type]
    returned += [
        call.return_type
        for expr, call in state.calltypes.items()
        if getattr(expr, "op", "") == "call"
    ]
    models = state.targetctx.data_model_manager
    return not any(models[kind].contains_nrt_meminfo() for kind in returned)


@compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class _EntryLowering(typed_passes.NativeLowering):  # type: ignore[misc]  # numba ships no annotations
    """Writes LLVM code as numba does, into an `_EntryLibrary`."""

    _name = "freshband_entry_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower the function; one whose own arguments are counted is left to numba."""
        context = state.targetctx
        models = [context.data_model_manager[kind] for kind in (*state.args, state.return_type)]
        if not any(model.contains_nrt_meminfo() for model in models):
            state.library = _EntryLibrary(context.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()  # as numba does with its own
        return bool(super().run_pass(state))


# Where nothing is allocated, nothing has to be counted.
_COUNTING = ("NRT_incref", "NRT_decref")
_UNCOUNTED = "".join(
    f"define weak_odr void @{name}(ptr %0) alwaysinline {{ ret void }}\n" for name in _COUNTING
)
_ALLOCATE = ("NRT_MemInfo_alloc", "NRT_MemInfo_new", "NRT_MemInfo_varsize")


class _EntryLibrary(JITCodeLibrary):  # type: ignore[misc]  # numba ships no annotations
    """Code that Python calls, with all that it calls; counts references only if it must.

    All arrays of an entry point whose states are lent belong to its caller, unless it allocates
    others. numba would count references to each of them in each function.
    """

    def finalize(self) -> None:
        """Link what is called, and replace the counting if no code allocates."""
        self._counts = any(map(_allocates, (self, *self._linking_libraries)))
        if not self._counts:  # the first definition of a name is the one that is kept
            self._final_module.link_in(llvm.parse_assembly(_UNCOUNTED))
        super().finalize()

    def _optimize_final_module(self) -> None:
        if not self._counts:  # other code must not find these
            for name in _COUNTING:
                self._final_module.get_function(name).linkage = "internal"
        before = config.SLP_VECTORIZE
        try:
            config.SLP_VECTORIZE = 1  # sums kept in several parts become one of vectors
            super()._optimize_final_module()
        finally:
            config.SLP_VECTORIZE = before


def _allocates(library: Any) -> bool:
    names = (function.name for function in library._final_module.functions)
    return library is not rtsys.library and any(name.startswith(_ALLOCATE) for name in names)


class _Compiler(compiler.CompilerBase):  # type: ignore[misc]  # numba ships no annotations
    lowering: ClassVar[type]

    def define_pipelines(self) -> list[Any]:
        """Return numba's pipeline with another way of lowering."""
        pipeline = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (self.lowering if step is typed_passes.NativeLowering else step, description)
            for step, description in pipeline.passes
        ]
        pipeline.finalize()
        return [pipeline]


class LinkedCompiler(_Compiler):
    """Compiles a function for its callers alone.

    numba would optimise and assemble each function by itself, with everything that it calls, and
    again inside each caller, which takes as long as all the rest of the compilation.
    """

    lowering = _Lowering


class UnaliasedCompiler(_Compiler):
    """Compiles a function for its callers alone, whose arguments do not overlap."""

    lowering = _UnaliasedLowering


class LentCompiler(_Compiler):
    """Compiles an entry point whose states are lent."""

    lowering = _EntryLowering


# Division by zero gives inf or nan, as in numpy arrays; kernels never raise.
OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
INNER_OPTIONS = {**OPTIONS, "pipeline_class": LinkedCompiler}
UNALIASED_OPTIONS = {**OPTIONS, "pipeline_class": UnaliasedCompiler}
ENTRY_OPTIONS = {**OPTIONS, "pipeline_class": LentCompiler}

_F = TypeVar("_F", bound=Callable[..., Any])
# numba ships no annotations for this.
overload: Callable[..., Callable[[_F], _F]] = extending.overload
