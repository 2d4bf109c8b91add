// The page itself: blocks, notes and wires on an endless canvas. React Flow draws and drags; the document is changed in
// whole steps when a gesture ends.
import {
  applyEdgeChanges,
  applyNodeChanges,
  Background,
  BackgroundVariant,
  type Connection,
  type Edge,
  type EdgeChange,
  type FinalConnectionState,
  getViewportForBounds,
  MiniMap,
  type Node,
  type NodeChange,
  type OnConnectEnd,
  Panel,
  ReactFlow,
  type ReactFlowInstance,
  SelectionMode,
  useNodesInitialized,
  useReactFlow,
  useStore,
  type Viewport,
} from "@xyflow/react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { BLOCK_WIDTH, blockHeight, pinHeight } from "../model/geometry";
import { arrange } from "../model/layout";
import { type End, type Position, parseEnd, wireOf } from "../model/page";
import { refusal } from "../model/wiring";
import { BlockNode } from "./BlockNode";
import { useActions, useStudio } from "./context";
import { Icon } from "./Icon";
import { NoteNode } from "./NoteNode";
import { WireEdge } from "./WireEdge";

const NODE_TYPES = { block: BlockNode, note: NoteNode };
const EDGE_TYPES = { wire: WireEdge };
const FIT = { padding: 0.12, maxZoom: 1.1, minZoom: 0.03 };
/** A page that is too large to be read as a whole opens at this zoom, at its first block. */
const SMALLEST_OPENING = 0.5;
/** What stays free around a block that comes into view. */
const EDGE = 24;
/** What the picture of a result will take below a block. */
const PICTURE_ROOM = 120;
const IN_FRONT = { zIndex: 1 };
const BEHIND = { zIndex: 0 };
/** From this many blocks on only those in view are drawn. */
const MANY = 600;
/** Below this zoom the label of a wire could not be read. */
const READABLE = 0.55;

/** The nodes of a page; those that did not change stay the same objects. */
function useNodes(): [Node[], (changes: NodeChange[]) => void, ReadonlyMap<string, Position>] {
  const blocks = useStudio((state) => state.doc.block);
  const positions = useStudio((state) => state.doc.position);
  const notes = useStudio((state) => state.doc.note);
  const selection = useStudio((state) => state.selection);
  const [nodes, setNodes] = useState<Node[]>([]);
  const [placeFor, loose] = useLoosePlaces();
  useEffect(() => {
    setNodes((old) => {
      const known = new Map(old.map((node) => [node.id, node]));
      const frames = Object.entries(notes).map(([key, note]) => {
        const [[x, y], [width, height]] = [note.at, note.size];
        const rest = { width, height, zIndex: note.blocks ? -2 : -1 };
        return kept(known, `note:${key}`, "note", { x, y }, selection.notes.has(key), rest);
      });
      const rest = Object.keys(blocks).map((name) => {
        const [x, y] = positions[name] ?? placeFor(name);
        const chosen = selection.blocks.has(name);
        return kept(known, name, "block", { x, y }, chosen, chosen ? IN_FRONT : BEHIND);
      });
      return [...frames, ...rest];
    });
  }, [blocks, positions, notes, selection, placeFor]);
  const change = useCallback((changes: NodeChange[]) => setNodes((old) => applyNodeChanges(changes, old)), []);
  return [nodes, change, loose];
}

/** Places for blocks that have none, as on a page that was written by hand: laid out once, below the others. */
function useLoosePlaces(): [(name: string) => Position, ReadonlyMap<string, Position>] {
  const studio = useActions();
  const known = useRef(new Map<string, Position>());
  const placeFor = useCallback(
    (name: string): Position => {
      const { doc, palette } = studio.state;
      if (!known.current.has(name)) {
        const loose = Object.keys(doc.block).filter((other) => !doc.position[other] && !known.current.has(other));
        const typeOf = (other: string) => palette.types.get(doc.block[other]?.type ?? "");
        const size = (other: string) => {
          const [type, block] = [typeOf(other), doc.block[other]];
          return { width: BLOCK_WIDTH, height: (type && block ? blockHeight(type, block) : 0) + PICTURE_ROOM };
        };
        const top = Math.max(0, ...Object.values(doc.position).map(([, y]) => y + 400));
        const places = arrange(doc, loose, size, (other, pin, side) => pinHeight(typeOf(other), pin, side));
        for (const [other, { x, y }] of places) known.current.set(other, [x, y + top]);
      }
      return known.current.get(name) ?? [0, 0];
    },
    [studio],
  );
  return [placeFor, known.current];
}

