//! Performs the steps of a job.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cob_hub_api::Operation;
use serde::Deserialize;

use super::callback::{self, Event};
use super::log::{Log, Stop};
use super::machines::Machines;
use super::model::{self, Nodes};
use super::order::{Keys, Order, Shape};
use super::programs::{Programs, RunError};
use super::record::{Entry, Failure, Record};
use super::steps::Step;
use crate::layout::Layout;

/// The pause between two looks for signatures.
const SIGNATURE: Duration = Duration::from_secs(2);
/// How much longer than its own limit a command of `cobctl` may take.
const MARGIN: Duration = Duration::from_secs(60);

/// The answer of `cobgen generate`.
#[derive(Deserialize)]
struct Generated {
    generation: u64,
}

/// The answer of `cobgen log`.
#[derive(Deserialize)]
struct Generations {
    generations: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    generation: u64,
    signed_by: Vec<String>,
}

/// The answer of `cobctl switch`.
#[derive(Deserialize)]
struct Switched {
    converged: bool,
    #[serde(default)]
    why: Vec<String>,
}

/// Performs steps.
pub(crate) struct Performer<'a> {
    pub(crate) order: &'a Order,
    /// The folder of the job.
    pub(crate) folder: &'a Path,
    pub(crate) programs: Programs,
    pub(crate) machines: Machines<'a>,
    pub(crate) log: &'a Log,
    pub(crate) stop: Stop,
    /// The epoch of this process, in a circle of hubs: hosts refuse the orders of an earlier process.
    pub(crate) epoch: Option<u64>,
}

