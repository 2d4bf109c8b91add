// A text with the letters that were searched for.
export function Marked({ text, marks }: { text: string; marks: readonly number[] }) {
  if (marks.length === 0) return <span className="label">{text}</span>;
  const set = new Set(marks);
  return (
    <span className="label">
      {[...text].map((letter, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: letters have no other identity
        <span key={i}>{set.has(i) ? <mark>{letter}</mark> : letter}</span>
      ))}
    </span>
  );
}
