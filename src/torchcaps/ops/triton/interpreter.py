"""Triton's interpreter, which runs the kernels on the CPU where ``TRITON_INTERPRET=1`` is set: for tests and checks."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def prepared_once() -> Iterator[None]:
    """For one launch: the interpreter prepares the language once, and not for each call inside of a kernel, and does
    not look at each index for an overflow.

    That is nearly all of the time that it takes. Where the interpreter is not built as we know it, it stays as it is.
    """
    from triton import language
    from triton.runtime import interpreter

    prepare: Any = getattr(interpreter, "_patch_lang", None)
    options: Any = getattr(interpreter.interpreter_builder, "options", None)
    if prepare is None or not hasattr(options, "sanitize_overflow"):
        yield
        return
    visible = {"language": language, "core": language.core}
    scope = prepare(type("Kernel", (), {"__globals__": visible}))
    interpreter._patch_lang = lambda function: _Nothing()
    interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)
    try:
        yield
    finally:
        interpreter.interpreter_builder.options = options
        interpreter._patch_lang = prepare
        scope.restore()


class _Nothing:
    """What there is to undo after a call inside of a kernel."""

    def restore(self) -> None: ...
