export function WindowView() {
  return null;
}
