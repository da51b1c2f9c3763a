//! Tables and words of the hub's answers. Each function is pure: the time is an argument.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use cob_hub_api::{Cluster, ClusterState, Job, JobState, Machine, MachineState, Operation, Preview, Task};
use cobctl::screen::{Mark, Screen};
use cobctl::words::{clean, count, list, span, utc};
use serde_json::{Map, Value};

/// The most names in a message.
const NAMES: usize = 12;
/// How much of the hash of a version is shown.
const SHORT: usize = 12;
/// For a value that is absent.
const NONE: &str = "-";

/// The time of this machine, in milliseconds since 1970-01-01 UTC.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A moment, in seconds.
pub(super) fn moment(ms: u64) -> String {
    let text = utc(ms.saturating_mul(1_000_000));
    text.split('.').next().map_or_else(|| text.clone(), |seconds| format!("{seconds}Z"))
}

/// A duration of milliseconds.
pub(super) fn length(ms: u64) -> String {
    span(ms.saturating_mul(1_000_000))
}

/// The beginning of a hash.
pub(super) fn short(hash: &str) -> String {
    clean(hash).chars().take(SHORT).collect()
}

/// A text, or `-`.
pub(super) fn or_none(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).map_or_else(|| NONE.to_owned(), clean)
}

fn cluster_mark(state: ClusterState) -> Mark {
    match state {
        ClusterState::Active => Mark::Good,
        ClusterState::Pending => Mark::Busy,
        ClusterState::Incomplete | ClusterState::Inconsistent | ClusterState::Terminated => Mark::Bad,
    }
}

