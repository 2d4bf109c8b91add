// All block types, grouped, with a search: type a few letters, Enter adds the best match.
import { useMemo, useState } from "react";
import { type BlockType, family } from "../model/page";
import { type Found, search } from "../model/search";
import { useActions, useStudio } from "./context";
import { Icon } from "./Icon";
import { Marked } from "./Marked";

export function Palette() {
  const studio = useActions();
  const list = useStudio((state) => state.palette.list);
  const [query, setQuery] = useState("");
  const found = useMemo(
    () =>
      search(
        query,
        list,
        ({ type }) => type,
        ({ summary }) => summary,
      ),
    [query, list],
  );
  const groups = useMemo(() => grouped(found, query), [found, query]);
  const add = (type: BlockType | undefined) => {
    if (type) studio.edit.add(type);
  };
  return (
    <nav className="side left" aria-label="Palette" data-testid="palette">
      <div className="palette-search">
        <Icon name="search" size={14} />
        <input
          className="field"
          type="search"
          placeholder="Add a block…"
          aria-label="Search blocks"
          data-testid="palette-search"
          value={query}
          onChange={(event) => setQuery(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && found[0]) {
              add(found[0].item);
              setQuery("");
            } else if (event.key === "Escape") {
              setQuery("");
              event.currentTarget.blur();
            } else if (event.key === "ArrowDown") {
              event.preventDefault();
              focusItem(event.currentTarget, 0);
            }
          }}
        />
      </div>
      <div className="scroll" role="region" aria-label="Blocks">
        {groups.map(([group, items]) => (
          <section key={group} className="palette-group">
            <h2>{group}</h2>
            {items.map(({ item, marks }) => (
              <button
                key={item.type}
                type="button"
                draggable
                className={`palette-item family-${family(item.type, item.group)}`}
                title={item.summary}
                data-testid={`palette-${item.type}`}
                onDragStart={(event) => {
                  event.dataTransfer.setData("application/x-poolgrad-block", item.type);
                  event.dataTransfer.effectAllowed = "copy";
                }}
                onClick={() => add(item)}
                onKeyDown={(event) => {
                  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
                  if (step === undefined) return;
                  event.preventDefault();
                  event.stopPropagation();
                  moveFocus(event.currentTarget, step);
                }}
              >
                <span className="swatch" />
                <Marked text={item.type} marks={marks} />
              </button>
            ))}
          </section>
        ))}
        {found.length === 0 && <p className="nothing">No block is called “{query}”.</p>}
      </div>
    </nav>
  );
}

/** By group in the palette's order; matches of a search stand together, best first. */
function grouped(found: readonly Found<BlockType>[], query: string): [string, Found<BlockType>[]][] {
  if (query.trim() !== "") return found.length ? [["Found", [...found]]] : [];
  const groups = new Map<string, Found<BlockType>[]>();
  for (const one of found) groups.set(one.item.group, [...(groups.get(one.item.group) ?? []), one]);
  return [...groups];
}

function items(from: Element): HTMLElement[] {
  return [...(from.closest("nav")?.querySelectorAll<HTMLElement>(".palette-item") ?? [])];
}

function focusItem(from: Element, index: number): void {
  items(from)[index]?.focus();
}

function moveFocus(from: HTMLElement, step: number): void {
  const all = items(from);
  const next = all[all.indexOf(from) + step];
  if (next) next.focus();
  else from.closest("nav")?.querySelector("input")?.focus();
}
