"""Scopes and outputs: how a page is built in Python, in the manner of TensorFlow's C++ API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..policy import policy
from .problems import PageError
from .values import Dims, Spec

if TYPE_CHECKING:
    from .page import Page


@dataclass(frozen=True, eq=False)
class Output:
    """An output of a block on a page.

    >>> from poolgrad.graph import Scope, ops
    >>> x = ops.Placeholder(Scope.new_root().with_name("x"), "float32", shape="-1,4,4,1")
    >>> str(x), x.dtype, x.shape
    ('x.output', 'float32', (None, 4, 4, 1))
    """

    page: Page
    block: str
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Output) and self.page is other.page and str(self) == str(other)

    def __hash__(self) -> int:
        return hash((id(self.page), self.block, self.name))

    def __str__(self) -> str:
        return f"{self.block}.{self.name}"

    def __repr__(self) -> str:
        return f"<Output {self}: {self.spec.text()}>"

    @property
    def spec(self) -> Spec:
        """What is known of the tensor before anything runs."""
        return self.page.spec(str(self))

    @property
    def shape(self) -> Dims | None:
        """Its shape, None where it is open."""
        return self.spec.shape

    @property
    def dtype(self) -> str | None:
        """Its dtype."""
        return self.spec.dtype


class Scope:
    """Where new blocks go: a page, the names before theirs, and policies for them.

    >>> root = Scope.new_root()
    >>> layer = root.new_sub_scope("layer")
    >>> layer.with_name("pool").unique("MaxPool"), root.new_sub_scope("layer").unique("MaxPool")
    ('layer/pool', 'layer_1/MaxPool')
    """

    def __init__(self, page: Page, prefix: str = "", name: str | None = None, rules: tuple[Any, ...] = ()) -> None:
        self.page = page
        self.prefix = prefix
        self._name = name
        self._rules = rules

    @classmethod
    def new_root(cls, title: str = "") -> Scope:
        """The scope of a new page."""
        from .page import Page

        return cls(Page(title))

    def new_sub_scope(self, name: str) -> Scope:
        """A scope inside this one; its name gets a number if it is taken."""
        from .page import check_name

        check_name(name)
        used, number = self._used(), 0
        found = name
        while f"{self.prefix}{found}" in used:
            number += 1
            found = f"{name}_{number}"
        self.page._scopes.add(f"{self.prefix}{found}")
        return Scope(self.page, f"{self.prefix}{found}/", None, self._rules)

    def with_name(self, name: str) -> Scope:
        """The same scope, in which the next blocks have this name."""
        from .page import check_name

        check_name(name)
        return Scope(self.page, self.prefix, name, self._rules)

    def with_policy(self, ties: str | None = None, nan: str | None = None) -> Scope:
        """The same scope, in which new blocks follow these policies."""
        with policy(ties, nan):
            rules = dict(self._rules) | {k: v for k, v in (("ties", ties), ("nan", nan)) if v is not None}
        return Scope(self.page, self.prefix, self._name, tuple(rules.items()))

    @property
    def rules(self) -> dict[str, str]:
        """The policies of new blocks, where they are not those of the page."""
        return dict(self._rules)

    def unique(self, type: str) -> str:
        """The name of the next block."""
        return self.page.unique(f"{self.prefix}{self._name or type}")

    def owns(self, output: Output) -> None:
        """Refuses an output of another page."""
        if output.page is not self.page:
            raise PageError(f"{output} belongs to another page")

    def _used(self) -> set[str]:
        scopes = {name[:at] for name in self.page.blocks for at, c in enumerate(name) if c == "/"}
        return scopes | set(self.page.blocks) | self.page._scopes
