// The audit: who ordered what, and what was refused.
import { useState } from "preact/hooks";
import { Columns, Empty } from "../../marks";
import { useHub } from "../load";
import { Answered, ClusterLink, JobLink, Moment } from "../parts";
import type { AuditLine } from "../wire";

/** The most lines of an answer. */
const MOST = 1000;

export function AuditView() {
  const [user, setUser] = useState("");
  const [cluster, setCluster] = useState("");
  const [before, setBefore] = useState(0);
  const query = { newest: "true", ...(before > 0 ? { before: String(before) } : {}), ...(user.trim() ? { user: user.trim() } : {}), ...(cluster.trim() ? { cluster: cluster.trim() } : {}) };
  const lines = useHub<AuditLine[]>(["audit"], query, 5000);
  return (
    <div class="view">
      <div class="fields">
        <h1>Audit</h1>
        <input type="search" aria-label="User" placeholder="User, as in web/ann" value={user} onInput={(event) => (setUser(event.currentTarget.value), setBefore(0))} />
        <input type="search" aria-label="Cluster" placeholder="Cluster" value={cluster} onInput={(event) => (setCluster(event.currentTarget.value), setBefore(0))} />
      </div>
      <section class="panel scroll-x" aria-label="Lines of the audit" tabIndex={0}>
        <Answered of={lines}>
          {(all) =>
            all.length === 0 ? (
              <Empty>No lines.</Empty>
            ) : (
              <>
                <table class="list">
                  <Columns of={["Number", "Time", "User", "Request", "Cluster", "Job", "Decision"]} />
                  <tbody>
                    {all.map((line) => (
                      <tr key={line.number}>
                        <td class="number">{line.number}</td>
                        <td class="nowrap">
                          <Moment ms={line.time_ms} />
                        </td>
                        <td>{line.user}</td>
                        <td class="detail">{line.request}</td>
                        <td>{line.cluster ? <ClusterLink name={line.cluster} /> : "–"}</td>
                        <td>{line.job === undefined ? "–" : <JobLink id={line.job} />}</td>
                        <td class="detail">{line.decision}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
                <p class="more buttons">
                  {before > 0 && (
                    <button type="button" class="small" onClick={() => setBefore(0)}>
                      Newest lines
                    </button>
                  )}
                  {all.length === MOST && (
                    <button type="button" class="small" onClick={() => setBefore(all.at(-1)?.number ?? 0)}>
                      Older lines
                    </button>
                  )}
                </p>
              </>
            )
          }
        </Answered>
      </section>
    </div>
  );
}