type Rest = { width?: number; height?: number; zIndex?: number };

function kept(
  known: Map<string, Node>,
  id: string,
  type: string,
  position: { x: number; y: number },
  selected: boolean,
  rest: Rest,
): Node {
  const old = known.get(id);
  const same =
    old &&
    old.position.x === position.x &&
    old.position.y === position.y &&
    (old.selected ?? false) === selected &&
    old.width === rest.width &&
    old.height === rest.height;
  if (same) return old;
  return { ...old, id, type, position, selected, data: old?.data ?? {}, ariaLabel: id, ...rest };
}

function useEdges(): Edge[] {
  const wires = useStudio((state) => state.doc.wire);
  const selected = useStudio((state) => state.selection.wires);
  return useMemo(() => {
    const labelled = new Set<string>();
    return Object.entries(wires).map(([pin, output]) => {
      const { id, source, target } = wireOf(output, pin);
      // Several wires from one output to one block need one label.
      const way = `${output} ${target.block}`;
      const label = !labelled.has(way);
      labelled.add(way);
      return {
        id,
        data: { label },
        type: "wire",
        source: source.block,
        sourceHandle: source.pin,
        target: target.block,
        targetHandle: target.pin,
        selected: selected.has(id),
        ariaLabel: `Wire from ${source.block}.${source.pin} to ${target.block}.${target.pin}`,
      };
    });
  }, [wires, selected]);
}

const ends = ({ source, sourceHandle, target, targetHandle }: Connection | Edge): [End, End] => [
  parseEnd(`${source}.${sourceHandle}`),
  parseEnd(`${target}.${targetHandle}`),
];

export function Canvas() {
  const studio = useActions();
  const flow = useReactFlow();
  const [nodes, changeNodes, loose] = useNodes();
  const edges = useEdges();
  const loading = useStudio((state) => state.loading);
  const page = useStudio((state) => state.page);
  const empty = useStudio((state) => Object.keys(state.doc.block).length === 0);
  const dark = useStudio((state) => state.theme);
  const dragged = useRef(false);
  const box = useRef<HTMLDivElement>(null);

  useCanvasFor(studio.edit, loose);
  useFitOnOpen(loading ? null : page);
  useSelectionInSight();

  const onNodesChange = useCallback(
    (changes: NodeChange[]) => {
      changeNodes(changes.filter(({ type }) => type !== "remove"));
      takeSelection(studio, changes);
      // Arrow keys move without a drag: their end is the step.
      const moved = changes.filter(
        (change) => change.type === "position" && change.dragging === false && change.position,
      );
      if (moved.length && !dragged.current) {
        studio.edit.move(
          new Map(moved.flatMap((c) => (c.type === "position" && c.position ? [[c.id, c.position]] : []))),
        );
      }
    },
    [changeNodes, studio],
  );

  const onEdgesChange = useCallback(
    (changes: EdgeChange[]) => {
      const chosen = changes.filter((change) => change.type === "select");
      if (chosen.length === 0) return;
      const { selection } = studio.state;
      const wires = new Set(
        applyEdgeChanges(chosen, edgesFrom(selection.wires)).flatMap((e) => (e.selected ? [e.id] : [])),
      );
      for (const change of chosen) if (change.type === "select" && change.selected) wires.add(change.id);
      studio.set({ selection: { ...selection, wires } });
    },
    [studio],
  );

  const onConnectEnd = useCallback<OnConnectEnd>(
    (event, state) => droppedWire(studio, event, state, flow.screenToFlowPosition),
    [studio, flow],
  );

  const isValid = useCallback(
    (connection: Connection | Edge) => {
      const { doc, palette, inference } = studio.state;
      const [source, target] = ends(connection);
      const why = refusal(doc, palette, inference.outputs, source, target);
      studio.set({ refusal: why });
      return why === null;
    },
    [studio],
  );

  return (
    <div ref={box} className="canvas" data-testid="canvas">
      <ReactFlow
        nodes={nodes}
        edges={edges}
        nodeTypes={NODE_TYPES}
        edgeTypes={EDGE_TYPES}
        onNodesChange={onNodesChange}
        onEdgesChange={onEdgesChange}
        onNodeDragStart={() => {
          dragged.current = true;
        }}
        onNodeDragStop={(_, _node, moved) => {
          dragged.current = false;
          studio.edit.move(withGroups(studio, moved));
        }}
        onSelectionDragStart={() => {
          dragged.current = true;
        }}
        onSelectionDragStop={(_, moved) => {
          dragged.current = false;
          studio.edit.move(withGroups(studio, moved));
        }}
        onConnect={(connection) => studio.edit.connect(...ends(connection))}
        onConnectStart={(_, { nodeId, handleId, handleType }) =>
          studio.set({ drawing: handleType === "source" ? parseEnd(`${nodeId}.${handleId}`) : null })
        }
        onConnectEnd={onConnectEnd}
        onMove={(_, { zoom }) => box.current?.classList.toggle("far", zoom < READABLE)}
        onReconnect={(old, connection) => studio.edit.reconnect(old.id, ...ends(connection))}
        isValidConnection={isValid}
        onPaneContextMenu={(event) => openFinder(studio, event, flow.screenToFlowPosition)}
        onDoubleClick={(event) => {
          if ((event.target as Element).classList.contains("react-flow__pane")) {
            openFinder(studio, event, flow.screenToFlowPosition);
          }
        }}
        onNodeDoubleClick={(_, node) => openBlock(studio, node.id)}
        onDragOver={(event) => event.preventDefault()}
        onDrop={(event) => dropped(studio, event, flow.screenToFlowPosition)}
        deleteKeyCode={null}
        multiSelectionKeyCode={["Shift", "Control", "Meta"]}
        selectionKeyCode="Shift"
        selectionMode={SelectionMode.Partial}
        zoomOnDoubleClick={false}
        minZoom={0.03}
        maxZoom={3}
        snapGrid={[8, 8]}
        snapToGrid
        connectionRadius={26}
        elevateNodesOnSelect={false}
        onlyRenderVisibleElements={nodes.length > MANY}
        colorMode={dark === "dark" ? "dark" : "light"}
        proOptions={{ hideAttribution: true }}
        nodesFocusable
        edgesFocusable
      >
        <Background variant={BackgroundVariant.Dots} gap={24} size={1.6} />
        <MiniMap
          pannable
          zoomable
          ariaLabel="Map of the page"
          nodeBorderRadius={6}
          style={{ width: 160, height: 104 }}
        />
        <Panel position="bottom-left">
          <ZoomButtons />
        </Panel>
      </ReactFlow>
      {empty && !loading && (
        <div className="empty" data-testid="empty-page">
          <strong>An empty page</strong>
          <span>
            Press <kbd>A</kbd> or double-click to add a block, or drag one from the palette.
          </span>
        </div>
      )}
      <Refusal />
    </div>
  );
}

