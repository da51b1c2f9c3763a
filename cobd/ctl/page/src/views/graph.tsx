// The graph of what objects need: a drawing, and beside it a tree with the same content.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useCanvas } from "../draw/canvas";
import { Drawing, UNIT_X, UNIT_Y } from "../draw/graph";
import { control, Viewport } from "../draw/viewport";
import { flow } from "../flow";
import { ClassWord, CobLink, Empty, FlagWords, Mark, StateWords, WaitLinks } from "../parts";
import { cobAddress, go, here, setParams } from "../route";
import { graph, needs, table, tick } from "../store";
import { CLASSES, hostOf, noFilter, select, SETTLED, UNKNOWN, type Table } from "../table";
import { narrow } from "../theme";
import { flatten, parentOf, type TreeRow } from "../tree";
import { Virtual } from "../virtual";
import { count } from "../words";
import { usePast } from "./past";

const view = new Viewport(0.01, 3);
/** The drawing of which the viewport shows a part; another graph is fitted anew. */
let fitted = "";

function choose(index: number): void {
  const params = new URLSearchParams(here.value.params);
  const id = table.value?.ids[index];
  if (id === undefined) params.delete("at");
  else params.set("at", id);
  setParams(params);
}

export function GraphView() {
  tick.value;
  const objects = table.value;
  const content = graph.value;
  if (!objects || !content) return null;
  if (content.missing || content.x.length === 0) {
    return (
      <div class="view">
        <h1>Graph</h1>
        <Empty>{content.missing ?? "There is no object."}</Empty>
      </div>
    );
  }
  return <Content />;
}

