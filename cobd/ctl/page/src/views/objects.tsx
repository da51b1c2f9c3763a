// The list of objects: filtered, sorted, 10,000 rows.
import { computed } from "@preact/signals";
import { useState } from "preact/hooks";
import { CobLink, FlagWords, Mark, Since, StateWords, WaitLinks } from "../parts";
import { cobAddress, go, here, setParams } from "../route";
import { counts, table, tick } from "../store";
import { CLASSES, FLAGS, filterOf, paramsOf, select, SORTS, sortPlaces, UNKNOWN, type Filter, type Sort } from "../table";
import { narrow } from "../theme";
import { Virtual } from "../virtual";
import { count } from "../words";

const order = computed(() => {
  const params = here.value.params;
  const named = params.get("sort") ?? "";
  const sort = (SORTS as readonly string[]).includes(named) ? (named as Sort) : "problem";
  return { sort, down: params.get("down") === "1" };
});

const found = computed(() => {
  tick.value;
  const objects = table.value;
  if (!objects) return [];
  return sortPlaces(objects, select(objects, filterOf(here.value.params)), order.value.sort, order.value.down);
});

function change(filter: Filter, sort = order.value.sort, down = order.value.down): void {
  const params = paramsOf(filter);
  if (sort !== "problem") params.set("sort", sort);
  if (down) params.set("down", "1");
  setParams(params);
}

export function ObjectsView() {
  const [active, setActive] = useState(-1);
  const objects = table.value;
  if (!objects) return null;
  tick.value;
  const filter = filterOf(here.value.params);
  const places = found.value;
  const at = active >= 0 ? places.indexOf(active) : -1;
  return (
    <div class="view fill">
      <h1 class="hidden">Objects</h1>
      <Filters filter={filter} number={places.length} />
      <Virtual
        id="objects"
        class="objects"
        label="Objects"
        role="grid"
        count={places.length}
        columns={5}
        rowHeight={narrow.value ? 56 : 32}
        active={at}
        onActive={(row) => setActive(places[row] ?? -1)}
        keyOf={(row) => places[row]!}
        onOpen={(row) => go(cobAddress(objects.ids[places[row]!]!))}
        head={<Heads filter={filter} />}
        row={(row) => <Cells index={places[row]!} />}
      />
      {places.length === 0 && (
        <p class="nothing">
          No object passes the filter.{" "}
          <button type="button" class="small" onClick={() => setParams(new URLSearchParams())}>
            Show all
          </button>
        </p>
      )}
    </div>
  );
}

function Heads({ filter }: { filter: Filter }) {
  const { sort, down } = order.value;
  const head = (name: Sort, words: string) => (
    <div
      key={name}
      role="columnheader"
      class={`cell cell-${name}`}
      aria-sort={sort === name ? (down ? "descending" : "ascending") : "none"}
    >
      <button type="button" class="plain" onClick={() => change(filter, name, sort === name && !down)}>
        {words}
        <span class="sort" aria-hidden="true">
          {sort === name ? (down ? "▼" : "▲") : ""}
        </span>
      </button>
    </div>
  );
  return (
    <>
      {head("problem", "Class")}
      {head("id", "Object")}
      {head("kind", "Kind")}
      {head("state", "State")}
      {head("since", "Since")}
    </>
  );
}

function Cells({ index }: { index: number }) {
  const objects = table.value!;
  const cls = objects.cls[index] ?? UNKNOWN;
  return (
    <>
      <div role="gridcell" class={`cell cell-problem c-${CLASSES[cls]}`}>
        <Mark cls={cls} />
        <span>{CLASSES[cls]}</span>
      </div>
      <div role="gridcell" class="cell cell-id">
        <CobLink id={objects.ids[index] ?? ""} />
      </div>
      <div role="gridcell" class="cell cell-kind muted">
        {objects.kinds[objects.kind[index] ?? -1]}
      </div>
      <div role="gridcell" class="cell cell-state">
        <StateWords index={index} /> <FlagWords flags={objects.flags[index] ?? 0} /> <WaitLinks index={index} most={2} />
      </div>
      <div role="gridcell" class="cell cell-since muted">
        <Since ms={objects.since[index] ?? 0} />
      </div>
    </>
  );
}

function Filters({ filter, number }: { filter: Filter; number: number }) {
  const objects = table.value!;
  const toggle = (cls: number) => {
    const classes = filter.classes.includes(cls) ? filter.classes.filter((other) => other !== cls) : [...filter.classes, cls];
    change({ ...filter, classes });
  };
  const filtered = paramsOf(filter).size > 0;
  return (
    <div class="filters" role="search">
      <div class="chips" role="group" aria-label="Classes">
        {[3, 5, 4, 2, 1, 0].map((cls) => (
          <button
            key={cls}
            type="button"
            class={`chip c-${CLASSES[cls]} ${counts.value[cls] === 0 ? "zero" : ""}`}
            aria-pressed={filter.classes.includes(cls)}
            onClick={() => toggle(cls)}
          >
            <Mark cls={cls} />
            <span class="chip-word">{CLASSES[cls]}</span>
            <b class="number">{(counts.value[cls] ?? 0).toLocaleString("en")}</b>
          </button>
        ))}
      </div>
      <div class="fields">
        <input
          type="search"
          placeholder="Filter by name, kind, state"
          aria-label="Filter by name, kind or state"
          value={filter.text}
          onInput={(event) => change({ ...filter, text: event.currentTarget.value })}
        />
        <select aria-label="Host" value={filter.host} onChange={(event) => change({ ...filter, host: event.currentTarget.value })}>
          <option value="">all hosts</option>
          {objects.hosts.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
        <select aria-label="Kind" value={filter.kind} onChange={(event) => change({ ...filter, kind: event.currentTarget.value })}>
          <option value="">all kinds</option>
          {[...objects.kinds].sort().map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
        <select
          aria-label="Mark"
          value={Object.entries(FLAGS).find(([, flag]) => filter.flags === flag)?.[0] ?? ""}
          onChange={(event) => change({ ...filter, flags: FLAGS[event.currentTarget.value as keyof typeof FLAGS] ?? 0 })}
        >
          <option value="">all marks</option>
          <option value="drift">drift</option>
          <option value="stuck">stuck or flapping</option>
          <option value="departs">departs</option>
          <option value="observed">observed only</option>
        </select>
        {filter.person && (
          <button type="button" class="chip" onClick={() => change({ ...filter, person: false })} aria-label="Remove the filter: needs a person">
            needs a person ✕
          </button>
        )}
        {filter.rest && (
          <button type="button" class="chip" onClick={() => change({ ...filter, rest: "" })} aria-label={`Remove the filter ${filter.rest}`}>
            {filter.rest} ✕
          </button>
        )}
        <span class="muted number grow" role="status">
          {count(number, "object")}
        </span>
        {filtered && (
          <button type="button" class="small" onClick={() => setParams(new URLSearchParams())}>
            Show all
          </button>
        )}
      </div>
    </div>
  );
}
