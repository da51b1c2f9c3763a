// The start of the hub's page, and the frame of its views.
import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Boundary } from "../boundary";
import { SkipLink } from "../marks";
import { address, follow, here } from "../route";
import { isDark, nextTheme } from "../theme";
import { comeBack, followTenant, logOut, look, me, setTenant, tenant } from "./api";
import { useHub } from "./load";
import { Failed, failOf } from "./parts";
import { AccountView } from "./views/account";
import { AuditView } from "./views/audit";
import { CatalogueView, EntityView } from "./views/catalogue";
import { ClusterView } from "./views/cluster";
import { ClustersView } from "./views/clusters";
import { CreateView } from "./views/create";
import { JobView } from "./views/job";
import { JobsView } from "./views/jobs";
import { LogIn, refused } from "./views/log-in";
import { MachinesView } from "./views/machines";
import { PeopleView } from "./views/people";
import { QueueView } from "./views/queue";
import { ownWords } from "./texts";
import type { Directory } from "./wire";

const VIEWS: { name: string; words: string; needs?: "administrator" }[] = [
  { name: "", words: "Clusters" },
  { name: "jobs", words: "Jobs" },
  { name: "queue", words: "Queue" },
  { name: "machines", words: "Machines" },
  { name: "catalogue", words: "Catalogue" },
  { name: "people", words: "People" },
  { name: "audit", words: "Audit", needs: "administrator" },
];

/** The tab of a view without a tab of its own. */
const TABS: Record<string, string> = { cluster: "", create: "", job: "jobs", entity: "catalogue" };

/** The views that need no tenant. */
const OF_HUB = ["jobs", "job", "queue", "people", "account", "audit"];

function View() {
  const { view, rest } = here.value;
  if (me.value?.tenant === null && !tenant.value && !OF_HUB.includes(view)) return <ChooseTenant />;
  switch (view) {
    case "":
      return <ClustersView />;
    case "cluster":
      return <ClusterView key={rest} name={rest} />;
    case "create":
      return <CreateView />;
    case "jobs":
      return <JobsView />;
    case "job":
      return <JobView key={rest} id={rest} />;
    case "queue":
      return <QueueView />;
    case "machines":
      return <MachinesView />;
    case "catalogue":
      return <CatalogueView />;
    case "entity":
      return <EntityView key={rest} of={rest} />;
    case "people":
      return <PeopleView />;
    case "audit":
      return <AuditView />;
    case "account":
      return <AccountView />;
    default:
      return (
        <div class="view">
          <h1>No such view</h1>
          <Failed error="The page has no view at this address." hint="Choose one at the top." />
        </div>
      );
  }
}

function ChooseTenant() {
  return (
    <div class="view">
      <section class="panel">
        <h1>Which tenant?</h1>
        <p>You administer all tenants. Choose one at the top, or add one in “People”.</p>
      </section>
    </div>
  );
}

function Tenants() {
  const directory = useHub<Directory>(["directory"], {}, 30_000);
  const names = Object.keys(directory.value?.tenants ?? {});
  return (
    <select aria-label="Tenant" value={tenant.value} onChange={(event) => setTenant(event.currentTarget.value)}>
      <option value="">no tenant</option>
      {names.map((name) => (
        <option key={name} value={name}>
          {name}
        </option>
      ))}
    </select>
  );
}

function Header() {
  const who = me.value!;
  const tab = TABS[here.value.view] ?? here.value.view;
  return (
    <header class="top">
      <a class="brand" href={address("")} aria-label="COB hub">
        <img src="/icon.svg" alt="" width={20} height={20} />
        <b>COB hub</b>
      </a>
      <nav aria-label="Views">
        {VIEWS.filter((view) => !view.needs || who.standing !== "user").map((view) => (
          <a key={view.name} href={address(view.name)} aria-current={tab === view.name ? "page" : undefined}>
            {view.words}
          </a>
        ))}
      </nav>
      <div class="tools">
        {who.tenant === null && <Tenants />}
        <a class="button quiet" href={address("account")} aria-current={here.value.view === "account" ? "page" : undefined}>
          {ownWords(who)}
        </a>
        <button type="button" class="quiet" onClick={nextTheme} aria-label={isDark.value ? "Light colours" : "Dark colours"}>
          {isDark.value ? "Light" : "Dark"}
        </button>
        <button type="button" class="quiet" onClick={() => void logOut()}>
          Log out
        </button>
      </div>
    </header>
  );
}

const silent = signal("");

/** Finds out who is logged in; a hub that does not answer is asked again. */
function start(): void {
  look().then(
    () => (silent.value = ""),
    (error: unknown) => {
      // Without a valid token, the log-in is shown already.
      if (me.value === null) return;
      silent.value = failOf(error).error;
      setTimeout(start, 2000);
    },
  );
}

function Page() {
  const main = useRef<HTMLElement>(null);
  const { view, rest } = here.value;
  useEffect(() => {
    main.current?.scrollTo(0, 0);
    document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    const name = VIEWS.find((one) => one.name === (TABS[view] ?? view))?.words ?? "Account";
    document.title = `${rest || name} – COB hub`;
  }, [view, rest]);
  if (me.value === undefined) {
    return silent.value ? <Failed error={silent.value} hint="The page tries again." again={start} /> : <p class="loading muted">Loading…</p>;
  }
  if (me.value === null) return <LogIn />;
  return (
    <>
      <SkipLink to={main} />
      <Header />
      <div class="body">
        <main ref={main} id="main" tabIndex={-1}>
          <Boundary key={`${view}/${rest}/${tenant.value}`}>
            <View />
          </Boundary>
        </main>
      </div>
    </>
  );
}

follow();
followTenant();
render(<Page />, document.getElementById("page")!);
comeBack().then(start, (error: unknown) => {
  refused.value = failOf(error);
  start();
});