function Content() {
  const objects = table.value!;
  const { shown, bar } = usePast(objects);
  const content = graph.value!;
  const text = here.value.params.get("q") ?? "";
  const selected = objects.index(here.value.params.get("at") ?? "");
  const [hovered, setHovered] = useState(-1);
  const drawing = useMemo(() => {
    const aspect = ((narrow.value ? 1.1 : 1.25) * UNIT_Y) / UNIT_X;
    return new Drawing(flow(content, (index) => hostOf(objects.ids[index] ?? ""), aspect));
  }, [content, narrow.value]);
  const found = useMemo(
    () => (text.trim() ? new Set(select(shown, { ...noFilter(), text })) : null),
    [text, shown, text.trim() ? tick.value : 0],
  );
  const canvas = useCanvas((pen, width, height, colors) => {
    const key = `${drawing.box.width}x${drawing.box.height}`;
    if (fitted !== key) {
      fitted = key;
      view.fit(drawing.box, width, height, 12);
      if (selected >= 0 && view.scale < 0.6) show(selected, width, height);
    }
    drawing.draw(pen, width, height, view, { table: shown, needs: needs.value, selected, hovered, found }, colors);
  });
  const show = (index: number, width: number, height: number) => {
    if (view.scale < 0.6) view.scale = 0.8;
    view.centre(drawing.centre(index), width, height);
  };
  const fit = () => view.fit(drawing.box, canvas.ref.current!.clientWidth, canvas.ref.current!.clientHeight, 12);
  const reveal = (index: number) => {
    const element = canvas.ref.current!;
    const at = view.screen(drawing.centre(index));
    const inside = at.x > 40 && at.y > 20 && at.x < element.clientWidth - 40 && at.y < element.clientHeight - 20;
    if (!inside || view.scale < 0.3) show(index, element.clientWidth, element.clientHeight);
    canvas.redraw();
  };
  const latest = useRef({ selected, drawing, fit });
  latest.current = { selected, drawing, fit };
  useEffect(() => {
    const hit = (at: { x: number; y: number }) => latest.current.drawing.hit(view.world(at), view.scale);
    return control(canvas.ref.current!, view, {
      changed: canvas.redraw,
      fit: () => latest.current.fit(),
      hover: (at) => setHovered(at ? hit(at) : -1),
      click: (at) => {
        const index = hit(at);
        if (index >= 0 && index === latest.current.selected) go(cobAddress(table.value!.ids[index]!));
        else choose(index);
      },
    });
  }, []);
  const zoom = (factor: number) => {
    const element = canvas.ref.current!;
    view.zoom(factor, { x: element.clientWidth / 2, y: element.clientHeight / 2 });
    canvas.redraw();
  };
  const search = (value: string) => {
    const params = new URLSearchParams(here.value.params);
    if (value) params.set("q", value);
    else params.delete("q");
    setParams(params);
  };
  const next = () => {
    const list = [...(found ?? [])];
    const after = list.find((index) => index > selected) ?? list[0];
    if (after === undefined) return;
    choose(after);
    reveal(after);
  };
  return (
    <div class="view fill">
      <h1 class="hidden">Graph</h1>
      <div class="fields graph-tools">
        <input
          type="search"
          placeholder="Find in the graph"
          aria-label="Find in the graph"
          value={text}
          onInput={(event) => search(event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Enter" && next()}
        />
        {found && (
          <button type="button" class="small" onClick={next} disabled={found.size === 0}>
            {count(found.size, "object")} · next
          </button>
        )}
        <span class="muted grow graph-help">Each object is to the right of what it needs on its host. Amber lines are waits.</span>
        <span class="buttons">
          <button type="button" class="icon" aria-label="Smaller" onClick={() => zoom(0.7)}>
            −
          </button>
          <button type="button" class="icon" aria-label="Larger" onClick={() => zoom(1.4)}>
            +
          </button>
          <button
            type="button"
            onClick={() => {
              fit();
              canvas.redraw();
            }}
          >
            Whole
          </button>
        </span>
      </div>
      {bar}
      <div class="graph-body">
        <div class="graph-drawing">
          <canvas
            ref={canvas.ref}
            tabIndex={0}
            role="img"
            aria-label={`Drawing of ${count(objects.size, "object")} and what they need. Arrow keys move it, plus and minus scale it. The tree beside it has the same content.`}
          />
          <p class="hover-line" aria-hidden="true">
            {hovered >= 0 ? `${shown.ids[hovered]}: ${CLASSES[shown.cls[hovered] ?? UNKNOWN]}` : " "}
          </p>
        </div>
        <div class="graph-side">
          <Chosen objects={shown} index={selected} />
          <Tree objects={shown} found={found} selected={selected} onSelect={(index) => {
            choose(index);
            reveal(index);
          }} />
        </div>
      </div>
    </div>
  );
}

function Chosen({ objects, index }: { objects: Table; index: number }) {
  tick.value;
  if (index < 0) return <p class="chosen muted">Choose an object in the drawing or in the tree.</p>;
  const { out, into } = needs.value;
  return (
    <div class="chosen" role="status">
      <p>
        <ClassWord cls={objects.cls[index] ?? UNKNOWN} /> <CobLink id={objects.ids[index] ?? ""} /> <FlagWords flags={objects.flags[index] ?? 0} />
      </p>
      <p class="muted">
        <StateWords index={index} of={objects} /> · needs {(out[index]?.length ?? 0).toLocaleString("en")} · needed by {(into[index]?.length ?? 0).toLocaleString("en")}
      </p>
      <p>
        <WaitLinks index={index} most={2} of={objects} />
      </p>
    </div>
  );
}

interface TreeProps {
  objects: Table;
  found: Set<number> | null;
  selected: number;
  onSelect: (index: number) => void;
}

function Tree({ objects, found, selected, onSelect }: TreeProps) {
  tick.value;
  const [expanded, setExpanded] = useState<Set<string>>(new Set());
  const [active, setActive] = useState("");
  const [problems, setProblems] = useState(false);
  const roots = useMemo(() => {
    const all = found ? [...found] : objects.ids.map((_, index) => index);
    return problems ? all.filter((index) => objects.cls[index] !== SETTLED) : all;
  }, [found, objects, problems, problems ? tick.value : 0]);
  const rows = useMemo(() => flatten(roots, expanded, needs.value), [roots, expanded, needs.value]);
  const at = active === "" ? rows.findIndex((row) => row.index === selected) : rows.findIndex((row) => row.path === active);
  const toggle = (row: TreeRow, open: boolean) => {
    const next = new Set(expanded);
    if (open) next.add(row.path);
    else next.delete(row.path);
    setExpanded(next);
  };
  const onKey = (event: KeyboardEvent, place: number): number | boolean | undefined => {
    const row = rows[place];
    if (!row) return undefined;
    if (event.key === "ArrowRight") {
      if (row.expanded) return place + 1;
      if (row.children > 0) toggle(row, true);
      return true;
    }
    if (event.key === "ArrowLeft") {
      if (row.expanded) {
        toggle(row, false);
        return true;
      }
      return parentOf(rows, place);
    }
    return undefined;
  };
  return (
    <>
      <label class="check">
        <input type="checkbox" checked={problems} onChange={(event) => setProblems(event.currentTarget.checked)} />
        Only objects that are not settled
        <span class="muted number">{roots.length.toLocaleString("en")}</span>
      </label>
      <Virtual
        id="tree"
        class="tree"
        label="Objects, what they need, and what needs them"
        role="treegrid"
        count={rows.length}
        columns={2}
        rowHeight={28}
        active={at}
        onActive={(place) => {
          const row = rows[place];
          if (!row) return;
          setActive(row.path);
          onSelect(row.index);
        }}
        keyOf={(place) => rows[place]!.path}
        onOpen={() => undefined}
        onEnter={(place) => go(cobAddress(objects.ids[rows[place]!.index]!))}
        onKey={onKey}
        rowProps={(place) => {
          const row = rows[place]!;
          return {
            "aria-level": row.level,
            "aria-expanded": row.children > 0 ? row.expanded : undefined,
            "aria-posinset": row.position,
            "aria-setsize": row.of,
          };
        }}
        row={(place) => {
          const row = rows[place]!;
          return (
            <>
              <div role="gridcell" class="cell tree-name" style={{ paddingLeft: `${(row.level - 1) * 16}px` }}>
                <button
                  type="button"
                  class="plain twist"
                  tabIndex={-1}
                  aria-hidden="true"
                  disabled={row.children === 0}
                  onClick={() => toggle(row, !row.expanded)}
                >
                  {row.children === 0 ? "" : row.expanded ? "▾" : "▸"}
                </button>
                <Mark cls={objects.cls[row.index] ?? UNKNOWN} />
                {row.relation && <span class="relation muted">{row.relation}</span>}
                <span class="id">{objects.ids[row.index]}</span>
              </div>
              <div role="gridcell" class="cell muted tree-class">
                {CLASSES[objects.cls[row.index] ?? UNKNOWN]}
              </div>
            </>
          );
        }}
      />
    </>
  );
}
