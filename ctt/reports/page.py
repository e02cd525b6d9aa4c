"""One page about a run: self-contained HTML, that asks nothing of the network and runs no script."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #f6f7f9; color: #1b1f24;
  font: 15px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2.25rem 0 .75rem; }
p { margin: .25rem 0; color: #5f6873; }
.state { display: inline-block; padding: .1rem .6rem; border-radius: 1rem; font-size: .8rem; font-weight: 600;
  background: #e3e6ea; color: #3c444d; vertical-align: middle; margin-left: .5rem; }
.state.finished { background: #d5efe5; color: #00583f; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(14rem, 1fr)); gap: .75rem;
  margin-top: 1.25rem; }
.card, figure, table { background: #fff; border: 1px solid #e3e6ea; border-radius: .5rem; }
.card { padding: .75rem 1rem; }
.card b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.card span { color: #5f6873; font-size: .85rem; }
figure { margin: 0 0 1rem; padding: 1rem; overflow-x: auto; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem 1rem; border-top: 1px solid #eef0f2; }
tr:first-child th, tr:first-child td { border-top: 0; }
th { font-weight: 400; color: #5f6873; width: 16rem; }
td { overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.changed td { font-weight: 600; }
details { margin-top: .75rem; }
summary { cursor: pointer; color: #0072b2; margin-bottom: .5rem; }
.note { border-left: 3px solid #d5a100; padding-left: .75rem; }
@media print { body { background: #fff; } figure, .card { break-inside: avoid; } }
"""

_KINDS = {"svg": "image/svg+xml", "png": "image/png"}


@dataclass(frozen=True)
class Page:
    """What a page says.

    Attributes:
        title: name of the run.
        state: whether it is finished, in a word or two.
        is_finished: whether it is.
        subtitle: what was trained, in a line.
        cards: measures by name, as texts.
        notes: sentences about what is missing.
        figures: pictures by description, each the bytes of a file and its suffix.
        facts: where, when and with what, as texts by name.
        config: fields by dotted path, as JSON values.
        changed: the paths of the fields that are not the default.
    """

    title: str
    state: str
    is_finished: bool
    subtitle: str
    cards: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    figures: Mapping[str, tuple[bytes, str]] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()


def write_page(page: Page) -> str:
    """Return the HTML of a page; every text in it is escaped.

    Args:
        page: what it says.
    """
    state = f'<span class="state{" finished" if page.is_finished else ""}">{escape(page.state)}</span>'
    cards = "".join(
        f'<div class="card"><b>{escape(v)}</b><span>{escape(k)}</span></div>' for k, v in page.cards.items()
    )
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in page.notes)
    figures = "".join(_figure(text, *picture) for text, picture in page.figures.items())
    chosen = {path: value for path, value in page.config.items() if path in page.changed}
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
            "style-src 'unsafe-inline'\">",
            f"<title>{escape(page.title)}</title><style>{_STYLE}</style></head><body><main>",
            f"<h1>{escape(page.title)}{state}</h1><p>{escape(page.subtitle)}</p>",
            f'<div class="cards">{cards}</div>' if cards else "",
            f"<h2>Figures</h2>{figures}" if figures else "",
            notes,
            f"<h2>The run</h2>{_table(page.facts)}" if page.facts else "",
            "<h2>What differs from the defaults</h2>",
            _table({path: _text(value) for path, value in chosen.items()}) if chosen else "<p>Nothing.</p>",
            "<details><summary>All fields of the config</summary>",
            _table({path: _text(value) for path, value in page.config.items()}, page.changed),
            "</details></main></body></html>\n",
        ]
    )


def _figure(text: str, content: bytes, kind: str) -> str:
    data = base64.b64encode(content).decode()
    return f'<figure><img alt="{escape(text)}" src="data:{_KINDS[kind]};base64,{data}"></figure>'


def _table(rows: Mapping[str, str], strong: frozenset[str] = frozenset()) -> str:
    lines = [
        f"<tr{' class=changed' if name in strong else ''}><th>{escape(name)}</th><td>{escape(text)}</td></tr>"
        for name, text in rows.items()
    ]
    return f"<table>{''.join(lines)}</table>"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
