// The three columns of the window view: which plane stands above, which below, and which way values flow.

export const COLUMNS = [
  { id: "forward", above: "input", below: "output", flow: "down" },
  { id: "gradient", above: "grad_out", below: "grad", flow: "up" },
  { id: "second", above: "second_in", below: "second_out", flow: "down" },
] as const;

export type ColumnId = (typeof COLUMNS)[number]["id"];
