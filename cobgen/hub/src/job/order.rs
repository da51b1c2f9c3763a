//! The order of a job: all that its process needs to know.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cob_hub_api::{JobId, Name, Operation, Wanted};
use serde::{Deserialize, Serialize};

use super::record::Failure;
use crate::circle::Reign;

/// An order. The hub writes it before the job's process starts, and it never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The job.
    pub job: JobId,
    /// The tenant.
    pub tenant: Name,
    /// The cluster.
    pub cluster: Name,
    /// The owner of the cluster.
    #[serde(default)]
    pub owner: Option<String>,
    /// The operation.
    pub operation: Operation,
    /// The folder of the cluster.
    pub folder: PathBuf,
    /// The shape of the cluster: at a creation, the requested one.
    pub shape: Shape,
    /// The shape before the last change, for a rollback.
    pub former: Option<Shape>,
    /// The newest version of the catalogue.
    pub newest: String,
    /// Whether the cluster has a generation.
    #[serde(default)]
    pub has_generation: bool,
    /// Whether machines stay after a failed creation.
    pub keep_failed: bool,
    /// The folder with the programs `cobd`, `cobgen` and `cobctl`.
    pub programs: PathBuf,
    /// The folder with the programs of providers.
    pub providers: PathBuf,
    /// The folder in which providers keep their state.
    pub provider_state: PathBuf,
    /// The longest duration of a switch, in seconds.
    pub switch_limit_s: u64,
    /// The program that hears of jobs, and can forbid them.
    #[serde(default)]
    pub callback: Option<PathBuf>,
    /// How hosts and hub prove their identities; absent: all are on this machine, and prove nothing.
    #[serde(default)]
    pub keys: Option<Keys>,
    /// The circle of hubs; absent: there is a single hub.
    #[serde(default)]
    pub reign: Option<Reign>,
}

/// Keys of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Where the cluster's hosts reach its depot: `tcp://IP:PORT`.
    pub server: String,
    /// The file of the hub's own key as an operator of the hosts.
    pub operator_key: PathBuf,
    /// Its public half.
    pub operator: String,
    /// The publishers that may sign generations.
    pub publishers: Vec<String>,
    /// How many of them must sign.
    pub threshold: usize,
    /// A program that is asked for signatures; absent: a person signs with `cobgen sign`.
    pub signer: Option<PathBuf>,
}

/// A request and the version of the catalogue that it refers to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// The request.
    pub wanted: Wanted,
    /// The version of the catalogue: a commit, and the name of its copy in the folder of the cluster.
    pub catalogue: String,
}

impl Order {
    /// The shape before the operation.
    pub(super) fn before(&self) -> Option<&Shape> {
        (self.operation != Operation::Create {}).then_some(&self.shape)
    }

    /// The shape after the operation; `None` after a deletion. `present` are the services of the cluster.
    pub(super) fn after(&self, present: impl FnOnce() -> BTreeSet<String>) -> Result<Option<Shape>, Failure> {
        self.shape.after(&self.operation, self.former.as_ref(), &self.newest, present)
    }
}

impl Shape {
    /// The shape after an operation; `None` after a deletion. `former` is the shape before the last change, `newest` the
    /// newest version of the catalogue, and `present` are the services of the cluster.
    pub(crate) fn after(
        &self,
        operation: &Operation,
        former: Option<&Self>,
        newest: &str,
        present: impl FnOnce() -> BTreeSet<String>,
    ) -> Result<Option<Self>, Failure> {
        let with = |change: &dyn Fn(&mut Wanted)| {
            let mut shape = self.clone();
            change(&mut shape.wanted);
            Ok(Some(shape))
        };
        match operation {
            Operation::Delete {} => Ok(None),
            Operation::Resize { nodes } => with(&|wanted| wanted.nodes = *nodes),
            Operation::Configure { config } => with(&|wanted| wanted.config.clone_from(config)),
            Operation::Sync {} => Ok(Some(Self { catalogue: newest.to_owned(), ..self.clone() })),
            Operation::Rollback {} => match former {
                Some(former) => Ok(Some(former.clone())),
                None => Err(Failure::new("the cluster has no former state to go back to")),
            },
            Operation::Services { add, remove } => {
                let present = present();
                if let Some(missing) = remove.iter().find(|service| !present.contains(*service)) {
                    let all: Vec<&str> = present.iter().map(String::as_str).collect();
                    let what = format!("the cluster has no service {missing:?}; its services are {}", all.join(", "));
                    return Err(Failure::new(what));
                }
                let services: BTreeSet<String> = present.difference(remove).chain(add).cloned().collect();
                with(&|wanted| wanted.services = Some(services.clone()))
            }
            Operation::Create {}
            | Operation::Replace { .. }
            | Operation::Start { .. }
            | Operation::Stop { .. }
            | Operation::Restart { .. } => Ok(Some(self.clone())),
        }
    }
}
