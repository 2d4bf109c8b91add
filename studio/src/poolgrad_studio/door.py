"""What stands in front of the studio: the page that asks for a password, and those that say why nobody gets in.

They need nothing but `door.css`, so they look right where there is no session and no front end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

STYLE: Final = Path(__file__).with_name("door.css")

_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · poolgrad studio</title>
<link rel="stylesheet" href="/door.css">
<body>
<main>
<svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" fill="#14625c"/><g fill="#fff">
<rect x="6" y="6" width="9" height="9" rx="1.5" fill-opacity=".35"/>
<rect x="17" y="6" width="9" height="9" rx="1.5" fill-opacity=".6"/>
<rect x="6" y="17" width="9" height="9" rx="1.5" fill-opacity=".6"/>
<rect x="17" y="17" width="9" height="9" rx="1.5" fill="#f4c20d"/></g></svg>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""
_FORM: Final = """<p>This studio is open to those who know its password.</p>
{fault}<form method="post" action="/login">
<label for="password">Password</label>
<input id="password" type="password" name="password" autofocus required autocomplete="current-password">
<button>Open the studio</button>
</form>"""

EXPIRED: Final = _PAGE.format(
    title="This link has expired",
    body="<p>Every start of the studio has a key of its own, and it is part of the link.</p>"
    "<p>Open the link that the terminal shows now.</p>",
)
NOT_BUILT: Final = _PAGE.format(
    title="The front end is missing",
    body="<p>It has not been built: install the package with <code>pip install ./studio</code>, or run "
    "<code>npm ci &amp;&amp; npm run build</code> in <code>studio/web</code>.</p>",
)


def login(fault: str = "") -> str:
    """The page that asks for the password; `fault` says what was wrong with the last one."""
    said = f'<p role="alert">{fault}</p>\n' if fault else ""
    return _PAGE.format(title="poolgrad studio", body=_FORM.format(fault=said))