/// The name of a state in the API.
pub(super) fn word<T: serde::Serialize>(state: T) -> String {
    serde_json::to_value(state).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn lease(ends_ms: Option<u64>, now_ms: u64) -> String {
    match ends_ms {
        None => NONE.to_owned(),
        Some(ends) if ends <= now_ms => "over".to_owned(),
        Some(ends) => length(ends - now_ms),
    }
}

/// The list of clusters.
pub(super) fn clusters(screen: &Screen, clusters: &[Cluster], now_ms: u64) -> Vec<String> {
    let mut table = screen.table(&["", "CLUSTER", "STATE", "NODES", "TEMPLATE", "OWNER", "LEASE", "JOB"]);
    for cluster in clusters {
        table.add_row([
            cluster_mark(cluster.state).sign().to_string(),
            cluster.name.to_string(),
            word(cluster.state),
            cluster.wanted.nodes.to_string(),
            clean(&cluster.wanted.template),
            clean(&cluster.owner),
            lease(cluster.lease_ends_ms, now_ms),
            cluster.job.map_or_else(|| NONE.to_owned(), |job| job.to_string()),
        ]);
    }
    screen.lines(&table)
}

/// A cluster with its machines.
pub(super) fn cluster(screen: &Screen, cluster: &Cluster, now_ms: u64) -> Vec<String> {
    let Cluster { name, state, wanted, .. } = cluster;
    let generation = cluster.generation.map(|number| format!(", generation {number}")).unwrap_or_default();
    let mut lines = vec![format!(
        "{name}: {}{generation}, {} of the template {}",
        word(*state),
        count(wanted.nodes as usize, "node"),
        clean(&wanted.template)
    )];
    let lease = match cluster.lease_ends_ms {
        None => "no lease: it lives until it is deleted".to_owned(),
        Some(ends) => format!("lease ends {} (in {})", moment(ends), lease(cluster.lease_ends_ms, now_ms)),
    };
    lines.push(format!("owner {}, created {}; {lease}", clean(&cluster.owner), moment(cluster.created_ms)));
    let named = |what: &str, value: &Option<String>| value.as_ref().map(|value| format!("{what} {}", clean(value)));
    let mut chosen: Vec<String> = [
        named("provider", &wanted.provider),
        named("hardware", &wanted.hardwaretype),
        named("image", &wanted.imagetype),
    ]
    .into_iter()
    .flatten()
    .collect();
    chosen.push(format!("catalogue {}", short(&cluster.catalogue)));
    lines.push(chosen.join(", "));
    if let Some(services) = &wanted.services {
        lines.push(format!("services: {}", list(services, NAMES)));
    }
    for (key, value) in flat(&wanted.config) {
        lines.push(format!("config: {key} = {value}"));
    }
    match (cluster.job, state) {
        (Some(job), _) => lines.push(format!("job {job} works on it: `cobctl job watch {job}`")),
        (None, ClusterState::Incomplete) => {
            lines.push(format!("a creation or deletion failed: `cobctl cluster delete {name}` removes the rest"));
        }
        (None, ClusterState::Inconsistent) => {
            lines.push(format!("an operation failed: see `cobctl jobs --cluster {name}`, then repeat it or `cobctl cluster rollback {name}`"));
        }
        (None, ClusterState::Pending | ClusterState::Active | ClusterState::Terminated) => {}
    }
    if !cluster.machines.is_empty() {
        lines.extend(machines(screen, &cluster.machines));
    }
    lines
}

/// Values with their keys in front of them.
fn flat(map: &Map<String, Value>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (key, value) in map {
        match value.as_object().filter(|inner| !inner.is_empty()) {
            Some(inner) => {
                all.extend(flat(inner).into_iter().map(|(rest, value)| (format!("{}.{rest}", clean(key)), value)));
            }
            None => all.push((clean(key), clean(&value.to_string()))),
        }
    }
    all
}

fn machine_mark(state: MachineState) -> Mark {
    match state {
        MachineState::Confirmed => Mark::Good,
        MachineState::Requested | MachineState::Created | MachineState::Deleting => Mark::Busy,
        MachineState::Orphan => Mark::Bad,
    }
}

/// A list of machines.
pub(super) fn machines(screen: &Screen, machines: &[Machine]) -> Vec<String> {
    let mut table = screen.table(&["", "MACHINE", "STATE", "CLUSTER", "PROVIDER", "ADDRESS"]);
    let tenants: BTreeSet<_> = machines.iter().filter_map(|machine| machine.tenant.as_ref()).collect();
    let shown = |machine: &Machine| {
        let cluster = machine.cluster.as_ref()?;
        Some(match &machine.tenant {
            Some(tenant) if tenants.len() > 1 => format!("{tenant}/{cluster}"),
            Some(_) | None => cluster.to_string(),
        })
    };
    for machine in machines {
        table.add_row([
            machine_mark(machine.state).sign().to_string(),
            clean(&machine.host),
            word(machine.state),
            or_none(shown(machine).as_deref()),
            machine.provider.to_string(),
            or_none(machine.address.as_deref()),
        ]);
    }
    screen.lines(&table)
}

/// An operation, as a user orders it.
pub(super) fn operation(operation: &Operation) -> String {
    let named = |services: &std::collections::BTreeSet<String>| {
        if services.is_empty() { String::new() } else { format!(" {}", clean(&list(services, NAMES))) }
    };
    match operation {
        Operation::Resize { nodes } => format!("resize to {}", count(*nodes as usize, "node")),
        Operation::Services { add, remove } => {
            let part = |verb: &str, services: &std::collections::BTreeSet<String>| {
                (!services.is_empty()).then(|| format!("{verb}{}", named(services)))
            };
            [part("add", add), part("remove", remove)].into_iter().flatten().collect::<Vec<_>>().join(", ")
        }
        Operation::Start { services } | Operation::Stop { services } | Operation::Restart { services } => {
            format!("{}{}", operation.name(), named(services))
        }
        Operation::Replace { node } => format!("replace {}", clean(node)),
        Operation::Create {}
        | Operation::Configure { .. }
        | Operation::Sync {}
        | Operation::Rollback {}
        | Operation::Delete {} => operation.name().to_owned(),
    }
}

fn job_mark(state: JobState) -> Mark {
    match state {
        JobState::Succeeded => Mark::Good,
        JobState::Failed | JobState::Canceled => Mark::Bad,
        JobState::Queued | JobState::Waiting | JobState::Starting | JobState::Running | JobState::Canceling => {
            Mark::Busy
        }
    }
}

/// How long a job runs or ran.
fn duration(job: &Job, now_ms: u64) -> Option<u64> {
    job.started_ms.map(|started| job.ended_ms.unwrap_or(now_ms).saturating_sub(started))
}

/// The reason of a job, or its step.
fn detail(job: &Job) -> String {
    match (&job.reason, &job.step) {
        (Some(reason), _) => clean(reason),
        (None, Some(step)) if !job.state.is_final() => {
            format!("{} ({} of {} done)", clean(step), job.steps_done, count(job.steps, "step"))
        }
        (None, Some(_) | None) => String::new(),
    }
}

/// A list of jobs. The column of priorities is there if a job has another than 0.
pub(super) fn jobs(screen: &Screen, jobs: &[Job], now_ms: u64) -> Vec<String> {
    let has_priorities = jobs.iter().any(|job| job.priority != 0);
    let column = |head: &[&'static str], more: &[&'static str]| {
        let priority = has_priorities.then_some("PRIORITY");
        head.iter().copied().chain(priority).chain(more.iter().copied()).collect::<Vec<_>>()
    };
    let mut table = screen.table(&column(&["", "JOB", "STATE"], &["CLUSTER", "OPERATION", "USER", "TIME", ""]));
    for job in jobs {
        let head = [job_mark(job.state).sign().to_string(), job.id.to_string(), word(job.state)];
        let more = [
            job.cluster.to_string(),
            operation(&job.operation),
            clean(&job.user),
            duration(job, now_ms).map_or_else(|| NONE.to_owned(), length),
            detail(job),
        ];
        let priority = has_priorities.then(|| job.priority.to_string());
        table.add_row(head.into_iter().chain(priority).chain(more));
    }
    screen.lines(&table)
}

/// A job.
pub(super) fn job(job: &Job, now_ms: u64) -> Vec<String> {
    let mut lines = vec![format!("job {}: {} of {}, {}", job.id, operation(&job.operation), job.cluster, ended(job))];
    let priority = if job.priority == 0 { String::new() } else { format!(" with the priority {}", job.priority) };
    lines.push(format!("ordered by {} at {}{priority}", clean(&job.user), moment(job.submitted_ms)));
    if let Some(duration) = duration(job, now_ms) {
        let verb = if job.state.is_final() { "took" } else { "runs for" };
        lines.push(format!("{verb} {}; {} of {} done", length(duration), job.steps_done, count(job.steps, "step")));
    }
    if let Some(step) = job.step.as_ref().filter(|_| !job.state.is_final()) {
        lines.push(format!("step: {}", clean(step)));
    }
    lines
}

/// The state of a job with its reason.
pub(super) fn ended(job: &Job) -> String {
    let reason = job.reason.as_ref().map(|reason| format!(": {}", clean(reason))).unwrap_or_default();
    format!("{}{reason}", word(job.state))
}

/// What an operation would do.
pub(super) fn preview(screen: &Screen, preview: &Preview) -> Vec<String> {
    let mut lines = Vec::new();
    if !preview.nodes.is_empty() {
        let mut table = screen.table(&["", "NODE", "MACHINE", "HARDWARE", "IMAGE", "SERVICES"]);
        for node in &preview.nodes {
            let is_new = preview.create.contains(&node.name);
            table.add_row([
                if is_new { Mark::Busy } else { Mark::Good }.sign().to_string(),
                clean(&node.name),
                if is_new { "new" } else { "stays" }.to_owned(),
                or_none(node.hardwaretype.as_deref()),
                or_none(node.imagetype.as_deref()),
                or_none(Some(&node.services.join(", "))),
            ]);
        }
        lines.extend(screen.lines(&table));
    }
    let named = |verb: &str, names: &[String]| match names {
        [] => format!("no machine to {verb}"),
        names => format!("{} to {verb}: {}", count(names.len(), "machine"), clean(&list(names, NAMES))),
    };
    lines.push(named("create", &preview.create));
    lines.push(named("delete", &preview.delete));
    let stages: Vec<String> = preview.stages.iter().filter_map(|stage| tasks(preview, stage)).collect();
    if !stages.is_empty() {
        lines.push("Stages, one after the other:".to_owned());
    }
    lines.extend(stages.iter().enumerate().map(|(at, stage)| format!("  {:>2}. {stage}", at + 1)));
    lines
}

/// The tasks of a stage: the same task on several nodes is named once.
fn tasks(preview: &Preview, stage: &[u32]) -> Option<String> {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for task in stage.iter().filter_map(|id| preview.tasks.iter().find(|task| task.id == *id)) {
        let Task { action, service, node, .. } = task;
        let name = match service {
            Some(service) => format!("{} {}", clean(action), clean(service)),
            None => clean(action),
        };
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, nodes)) => nodes.push(node),
            None => groups.push((name, vec![node])),
        }
    }
    let told: Vec<String> =
        groups.iter().map(|(name, nodes)| format!("{name} on {}", clean(&list(nodes, NAMES)))).collect();
    (!told.is_empty()).then(|| told.join("; "))
}
