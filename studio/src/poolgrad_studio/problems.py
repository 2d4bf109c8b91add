"""What the studio answers when it cannot do what was asked: a code for the program, a sentence for the person."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """A request that is answered with an error.

    code     "bad_request", "not_found", "exists", "too_large", "too_many", "busy", "refused", "no_result" or "conflict"
    detail   what the front end may want to show beside the sentence
    """

    def __init__(self, code: str, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail
