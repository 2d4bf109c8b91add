// Light or dark: what was chosen or, where nothing was, what the system likes.
import type { Theme } from "../state/state";

export function isDark(theme: Theme): boolean {
  return theme === "dark" || (theme === "system" && window.matchMedia("(prefers-color-scheme: dark)").matches);
}