function edgesFrom(wires: ReadonlySet<string>): Edge[] {
  return [...wires].map((id) => ({ id, source: "", target: "", selected: true }));
}

function Refusal() {
  const why = useStudio((state) => state.refusal);
  return (
    <div role="status" aria-live="polite">
      {why && (
        <div className="canvas-hint" data-testid="refusal">
          {why}
        </div>
      )}
    </div>
  );
}

function ZoomButtons() {
  const flow = useReactFlow();
  return (
    <div className="zoom-buttons">
      <button
        type="button"
        className="button square"
        aria-label="Zoom out"
        title="Zoom out (−)"
        onClick={() => void flow.zoomOut()}
      >
        <Icon name="minus" />
      </button>
      <button
        type="button"
        className="button square"
        aria-label="Zoom to fit"
        title="Zoom to fit (F)"
        data-testid="zoom-fit"
        onClick={() => void flow.fitView(FIT)}
      >
        <Icon name="fit" />
      </button>
      <button
        type="button"
        className="button square"
        aria-label="Zoom in"
        title="Zoom in (+)"
        onClick={() => void flow.zoomIn()}
      >
        <Icon name="plus" />
      </button>
    </div>
  );
}

type Studio = ReturnType<typeof useActions>;
type ToCanvas = (point: { x: number; y: number }) => { x: number; y: number };

function takeSelection(studio: Studio, changes: readonly NodeChange[]): void {
  const chosen = changes.filter((change) => change.type === "select");
  if (chosen.length === 0) return;
  const { selection } = studio.state;
  const [blocks, notes] = [new Set(selection.blocks), new Set(selection.notes)];
  for (const change of chosen) {
    if (change.type !== "select") continue;
    const [set, key] = change.id.startsWith("note:") ? [notes, change.id.slice(5)] : [blocks, change.id];
    if (change.selected) set.add(key);
    else set.delete(key);
  }
  studio.edit.select(blocks, selection.wires, notes);
}

