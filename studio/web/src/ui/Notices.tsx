// What the studio has to say: over the canvas, where it covers no field and no button, or in the corner of the gallery.
import { useActions, useStudio } from "./context";
import { Icon } from "./Icon";

export function Notices() {
  const studio = useActions();
  const notices = useStudio((state) => state.notices);
  return (
    <div className="notices" aria-live="polite" role="status">
      {notices.map(({ id, kind, text, action }) => (
        <div key={id} className={`notice ${kind}`} data-testid={`notice-${kind}`}>
          <div>{text}</div>
          {action && (
            <button type="button" className="button small" onClick={action.run}>
              {action.label}
            </button>
          )}
          <button type="button" className="button small square" aria-label="Dismiss" onClick={() => studio.dismiss(id)}>
            <Icon name="close" size={12} />
          </button>
        </div>
      ))}
    </div>
  );
}