impl Performer<'_> {
    /// Performs a step. May be repeated.
    pub(crate) async fn step(&self, step: Step, record: &mut Record) -> Result<(), RunError> {
        match step {
            Step::Ask => self.tell(Event::Before, None).await,
            Step::Layout => self.lay_out(record).await,
            Step::Remove => self.remove().await,
            Step::Machines => self.machines.create(layout(record)?, self.log, &self.stop).await,
            Step::Publish => {
                let shape = after(record)?.clone();
                self.publish(&shape, layout(record)?.clone(), record).await
            }
            Step::Clear => self.clear(record).await,
            Step::Switch | Step::SwitchBack => self.switch(record).await,
            Step::Services => self.services().await,
            Step::Retire => self.retire(record.progress().layout.as_ref()).await,
            Step::Restore => self.restore(record).await,
            Step::RetireNew => self.retire_new().await,
        }
    }

    /// Tells the callback of an event.
    pub(crate) async fn tell(&self, event: Event, reason: Option<&str>) -> Result<(), RunError> {
        callback::tell((self.order, self.folder), event, reason, &self.programs, self.log, &self.stop).await
    }

    fn keys(&self) -> Option<&Keys> {
        self.order.keys.as_ref()
    }

    fn depot(&self) -> PathBuf {
        self.order.folder.join("depot")
    }

    fn catalogue(&self, shape: &Shape) -> PathBuf {
        self.order.folder.join("catalogues").join(&shape.catalogue)
    }

    /// Writes the cluster into its copy of the catalogue. Returns the path of the model.
    fn write_model(&self, shape: &Shape, nodes: &Nodes<'_>) -> Result<PathBuf, Failure> {
        let (catalogue, owner) = (self.catalogue(shape), self.order.owner.as_deref());
        let (name, machines) = (&self.order.cluster, self.machines.table());
        model::write(&catalogue, name, owner, &shape.wanted, nodes, &machines, self.keys())
            .map_err(|e| Failure::new(format!("can't write the model in {}: {e}", catalogue.display())))
    }

    async fn solve(&self, shape: &Shape) -> Result<Layout, RunError> {
        let model = self.write_model(shape, &Nodes::Count)?;
        let depot = self.depot();
        let depot = depot.is_dir().then_some(depot.as_path());
        super::solve::solve(&self.programs, &model, depot, self.log, &self.stop).await
    }

    async fn lay_out(&self, record: &mut Record) -> Result<(), RunError> {
        let layout = self.solve(after(record)?).await?;
        for node in &layout.nodes {
            self.log.line(&format!("{}: {}", node.name, node.services.join(", ")));
        }
        append(record, Entry::LaidOut { layout })
    }

    async fn remove(&self) -> Result<(), RunError> {
        let Operation::Replace { node } = &self.order.operation else { return Ok(()) };
        if !self.machines.table().contains_key(node) {
            return Ok(());
        }
        self.machines.delete(vec![node.clone()], self.log, &self.stop).await?;
        if self.keys().is_some() {
            // The new machine enrols with a key of its own. The next generation revokes the old key, and the other hosts
            // then release the locks of the deleted machine.
            return Ok(());
        }
        // The other hosts no longer wait for the locks of the deleted machine.
        self.cobctl(&["fence", node, "--yes"], Duration::from_secs(30)).await.map(drop)
    }

    async fn publish(&self, shape: &Shape, layout: Layout, record: &mut Record) -> Result<(), RunError> {
        let model = self.write_model(shape, &Nodes::Named(&layout))?;
        self.generate(model, record).await
    }

    async fn generate(&self, model: PathBuf, record: &mut Record) -> Result<(), RunError> {
        let message = format!("job {}: {}", self.order.job, self.order.operation.name());
        let words: Vec<OsString> = vec![
            "generate".into(),
            model.into(),
            "--depot".into(),
            self.depot().into(),
            "--message".into(),
            message.into(),
            "--json".into(),
        ];
        let Generated { generation } = self.programs.cobgen(&words, self.log, &self.stop).await?;
        append(record, Entry::Published { generation })?;
        match self.keys() {
            Some(keys) => self.sign(keys, generation, record).await,
            None => Ok(()),
        }
    }

    /// Asks for signatures, and waits until enough publishers have signed.
    async fn sign(&self, keys: &Keys, generation: u64, record: &mut Record) -> Result<(), RunError> {
        let depot = self.depot();
        let mut was_asked = false;
        loop {
            let words: Vec<OsString> = vec!["log".into(), "--depot".into(), depot.clone().into(), "--json".into()];
            let all: Generations = self.programs.cobgen(&words, self.log, &self.stop).await?;
            let signed = all.generations.into_iter().find(|listed| listed.generation == generation);
            let signed = signed.map(|listed| listed.signed_by).unwrap_or_default();
            if signed.iter().filter(|key| keys.publishers.contains(key)).count() >= keys.threshold {
                return Ok(());
            }
            if !was_asked {
                was_asked = true;
                append(record, Entry::Unsigned { generation })?;
                self.log.line(&format!(
                    "generation {generation} waits for signatures: `cobgen sign {generation} --depot {} --key FILE`",
                    depot.display()
                ));
                if let Some(signer) = &keys.signer {
                    let limit = Duration::from_mins(10);
                    let words = [depot.clone().into(), generation.to_string().into()];
                    let output = self.programs.run_path(signer, &words, limit, self.log, &self.stop).await?;
                    if !output.status.success() {
                        let what = format!("the signer {} ended with {}", signer.display(), output.status);
                        return Err(Failure::new(what).hint("the log of the job has its output").into());
                    }
                    continue;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(SIGNATURE) => {}
                () = self.stop.told() => return Err(RunError::Canceled),
            }
        }
    }

    /// The hosts keep their place in the generation, because a host leaves a generation only when its daemon answers.
    async fn clear(&self, record: &mut Record) -> Result<(), RunError> {
        let catalogue = self.catalogue(&self.order.shape);
        let model = model::write_empty(&catalogue, &self.order.cluster, &self.machines.table(), self.keys())
            .map_err(|e| Failure::new(format!("can't write the model in {}: {e}", catalogue.display())))?;
        self.generate(model, record).await
    }

    async fn restore(&self, record: &mut Record) -> Result<(), RunError> {
        let shape = &self.order.shape;
        let layout = self.former_layout(shape).await?;
        self.publish(shape, layout, record).await
    }

    /// The layout before the operation: from the file that the hub keeps of the last success.
    async fn former_layout(&self, shape: &Shape) -> Result<Layout, RunError> {
        match super::former::read(&self.order.folder) {
            Ok(Some(layout)) => Ok(layout),
            Ok(None) => self.solve(shape).await,
            Err(error) => Err(Failure::new(format!("can't read the former layout: {error}")).into()),
        }
    }

    async fn switch(&self, record: &Record) -> Result<(), RunError> {
        let Some(generation) = record.progress().generation else {
            return Err(Failure::new("no generation was made").into());
        };
        let limit = Duration::from_secs(self.order.switch_limit_s);
        let (generation, wait) = (generation.to_string(), format!("{}s", self.order.switch_limit_s));
        let words = ["switch", &generation, "--wait", &wait, "--now", "--on-failure", "hold", "--json"];
        let output = self.run_cobctl(&words, limit + MARGIN).await?;
        let answer: Option<Switched> = serde_json::from_slice(&output.text).ok();
        match answer {
            Some(answer) if answer.converged && output.status.success() => Ok(()),
            Some(answer) => {
                let why = if answer.why.is_empty() { "it has not converged".to_owned() } else { answer.why.join("; ") };
                Err(Failure::new(format!("generation {generation}: {why}"))
                    .hint(format!("`cobctl --depot {} status` shows the hosts", self.depot().display()))
                    .into())
            }
            None => {
                Err(Failure::new(format!("the switch to generation {generation} ended with {}", output.status)).into())
            }
        }
    }

    async fn services(&self) -> Result<(), RunError> {
        let (command, services) = match &self.order.operation {
            Operation::Start { services } => ("start", services),
            Operation::Stop { services } => ("stop", services),
            Operation::Restart { services } => ("restart", services),
            Operation::Create {}
            | Operation::Resize { .. }
            | Operation::Services { .. }
            | Operation::Configure { .. }
            | Operation::Sync {}
            | Operation::Rollback {}
            | Operation::Replace { .. }
            | Operation::Delete {} => return Ok(()),
        };
        let targets: Vec<String> = match services.is_empty() {
            true => vec![format!("cluster:{}", self.order.cluster)],
            false => services.iter().map(|service| format!("service:{service}")).collect(),
        };
        let wait = format!("{}s", self.order.switch_limit_s);
        let mut words = vec![command];
        words.extend(targets.iter().map(String::as_str));
        words.extend(["--wait", wait.as_str()]);
        self.cobctl(&words, Duration::from_secs(self.order.switch_limit_s) + MARGIN).await
    }

    /// Runs a command of `cobctl` that has to succeed.
    async fn cobctl(&self, words: &[&str], limit: Duration) -> Result<(), RunError> {
        let output = self.run_cobctl(words, limit).await?;
        self.log.line(String::from_utf8_lossy(&output.text).trim_end());
        if output.status.success() {
            return Ok(());
        }
        let what = format!("`cobctl {}` ended with {}", words.join(" "), output.status);
        Err(Failure::new(what).hint("the log of the job has its output").into())
    }

    async fn run_cobctl(&self, words: &[&str], limit: Duration) -> Result<super::programs::Output, RunError> {
        let mut all: Vec<OsString> = vec!["--depot".into(), self.depot().into()];
        if let Some(keys) = self.keys() {
            all.extend(["--key".into(), keys.operator_key.clone().into()]);
        }
        if let Some(epoch) = self.epoch {
            all.extend(["--epoch".into(), epoch.to_string().into()]);
        }
        all.extend(words.iter().map(Into::into));
        self.programs.run("cobctl", &all, limit, self.log, &self.stop).await
    }

    /// Deletes the machines that are not in a layout; without a layout, all.
    async fn retire(&self, layout: Option<&Layout>) -> Result<(), RunError> {
        let kept: BTreeSet<&str> = layout.into_iter().flat_map(|l| &l.nodes).map(|node| node.name.as_str()).collect();
        let hosts = self.machines.table().into_keys().filter(|host| !kept.contains(host.as_str())).collect();
        self.machines.delete(hosts, self.log, &self.stop).await
    }

    async fn retire_new(&self) -> Result<(), RunError> {
        match self.order.before() {
            None => self.retire(None).await,
            Some(shape) => {
                let layout = self.former_layout(shape).await?;
                self.retire(Some(&layout)).await
            }
        }
    }
}

fn after(record: &Record) -> Result<&Shape, Failure> {
    record.progress().after.as_ref().ok_or_else(|| Failure::new("the record has no shape"))
}

fn layout(record: &Record) -> Result<&Layout, Failure> {
    record.progress().layout.as_ref().ok_or_else(|| Failure::new("the record has no layout"))
}

fn append(record: &mut Record, entry: Entry) -> Result<(), RunError> {
    record.append(entry).map_err(|e| Failure::new(format!("can't write the record of the job: {e}")).into())
}