/** Places of the dragged nodes; a dragged frame takes its blocks with it. */
function withGroups(studio: Studio, moved: readonly Node[]): Map<string, { x: number; y: number }> {
  const { doc } = studio.state;
  const places = new Map(moved.map((node) => [node.id, node.position]));
  for (const node of moved) {
    const note = node.id.startsWith("note:") ? doc.note[node.id.slice(5)] : undefined;
    for (const name of note?.blocks ?? []) {
      const at = doc.position[name];
      if (note && at && !places.has(name)) {
        places.set(name, { x: at[0] + node.position.x - note.at[0], y: at[1] + node.position.y - note.at[1] });
      }
    }
  }
  return places;
}

/** A wire that ended in the empty canvas asks which block to put there. */
function droppedWire(
  studio: Studio,
  event: MouseEvent | TouchEvent,
  state: FinalConnectionState,
  toCanvas: ToCanvas,
): void {
  studio.set({ refusal: null, drawing: null });
  if (state.isValid || !state.fromHandle) return;
  const { nodeId, id, type } = state.fromHandle;
  const point = "changedTouches" in event ? event.changedTouches[0] : event;
  if (!point) return;
  if (state.toHandle) {
    complainAboutWire(studio, state);
    return;
  }
  const screen = { x: point.clientX, y: point.clientY };
  studio.set({
    finder: {
      purpose: type === "source" ? "wire-from" : "wire-to",
      end: parseEnd(`${nodeId}.${id}`),
      screen,
      canvas: toCanvas(screen),
    },
  });
}

function complainAboutWire(studio: Studio, state: FinalConnectionState): void {
  if (!state.fromHandle || !state.toHandle) return;
  const { doc, palette, inference } = studio.state;
  const a = parseEnd(`${state.fromHandle.nodeId}.${state.fromHandle.id}`);
  const b = parseEnd(`${state.toHandle.nodeId}.${state.toHandle.id}`);
  if (state.fromHandle.type === state.toHandle.type) studio.notify("bad", "A wire leads from an output to an input");
  else {
    const [source, target] = state.fromHandle.type === "source" ? [a, b] : [b, a];
    const why = refusal(doc, palette, inference.outputs, source, target);
    if (why) studio.notify("bad", why);
  }
}

function openFinder(
  studio: Studio,
  event: { clientX: number; clientY: number; preventDefault(): void },
  toCanvas: ToCanvas,
): void {
  event.preventDefault();
  const screen = { x: event.clientX, y: event.clientY };
  studio.set({ finder: { purpose: "add", end: null, screen, canvas: toCanvas(screen) } });
}

function openBlock(studio: Studio, id: string): void {
  const type = studio.state.palette.types.get(studio.state.doc.block[id]?.type ?? "");
  if (type?.pooling) studio.set({ dock: "windows", windowBlock: id, dockTall: true });
  else if (type?.outputs[0]) studio.set({ dock: "result", resultKey: `${id}.${type.outputs[0].name}` });
}

function dropped(studio: Studio, event: React.DragEvent, toCanvas: ToCanvas): void {
  event.preventDefault();
  const type = studio.state.palette.types.get(event.dataTransfer.getData("application/x-poolgrad-block"));
  const at = toCanvas({ x: event.clientX, y: event.clientY });
  if (type) studio.edit.add(type, at);
}

/** Lends the actions what only the canvas knows. */
function useCanvasFor(edit: Studio["edit"], loose: ReadonlyMap<string, Position>): void {
  const flow = useReactFlow();
  const studio = useActions();
  useEffect(() => {
    const typeOf = (name: string) => studio.state.palette.types.get(studio.state.doc.block[name]?.type ?? "");
    edit.canvas = {
      size: (name) => {
        const measured = flow.getNode(name)?.measured;
        const type = typeOf(name);
        const block = studio.state.doc.block[name];
        return {
          width: measured?.width ?? BLOCK_WIDTH,
          height: measured?.height ?? (type && block ? blockHeight(type, block) : 120),
        };
      },
      pinAt: (name, pin, side) => pinHeight(typeOf(name), pin, side),
      centre: () => {
        const pane = paneOf(studio);
        const at = pane ? { x: pane.x + pane.width / 2 - 108, y: pane.y + pane.height / 2 - 60 } : { x: 400, y: 300 };
        return flow.screenToFlowPosition(at);
      },
      loose: () => loose,
      fit: () => settled(() => void flow.fitView({ ...FIT, duration: glide() })),
      overview: (names) => settled(() => overview(flow, paneOf(studio), names)),
      show: ({ x, y }, { width, height }) => {
        const pane = paneOf(studio);
        if (!pane) return;
        const from = flow.flowToScreenPosition({ x, y });
        const to = flow.flowToScreenPosition({ x: x + width, y: y + height });
        const view = flow.getViewport();
        const right = inside(from.x, to.x, pane.left, pane.right);
        const down = inside(from.y, to.y, pane.top, pane.bottom);
        if (right || down)
          void flow.setViewport({ ...view, x: view.x + right, y: view.y + down }, { duration: glide() });
      },
      reveal: (names) =>
        settled(() => void flow.fitView({ ...FIT, duration: glide(), nodes: names.map((id) => ({ id })) })),
    };
    return () => {
      edit.canvas = null;
    };
  }, [edit, flow, studio, loose]);
}

