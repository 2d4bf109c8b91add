// A comment on the page, or the frame of a group of blocks.
import { type Node, type NodeProps, NodeResizer } from "@xyflow/react";
import { memo, useState } from "react";
import { useActions, useStudio } from "./context";

export type NoteNodeType = Node<Record<string, never>, "note">;

export const NoteNode = memo(function NoteNode({ id, selected }: NodeProps<NoteNodeType>) {
  const key = id.slice("note:".length);
  const studio = useActions();
  const note = useStudio((state) => state.doc.note[key]);
  const [writing, setWriting] = useState(false);
  if (!note) return null;
  const { text } = note;
  const finish = (value: string) => {
    setWriting(false);
    if (value !== text) studio.edit.setNote(key, { text: value });
  };
  const frame = note.blocks !== undefined;
  return (
    <>
      <NodeResizer
        isVisible={selected}
        minWidth={120}
        minHeight={48}
        onResizeEnd={(_, { x, y, width, height }) =>
          studio.edit.setNote(key, {
            at: [Math.round(x), Math.round(y)],
            size: [Math.round(width), Math.round(height)],
          })
        }
      />
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the node around it takes the focus and Enter */}
      <div
        className={frame ? "frame-block" : "comment-block"}
        data-testid={`note-${key}`}
        style={
          note.color && !frame ? { background: `color-mix(in srgb, ${note.color} 22%, var(--raised))` } : undefined
        }
        onDoubleClick={() => setWriting(true)}
      >
        {writing ? (
          <textarea
            className="field nodrag nowheel"
            aria-label="Text of the comment"
            defaultValue={text}
            // biome-ignore lint/a11y/noAutofocus: a double click asked for it
            autoFocus
            onBlur={(event) => finish(event.target.value)}
            onKeyDown={(event) => {
              if (event.key === "Escape") setWriting(false);
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) finish(event.currentTarget.value);
              event.stopPropagation();
            }}
          />
        ) : (
          <span className={frame ? "frame-title" : ""}>{text}</span>
        )}
      </div>
    </>
  );
});
