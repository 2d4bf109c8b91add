// The icons, drawn on a 16-pixel grid with one stroke width so that they look alike.
import { memo } from "react";

const PATHS = {
  play: "M5 3.5v9l7.5-4.5z",
  stop: "M4.5 4.5h7v7h-7z",
  target: "M8 2.5v3M8 10.5v3M2.5 8h3M10.5 8h3M8 5.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z",
  live: "M9 1.8 3.8 9h3.7L6.8 14.2 12.2 7H8.4z",
  undo: "M6 3.5 3 6.5l3 3M3.2 6.5H9a4 4 0 0 1 0 8H7",
  redo: "M10 3.5l3 3-3 3M12.8 6.5H7a4 4 0 0 0 0 8h2",
  layout: "M2.5 3h4v3h-4zM2.5 10h4v3h-4zM9.5 6.5h4v3h-4zM6.5 4.5H8v7H6.5M8 8h1.5",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3l3.2 3.2",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  download: "M8 2.5v7M5 6.8 8 9.8l3-3M2.8 12.5h10.4",
  upload: "M8 9.8v-7M5 5.5l3-3 3 3M2.8 12.5h10.4",
  history: "M3 8a5 5 0 1 0 1.6-3.7M3 2.8v2.5h2.5M8 5.2V8l2 1.4",
  keyboard: "M1.8 4h12.4v8H1.8zM4 6.5h.5M6.7 6.5h.5M9.3 6.5h.5M12 6.5h.2M4.5 9.5h7",
  close: "M4 4l8 8M12 4l-8 8",
  warning: "M8 2.5 14 13H2zM8 6.5v3M8 11.2v.3",
  error: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 5v3.6M8 10.8v.3",
  check: "M3 8.5 6.5 12 13 4.5",
  grid: "M2.5 2.5h11v11h-11zM6.2 2.5v11M9.8 2.5v11M2.5 6.2h11M2.5 9.8h11",
  windows: "M2.5 2.5h11v11h-11zM5 5h5v5H5zM7.5 5v5M5 7.5h5",
  expand: "M9.5 2.5h4v4M13.5 2.5 9 7M6.5 13.5h-4v-4M2.5 13.5 7 9",
  collapse: "M13 7H9V3M9 7l4.5-4.5M3 9h4v4M7 9l-4.5 4.5",
  down: "M3.5 6 8 10.5 12.5 6",
  right: "M6 3.5 10.5 8 6 12.5",
  copy: "M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1",
  comment: "M2.5 3h11v8H8l-3 2.5V11H2.5z",
  group: "M2.5 2.5h3M8 2.5h3M13.5 2.5v3M13.5 8v3M2.5 5.5v3M2.5 11v2.5h3M8 13.5h5.5M5.5 6h5v4.5h-5z",
  gradient: "M8 13 2.5 3.5h11z",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.3 4.5l.7 9h6l.7-9",
  page: "M3.5 1.8h6l3 3v9.4h-9zM9.5 1.8v3h3",
  home: "M2.5 7.5 8 3l5.5 4.5M4 6.5v7h8v-7",
  picture: "M2.5 3h11v10h-11zM2.5 11l3-3 2.5 2.5L10.5 7l3 3.5M5.5 6h.2",
  code: "M5.5 4.5 2 8l3.5 3.5M10.5 4.5 14 8l-3.5 3.5",
  align: "M2.5 2v12M5 4h8v3H5zM5 9.5h5v3H5z",
  more: "M3.5 8h.2M8 8h.2M12.5 8h.2",
  book: "M3 2.8h4.2L8 3.6l.8-.8H13v10H9l-1 .8-1-.8H3zM8 3.6v9.6",
  table: "M2.5 3h11v10h-11zM2.5 6.2h11M6 6.2V13",
  bars: "M2.5 13.5h11M4 11V8M7 11V4M10 11V6M13 11V9.5",
  wire: "M2 11.5h2.5c4 0 3-7 7-7H14M2 11.5h.1M14 4.5h-.1",
} as const;

export type IconName = keyof typeof PATHS;

const SOLID = new Set<IconName>(["play", "stop", "live"]);

export const Icon = memo(function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg
      className="icon"
      width={size}
      height={size}
      viewBox="0 0 16 16"
      aria-hidden="true"
      fill={SOLID.has(name) ? "currentColor" : "none"}
      stroke="currentColor"
      strokeWidth={1.4}
      strokeLinecap="round"
      strokeLinejoin="round"
    >
      <path d={PATHS[name]} />
    </svg>
  );
});
