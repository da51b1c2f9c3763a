// All clusters of the tenant.
import { useState } from "preact/hooks";
import { Columns, Empty } from "../../marks";
import { address } from "../../route";
import { plural } from "../../words";
import { useHub } from "../load";
import { Answered, ClusterLink, JobLink, StateWord, Until } from "../parts";
import { ofQuota } from "../texts";
import type { Cluster, Usages } from "../wire";

/** The most clusters of an answer. */
const MOST = 1000;

export function ClustersView() {
  const [search, setSearch] = useState("");
  const found = useHub<Cluster[]>(["clusters"], search ? { search } : {}, 2000);
  return (
    <div class="view">
      <div class="fields">
        <h1>Clusters</h1>
        <input type="search" aria-label="Search clusters" placeholder="Name, template or owner" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        <span class="grow" />
        <a class="button primary" href={address("create")}>
          New cluster
        </a>
      </div>
      <UsagePanel />
      <section class="panel scroll-x" aria-label="Clusters" tabIndex={0}>
        <Answered of={found}>
          {(clusters) =>
            clusters.length === 0 ? (
              <Empty>{search ? `No cluster has “${search}” in its name, template or owner.` : "There are no clusters yet. “New cluster” makes one from a template."}</Empty>
            ) : (
              <>
                <Table clusters={clusters} />
                {clusters.length === MOST && <p class="more muted">The first {MOST} clusters; search for others.</p>}
              </>
            )
          }
        </Answered>
      </section>
    </div>
  );
}

function Table({ clusters }: { clusters: Cluster[] }) {
  return (
    <table class="list">
      <Columns of={["Cluster", "State", "Nodes", "Template", "Owner", "Lease", "Job"]} />
      <tbody>
        {clusters.map((cluster) => (
          <tr key={cluster.name}>
            <th scope="row">
              <ClusterLink name={cluster.name} />
            </th>
            <td>
              <StateWord state={cluster.state} />
            </td>
            <td class="number">{cluster.wanted.nodes}</td>
            <td>{cluster.wanted.template}</td>
            <td>{cluster.owner}</td>
            <td>
              <Until ms={cluster.lease_ends_ms} />
            </td>
            <td>{cluster.job === undefined ? <span class="muted">–</span> : <JobLink id={cluster.job} />}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The use of the quotas in a line. */
export function UsagePanel() {
  const usages = useHub<Usages>(["usage"], {}, 10_000);
  if (!usages.value) return <p class="usage muted">{usages.error || "…"}</p>;
  const { tenant, own } = usages.value;
  const words = (of: Usages["tenant"]) =>
    `${ofQuota(of.used.machines, of.quota.machines)} machines, ${ofQuota(of.used.clusters, of.quota.clusters)} ${plural(of.used.clusters, "cluster")}`;
  return (
    <p class="usage">
      <span class="muted">Tenant:</span> {words(tenant)}
      {own && (
        <>
          {" · "}
          <span class="muted">you:</span> {words(own)}
        </>
      )}
    </p>
  );
}