/** How far a stretch must move to lie between two borders; its beginning counts where it is too long. */
function inside(from: number, to: number, low: number, high: number): number {
  const [first, last] = [low + EDGE, high - EDGE];
  const back = Math.min(0, last - to);
  return Math.max(back, first - from);
}

function paneOf(studio: Studio): DOMRect | undefined {
  return studio.root?.querySelector(".react-flow__pane")?.getBoundingClientRect();
}

/** How long the view takes to move; for those who want no motion it jumps. */
function glide(): number {
  return window.matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 250;
}

/** Does something once the page is drawn as it is now: one frame to draw and measure it, one to take that over. */
function settled(act: () => void): void {
  requestAnimationFrame(() => requestAnimationFrame(act));
}

/** Shows the whole page or, where nothing could be read then, some of its blocks, or at least the beginning of them. */
function overview(flow: ReactFlowInstance, pane: DOMRect | undefined, names?: readonly string[]): void {
  const all = flow.getNodes();
  const some = names ? all.filter(({ id }) => names.includes(id)) : all;
  if (!pane || some.length === 0) return;
  const { width, height } = pane;
  for (const nodes of [all, some]) {
    const bounds = flow.getNodesBounds(nodes);
    const view = getViewportForBounds(bounds, width, height, FIT.minZoom, FIT.maxZoom, FIT.padding);
    if (view.zoom >= SMALLEST_OPENING) {
      void flow.setViewport(view, { duration: glide() });
      return;
    }
  }
  void flow.setViewport(beginning(flow, some, width, height), { duration: glide() });
}

/** Nodes that are too many for the pane, from the first block on. */
function beginning(flow: ReactFlowInstance, nodes: Node[], width: number, height: number): Viewport {
  const bounds = flow.getNodesBounds(nodes);
  const zoom = SMALLEST_OPENING;
  const blocks = nodes.filter(({ type }) => type === "block").map(({ position }) => position);
  const first = blocks.reduce((a, b) => (b.x < a.x || (b.x === a.x && b.y < a.y) ? b : a), blocks[0] ?? bounds);
  const begin = (from: number, size: number, at: number, room: number) => {
    if (size * zoom <= room - 2 * EDGE) return (room - size * zoom) / 2 - from * zoom;
    // The first block may lie far below the top.
    const start = (at - from) * zoom < room / 2 ? from : at;
    return EDGE - start * zoom;
  };
  const x = begin(bounds.x, bounds.width, first.x, width);
  return { zoom, x, y: begin(bounds.y, bounds.height, first.y, height) };
}

/** Shows a page once it is open and its blocks are measured. */
function useFitOnOpen(page: string | null): void {
  const flow = useReactFlow();
  const studio = useActions();
  const measured = useNodesInitialized();
  const fitted = useRef<string | null>(null);
  useEffect(() => {
    if (page === null || !measured || fitted.current === page) return;
    fitted.current = page;
    overview(flow, paneOf(studio));
  }, [page, measured, flow, studio]);
}

/** A panel that opens or grows does not cover the block that is selected, unless that was out of sight before. */
function useSelectionInSight(): void {
  const flow = useReactFlow();
  const studio = useActions();
  const height = useStore((state) => state.height);
  const width = useStore((state) => state.width);
  const before = useRef(height);
  useEffect(() => {
    const room = before.current;
    before.current = height;
    const [node, ...more] = flow.getNodes().filter(({ selected }) => selected);
    if (height >= room || !node || more.length > 0) return;
    const { x, y, zoom } = flow.getViewport();
    const seen = { x: -x / zoom, y: -y / zoom, width: width / zoom, height: room / zoom };
    const bounds = flow.getNodesBounds([node]);
    if (flow.isNodeIntersecting(node, seen)) studio.edit.canvas?.show(bounds, bounds);
  }, [height, width, flow, studio]);
}
