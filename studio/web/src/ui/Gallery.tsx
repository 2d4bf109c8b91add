// Where one begins: examples with pictures, one's own pages, a new page.
import { useRef, useState } from "react";
import { miniature } from "../draw/miniature";
import type { Card } from "../protocol/messages";
import { useActions, useStudio } from "./context";
import { Icon } from "./Icon";
import { Mark } from "./TopBar";
import { isDark } from "./theme";

/** The pages that were worked on last; the others on demand. */
const FEW = 6;

export function Gallery() {
  const studio = useActions();
  const gallery = useStudio((state) => state.gallery);
  const folder = useStudio((state) => state.welcome?.folder);
  const connection = useStudio((state) => state.connection);
  const theme = useStudio((state) => state.theme);
  const file = useRef<HTMLInputElement>(null);
  const dark = isDark(theme);
  const [all, setAll] = useState(false);
  return (
    <main className="gallery" data-testid="gallery">
      <header>
        <Mark />
        <div className="grow">
          <h1>poolgrad studio</h1>
          <p>Wire pooling blocks, run them, see what every window does.</p>
        </div>
        <button
          type="button"
          className="button"
          onClick={() => studio.set({ theme: dark ? "light" : "dark" })}
          data-testid="theme"
        >
          <Icon name={dark ? "sun" : "moon"} /> {dark ? "Light" : "Dark"}
        </button>
        <button
          type="button"
          className="button outlined"
          onClick={() => file.current?.click()}
          data-testid="upload-page"
        >
          <Icon name="upload" /> Open a file
        </button>
        <button
          type="button"
          className="button primary"
          onClick={({ detail }) => detail !== 2 && void studio.files.create()}
          data-testid="new-page"
        >
          <Icon name="plus" /> New page
        </button>
        <input
          ref={file}
          type="file"
          accept=".json,application/json"
          className="hidden-label"
          aria-label="Page file to open"
          tabIndex={-1}
          data-testid="upload-input"
          onChange={(event) => {
            const chosen = event.target.files?.[0];
            if (chosen) void studio.files.upload(chosen);
          }}
        />
      </header>
      {connection === "closed" && (
        <div className="banner" role="status" data-testid="offline">
          The connection to the server is lost. Pages open again as soon as it is back.
        </div>
      )}
      {gallery && gallery.pages.length > 0 && (
        <section aria-label="Your pages">
          <h2>Pages in {folder}</h2>
          <ul className="recent">
            {gallery.pages.slice(0, all ? undefined : FEW).map((card) => (
              <PageRow key={card.page} card={card} />
            ))}
          </ul>
          {gallery.pages.length > FEW && (
            <button
              type="button"
              className="button small"
              aria-expanded={all}
              onClick={() => setAll(!all)}
              data-testid="all-pages"
            >
              {all ? "Show fewer" : `Show all ${gallery.pages.length}`}
            </button>
          )}
        </section>
      )}
      <section aria-label="Examples">
        <h2>Examples</h2>
        <div className="cards">
          {gallery?.examples.map((card) => (
            <ExampleCard key={card.page} card={card} />
          ))}
        </div>
        {gallery?.examples.length === 0 && <p>There are no examples here.</p>}
      </section>
      {gallery && gallery.deleted.length > 0 && (
        <details className="deleted" data-testid="deleted-pages">
          <summary>
            <h2>Recently deleted</h2> <span className="badge">{gallery.deleted.length}</span>
          </summary>
          <ul className="recent">
            {gallery.deleted.map((card) => (
              <DeletedRow key={card.page} card={card} />
            ))}
          </ul>
        </details>
      )}
    </main>
  );
}

function ExampleCard({ card }: { card: Card }) {
  const studio = useActions();
  return (
    <button
      type="button"
      className="card"
      onClick={() => void studio.files.openCard(card.page)}
      data-testid={`example-${card.page.replace("example:", "")}`}
    >
      <span className="picture">{miniature(card.miniature)}</span>
      <span className="words">
        <b>{card.title}</b>
        <span>{card.problem ?? card.description}</span>
      </span>
    </button>
  );
}

function PageRow({ card }: { card: Card }) {
  const studio = useActions();
  const [sure, setSure] = useState(false);
  return (
    <li>
      <button type="button" onClick={() => void studio.files.openCard(card.page)} data-testid={`page-${card.page}`}>
        <Icon name={card.problem ? "warning" : "page"} />
        <span>
          <b>{card.title || card.page}</b> <span className="path">{card.problem ?? card.page}</span>
        </span>
        <time dateTime={new Date(card.modified * 1000).toISOString()}>{ago(card.modified)}</time>
      </button>
      {sure ? (
        <button
          type="button"
          className="button small danger"
          onBlur={() => setSure(false)}
          // A double click on the bin is not yet a yes.
          onClick={({ detail }) => detail !== 2 && void studio.files.remove(card.page)}
          data-testid={`delete-${card.page}`}
        >
          Delete
        </button>
      ) : (
        <button
          type="button"
          className="button small square"
          aria-label={`Delete ${card.page}`}
          data-testid={`delete-${card.page}`}
          onClick={() => setSure(true)}
        >
          <Icon name="trash" size={14} />
        </button>
      )}
    </li>
  );
}

/** A page whose last state is in its history. */
function DeletedRow({ card }: { card: Card }) {
  const studio = useActions();
  const blocks = `${card.blocks} block${card.blocks === 1 ? "" : "s"}`;
  return (
    <li>
      <Icon name={card.problem ? "warning" : "page"} />
      <span className="grow">
        <b>{card.title || card.page}</b>{" "}
        <span className="path">
          {card.page} · {card.problem ?? blocks}
        </span>
      </span>
      <time dateTime={new Date(card.modified * 1000).toISOString()}>{ago(card.modified)}</time>
      <button
        type="button"
        className="button small outlined"
        aria-label={`Restore ${card.page}`}
        data-testid={`undelete-${card.page}`}
        onClick={() => void studio.files.undelete(card.page)}
      >
        Restore
      </button>
    </li>
  );
}

const STEPS: [number, Intl.RelativeTimeFormatUnit][] = [
  [60, "second"],
  [60, "minute"],
  [24, "hour"],
  [30, "day"],
  [12, "month"],
  [Number.POSITIVE_INFINITY, "year"],
];

export function ago(at: number, now = Date.now() / 1000): string {
  let amount = Math.max(0, now - at);
  if (amount < 10) return "just now";
  for (const [size, unit] of STEPS) {
    if (amount < size) return new Intl.RelativeTimeFormat("en", { numeric: "auto" }).format(-Math.floor(amount), unit);
    amount /= size;
  }
  return "";
}
