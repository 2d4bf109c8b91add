// How components reach the editor they belong to: there may be several on one page, in a notebook.
import { createContext, useContext } from "react";
import { useStore } from "zustand";
import type { State } from "../state/state";
import type { Studio } from "../state/studio";

export const StudioContext = createContext<Studio | null>(null);

export function useActions(): Studio {
  const studio = useContext(StudioContext);
  if (!studio) throw new Error("a part of the editor was rendered outside of it");
  return studio;
}

export function useStudio<T>(select: (state: State) => T): T {
  return useStore(useActions().store, select);
}
