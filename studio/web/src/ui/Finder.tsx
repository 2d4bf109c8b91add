// A small search where one is working: a block to add here, what fits the wire just drawn, or a pin to wire to by
// keyboard. Arrow keys choose, Enter takes, Escape leaves.
import { useEffect, useId, useMemo, useRef, useState } from "react";
import { type BlockType, type End, endText, family } from "../model/page";
import { search } from "../model/search";
import { givers, openOutputs, openPins, takersOf } from "../model/wiring";
import type { Finder as FinderState, State } from "../state/state";
import { useActions, useStudio } from "./context";
import { Marked } from "./Marked";

type Choice = { id: string; text: string; more: string; family: string; why: string; take: () => void };

export function Finder() {
  const finder = useStudio((state) => state.finder);
  return finder ? <FinderBox key={`${finder.purpose}${finder.end?.block}${finder.screen.x}`} finder={finder} /> : null;
}

function FinderBox({ finder }: { finder: FinderState }) {
  const studio = useActions();
  const [query, setQuery] = useState("");
  const [active, setActive] = useState(0);
  const listId = useId();
  const box = useRef<HTMLDivElement>(null);
  const choices = useChoices(finder);
  const found = useMemo(
    () =>
      search(
        query,
        choices,
        ({ text }) => text,
        ({ more }) => more,
      ).slice(0, 60),
    [query, choices],
  );
  const close = () => studio.set({ finder: null });
  const take = (choice: Choice | undefined) => {
    close();
    choice?.take();
  };
  useEffect(() => {
    const away = (event: PointerEvent) => {
      if (!box.current?.contains(event.target as globalThis.Node)) studio.set({ finder: null });
    };
    document.addEventListener("pointerdown", away, true);
    return () => document.removeEventListener("pointerdown", away, true);
  }, [studio]);
  useEffect(() => {
    box.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  });
  const left = Math.min(finder.screen.x, window.innerWidth - 320);
  const top = Math.min(finder.screen.y, window.innerHeight - 360);
  return (
    <div ref={box} className="finder" style={{ left, top }} data-testid="finder">
      <input
        className="field"
        // biome-ignore lint/a11y/noAutofocus: the finder was asked for, to type into
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls={listId}
        aria-activedescendant={found[active] ? `${listId}-${active}` : undefined}
        aria-label={PROMPTS[finder.purpose]}
        placeholder={PROMPTS[finder.purpose]}
        data-testid="finder-input"
        value={query}
        onChange={(event) => {
          setQuery(event.target.value);
          setActive(0);
        }}
        onKeyDown={(event) => {
          event.stopPropagation();
          if (event.key === "Escape") close();
          else if (event.key === "Enter") take(found[active]?.item);
          else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            event.preventDefault();
            const step = event.key === "ArrowDown" ? 1 : -1;
            setActive((now) => Math.max(0, Math.min(found.length - 1, now + step)));
          }
        }}
      />
      <div id={listId} role="listbox" aria-label="Matches" className="finder-list">
        {found.map(({ item, marks }, i) => (
          <div
            key={item.id}
            id={`${listId}-${i}`}
            role="option"
            tabIndex={-1}
            aria-selected={i === active}
            className={`palette-item family-${item.family}`}
            data-testid={`finder-${item.id}`}
            onPointerMove={() => setActive(i)}
            onClick={() => take(item)}
            onKeyDown={() => {}}
          >
            <span className="swatch" />
            <Marked text={item.text} marks={marks} />
            <span className="why">{item.why}</span>
          </div>
        ))}
        {found.length === 0 && <p className="nothing">Nothing fits</p>}
      </div>
    </div>
  );
}

const PROMPTS = { add: "Add a block…", "wire-from": "Wire to…", "wire-to": "Wire from…" };

function useChoices(finder: FinderState): Choice[] {
  const studio = useActions();
  return useMemo(() => {
    const { state } = studio;
    const { palette, doc, inference } = state;
    if (finder.purpose === "add" || !finder.end) {
      return palette.list.map((type) => blockChoice(type, "", () => studio.edit.add(type, finder.canvas)));
    }
    const end = finder.end;
    const toPin = finder.purpose === "wire-to";
    const fitting = toPin ? givers(doc, palette, inference.outputs, end) : takersOf(palette, inference.outputs, end);
    return [
      ...endChoices(state, end, toPin, (source, target) => studio.edit.connect(source, target)),
      ...fitting.map(({ type, pin }) =>
        blockChoice(type, pin, () => studio.edit.add(type, finder.canvas, { end, pin, toPin })),
      ),
    ];
  }, [studio, finder]);
}

function blockChoice(type: BlockType, pin: string, take: () => void): Choice {
  return {
    id: type.type + (pin && `.${pin}`),
    text: type.type,
    more: type.summary,
    family: family(type.type, type.group),
    why: pin,
    take,
  };
}

/** Pins or outputs that are on the page already. */
function endChoices(state: State, end: End, toPin: boolean, connect: (source: End, target: End) => void): Choice[] {
  const { doc, palette, inference } = state;
  const found = toPin
    ? openOutputs(doc, palette, inference.outputs, end)
    : openPins(doc, palette, inference.outputs, end);
  return found.map((other) => ({
    id: endText(other),
    text: endText(other),
    more: "",
    family: family(
      doc.block[other.block]?.type ?? "",
      palette.types.get(doc.block[other.block]?.type ?? "")?.group ?? "",
    ),
    why: "on the page",
    take: () => (toPin ? connect(other, end) : connect(end, other)),
  }));
}
