// A button that opens a menu. Arrow keys move, Enter takes, Escape closes and returns the focus.
import { Fragment, useEffect, useRef, useState } from "react";
import { Icon, type IconName } from "./Icon";

export type MenuItem =
  | "line"
  | { label: string; icon?: IconName; keys?: string; testid?: string; disabled?: boolean; run: () => void };

type Props = {
  label: string;
  icon?: IconName;
  text?: string;
  items: readonly MenuItem[];
  testid: string;
  small?: boolean;
};

export function Menu({ label, icon, text, items, testid, small }: Props) {
  const [at, setAt] = useState<{ left: number; top: number } | null>(null);
  const button = useRef<HTMLButtonElement>(null);
  const menu = useRef<HTMLDivElement>(null);
  const close = () => {
    setAt(null);
    button.current?.focus();
  };
  useEffect(() => {
    if (!at) return;
    menu.current?.querySelector("button")?.focus();
    const away = (event: PointerEvent) => {
      const target = event.target as globalThis.Node;
      if (!menu.current?.contains(target) && !button.current?.contains(target)) setAt(null);
    };
    document.addEventListener("pointerdown", away, true);
    return () => document.removeEventListener("pointerdown", away, true);
  }, [at]);
  const toggle = () => {
    const box = button.current?.getBoundingClientRect();
    setAt(at || !box ? null : { left: Math.max(8, Math.min(box.left, window.innerWidth - 260)), top: box.bottom + 4 });
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        className={`button ${text ? "" : "square"} ${small ? "small outlined" : ""}`}
        aria-label={text ? undefined : label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={at !== null}
        data-testid={testid}
        onClick={toggle}
      >
        {icon && <Icon name={icon} size={small ? 14 : 16} />}
        {text}
      </button>
      {at && (
        <div
          ref={menu}
          className="menu"
          role="menu"
          aria-label={label}
          tabIndex={-1}
          style={at}
          onKeyDown={(event) => steer(event, close)}
        >
          {items.map((item, i) =>
            item === "line" ? (
              // biome-ignore lint/suspicious/noArrayIndexKey: lines have no other identity
              <hr key={i} />
            ) : (
              <Fragment key={item.label}>
                <button
                  type="button"
                  role="menuitem"
                  disabled={item.disabled}
                  data-testid={item.testid}
                  onClick={() => {
                    close();
                    item.run();
                  }}
                >
                  {item.icon && <Icon name={item.icon} />}
                  <span className="grow">{item.label}</span>
                  {item.keys && <kbd>{item.keys}</kbd>}
                </button>
              </Fragment>
            ),
          )}
        </div>
      )}
    </>
  );
}

function steer(event: React.KeyboardEvent<HTMLDivElement>, close: () => void): void {
  event.stopPropagation();
  if (event.key === "Escape" || event.key === "Tab") {
    event.preventDefault();
    close();
    return;
  }
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  const items = [...event.currentTarget.querySelectorAll<HTMLElement>('[role="menuitem"]:not(:disabled)')];
  const now = items.indexOf(document.activeElement as HTMLElement);
  items[(now + step + items.length) % items.length]?.focus();
}
