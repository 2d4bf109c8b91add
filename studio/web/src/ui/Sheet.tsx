// A dialog over the page. The browser keeps the focus inside and closes it on Escape.
import { type ReactNode, useEffect, useRef } from "react";
import { useActions } from "./context";
import { Icon } from "./Icon";

export function Sheet({
  title,
  testid,
  wide,
  children,
}: {
  title: string;
  testid: string;
  wide?: boolean;
  children: ReactNode;
}) {
  const studio = useActions();
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current;
    if (element && !element.open) element.showModal();
  }, []);
  const close = () => studio.set({ dialog: null });
  return (
    <dialog
      ref={dialog}
      className={`sheet ${wide ? "wide" : ""}`}
      aria-label={title}
      data-testid={testid}
      onClose={close}
      onClick={(event) => event.target === dialog.current && close()}
      onKeyDown={(event) => event.stopPropagation()}
    >
      <header>
        <h2>{title}</h2>
        <button type="button" className="button square" aria-label="Close" data-testid="close-dialog" onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      <div className="body">{children}</div>
    </dialog>
  );
}
