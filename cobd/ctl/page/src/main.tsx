// The start of the page, and the frame of all views.
import { render, type ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { hasKey, takeKey } from "./api";
import { Boundary } from "./boundary";
import { OrderDialog } from "./dialog";
import { Drawer } from "./drawer";
import { SkipLink } from "./marks";
import { Mark } from "./parts";
import { drawer } from "./proposal";
import { address, follow, here } from "./route";
import { Search } from "./search";
import { counts, link, operator, orders, table } from "./store";
import { keepOpen, retryNow } from "./stream";
import { FAILED } from "./table";
import { isDark, nextTheme } from "./theme";
import { ClusterView } from "./views/cluster";
import { CobView } from "./views/cob";
import { DriftView } from "./views/drift";
import { GenerationsView } from "./views/generations";
import { GraphView } from "./views/graph";
import { HistoryView } from "./views/history";
import { HostsView, HostView } from "./views/hosts";
import { MatrixView } from "./views/matrix";
import { ModelView } from "./views/model";
import { ObjectsView } from "./views/objects";
import { SwitchView } from "./views/switch";
import { moment, span } from "./words";

const VIEWS: { name: string; words: string }[] = [
  { name: "", words: "Cluster" },
  { name: "objects", words: "Objects" },
  { name: "matrix", words: "Matrix" },
  { name: "graph", words: "Graph" },
  { name: "generations", words: "Generations" },
  { name: "drift", words: "Drift" },
  { name: "history", words: "History" },
  { name: "model", words: "Model" },
];

/** The tab of a view without a tab of its own. */
const TABS: Record<string, string> = { cob: "objects", hosts: "", host: "", switch: "generations" };

function View() {
  const { view, rest } = here.value;
  switch (view) {
    case "":
      return <ClusterView />;
    case "objects":
      return <ObjectsView />;
    case "cob":
      return <CobView key={rest} id={rest} />;
    case "hosts":
      return <HostsView />;
    case "host":
      return <HostView key={rest} name={rest} />;
    case "matrix":
      return <MatrixView />;
    case "graph":
      return <GraphView />;
    case "switch":
      return <SwitchView key={rest} number={Number(rest)} />;
    case "generations":
      return <GenerationsView />;
    case "history":
      return <HistoryView />;
    case "drift":
      return <DriftView />;
    case "model":
      return <ModelView />;
    default:
      return (
        <div class="view">
          <h1>This page has no view of the name {view}</h1>
          <a href="#/">Cluster</a>
        </div>
      );
  }
}

function Header() {
  const { view } = here.value;
  const tab = TABS[view] ?? view;
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [tab]);
  const running = orders.value.filter((order) => order.ended_ms === undefined).length;
  return (
    <header class="top">
      <a class="brand" href="#/" aria-label="COB, cluster">
        <img src="/icon.svg" alt="" width="20" height="20" />
        <b>COB</b>
      </a>
      <nav ref={nav} aria-label="Views">
        {VIEWS.map(({ name, words }) => (
          <a key={name} href={address(name)} aria-current={tab === name ? "page" : undefined}>
            {words}
          </a>
        ))}
      </nav>
      <div class="tools">
        <Search />
        <LinkState />
        <button type="button" class="quiet" aria-expanded={drawer.value} onClick={() => (drawer.value = !drawer.value)}>
          Orders{running > 0 && <b class="badge number">{running}</b>}
        </button>
        <button
          type="button"
          class="quiet icon"
          aria-label={isDark.value ? "Light colours" : "Dark colours"}
          title={isDark.value ? "Light colours" : "Dark colours"}
          onClick={nextTheme}
        >
          <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
            <circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.5" />
            <path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor" />
          </svg>
        </button>
      </div>
    </header>
  );
}

function LinkState() {
  const state = link.value.state;
  const words = { connecting: "connecting", live: "live", lost: "old", locked: "locked" }[state];
  return (
    <span class={`link-state link-${state}`} title={operator.value}>
      <span class="dot" aria-hidden="true" />
      {words}
    </span>
  );
}

function Banner() {
  const state = link.value;
  if (state.state !== "lost") return null;
  const seconds = Math.max(0, Math.round((state.retry - Date.now()) / 1000));
  return (
    <div class="banner" role="alert">
      <Mark cls={5} />
      <span class="grow">
        {table.value ? (
          <>
            <b>This picture is old:</b> it shows the cluster at {moment(state.since, 0).slice(-8)}, before the connection was lost ({state.why}).
          </>
        ) : (
          <>
            <b>No connection:</b> {state.why}.
          </>
        )}{" "}
        {seconds > 1 ? `Next try in ${span(seconds * 1000)}.` : "Trying again."}
      </span>
      <button type="button" class="small" onClick={retryNow}>
        Try now
      </button>
    </div>
  );
}

function Locked() {
  return (
    <main class="locked">
      <h1>{hasKey() ? "The server does not accept this page any more" : "The address has no key"}</h1>
      <p>
        Start <code>cobctl page</code> again, and open the address that it prints. The key of an earlier start is not valid after its end.
      </p>
    </main>
  );
}

/** Says the state of the connection to screen readers and in the title of the tab. */
function useTitle() {
  const failed = counts.value[FAILED] ?? 0;
  const { view, rest } = here.value;
  const name = rest || VIEWS.find((candidate) => candidate.name === view)?.words || view;
  const old = link.value.state === "lost" ? "old · " : "";
  const title = `${old}${failed > 0 ? `${failed} failed · ` : ""}${name} · COB`;
  useEffect(() => {
    document.title = title;
  }, [title]);
}

function Page() {
  useTitle();
  const main = useRef<HTMLElement>(null);
  const { view, rest } = here.value;
  const first = useRef(true);
  useEffect(() => {
    main.current?.scrollTo(0, 0);
    if (first.current) first.current = false;
    else main.current?.focus({ preventScroll: true });
  }, [view, rest]);
  if (link.value.state === "locked") return <Locked />;
  const old = link.value.state === "lost" && table.value !== null;
  let content: ComponentChildren = (
    <Boundary key={`${view}/${rest}`}>
      <View />
    </Boundary>
  );
  if (!table.value) content = <p class="loading muted">Asking the hosts…</p>;
  return (
    <>
      <SkipLink to={main} />
      <Header />
      <Banner />
      <div class="body">
        <main ref={main} id="main" tabIndex={-1} class={old ? "old" : ""}>
          {content}
        </main>
        <Drawer />
      </div>
      <OrderDialog />
    </>
  );
}

takeKey();
follow();
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#key=")) {
    takeKey();
    location.reload();
  }
});
render(<Page />, document.getElementById("page")!);
void keepOpen();
